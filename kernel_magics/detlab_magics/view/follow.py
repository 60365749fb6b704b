"""Following an experiment from a kernel: one thread reads the stream, another paints, at most twice a second.

Threads, because the kernel's own loop stands still while a cell runs. Interrupting the painter stops watching; the
experiment belongs to the cluster and runs on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from detlab.errors import DetlabError
from detlab.schemas.wire import CurvesView, Event
from detlab_magics.view.state import MAX_POINTS, ViewState, front_metrics

PAINT_SECONDS = 0.5
"""Seconds between two paintings at least: two updates a second."""
CLOCK_SECONDS = 5.0
"""Repaint this often when nothing happens, so that the time left continues."""


def asked_name(*metrics: str) -> str | None:
    """Return the metrics to ask for by name; None where one has a comma, which separates names in a query."""
    names = [name for name in dict.fromkeys(metrics) if name]
    return ",".join(names) if names and not any("," in name for name in names) else None


class Watchable(Protocol):
    """What is followed: `detlab.client.Experiment` is one."""

    def watch(
        self,
        *,
        group: str | None,
        name: str | None,
        max_points: int | None,
        notice: Callable[[DetlabError, float], None],
    ) -> Iterator[CurvesView | Event]:
        """Yield a snapshot, then events, and another snapshot after lost events; call `notice` at every break."""


class ExperimentWatch:
    """One experiment being watched.

    Args:
        experiment: What to follow.
        metric: The searcher metric, whose curves are shown.
        columns: Further validation metrics, which have columns in the table.
        config: The experiment's.
        paint: Called with the state after changes, from one thread at a time.
        seconds: Least time between two paintings.
    """

    def __init__(
        self,
        experiment: Watchable,
        metric: str,
        paint: Callable[[ViewState], None],
        *,
        columns: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        seconds: float = PAINT_SECONDS,
    ) -> None:
        self._experiment = experiment
        self._metric = metric
        self._columns = tuple(columns)
        self._config = dict(config or {})
        self._paint = paint
        self._seconds = seconds
        self._lock = threading.Lock()
        self._dirty = threading.Event()
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._state: ViewState | None = None
        self.error: DetlabError | None = None

    @property
    def state(self) -> ViewState | None:
        """The state so far; None before the first snapshot."""
        with self._lock:
            return self._state

    @property
    def watching(self) -> bool:
        """Whether it still reads and paints."""
        return not (self._stop.is_set() or self._ended.is_set())

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="detlab-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching; the experiment is not touched."""
        self._stop.set()
        self._dirty.set()

    def paint_first(self, seconds: float) -> None:
        """Paint the first state in this thread, waiting for it at most `seconds`.

        Raises:
            DetlabError: The cluster refused, or does not answer.
        """
        self._dirty.wait(seconds)
        self._dirty.clear()
        with self._lock:
            if self._state is not None:
                self._paint(self._state)
        if self.error is not None and self._state is None:
            raise self.error
        self._dirty.set()

    def paint_until_end(self, *, settles: bool = False) -> ViewState:
        """Paint in this thread until the experiment has ended; return its last state.

        Args:
            settles: Whether this also ends when the master pauses the experiment because of a failure.

        Raises:
            DetlabError: The stream broke for good, or watching was stopped before anything was known.
        """
        while not self._stop.is_set():
            self._dirty.wait(CLOCK_SECONDS)
            self._dirty.clear()
            ended = self._ended.is_set()
            with self._lock:
                if self._state is not None:
                    self._paint(self._state)
                if settles and self._state is not None and self._state.settled:
                    self._stop.set()
                    ended = True
            if ended:
                break
            self._stop.wait(self._seconds)
        if self.error is not None:
            raise self.error
        if self._state is None:
            raise DetlabError("stopped watching before the first answer of the cluster")
        return self._state

    def paint_in_background(self, finished: Callable[[ExperimentWatch], None]) -> None:
        """Paint from a thread of its own; `finished` is called once, at the end or after an error."""

        def run() -> None:
            try:
                self.paint_until_end()
            except DetlabError as problem:
                self.error = problem
            finished(self)

        threading.Thread(target=run, name="detlab-paint", daemon=True).start()

    def _read(self) -> None:
        try:
            found = self._experiment.watch(
                group="validation",
                name=asked_name(self._metric, *self._columns, *front_metrics(self._config)),
                max_points=MAX_POINTS,
                notice=self._broken,
            )
            for item in found:
                if self._stop.is_set():
                    return
                self._fold(item)
        except DetlabError as problem:
            self.error = problem
        finally:
            self._ended.set()
            self._dirty.set()

    def _broken(self, _problem: DetlabError, _pause: float) -> None:
        with self._lock:
            if self._state is not None:
                self._state.silent_since = time.time()
        self._dirty.set()

    def _fold(self, item: CurvesView | Event) -> None:
        with self._lock:
            if isinstance(item, CurvesView):
                self._state = ViewState.start(item, [*self._columns], self._config)
                changed = True
            else:
                changed = self._state is not None and self._state.apply([item])
        if changed:
            self._dirty.set()
