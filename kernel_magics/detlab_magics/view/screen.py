"""Where the view appears: a widget that lives in the cell, or text that is replaced by a still picture at the end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle

from detlab_magics.view.render import mimebundle
from detlab_magics.view.state import ViewState
from detlab_magics.view.text import progress_line

VIEW_OF = "application/vnd.detlab.view+json"
"""Beside a widget in a notebook: which experiment it shows, for JupyterLab, which finds the widget gone."""
TEXT_SECONDS = 2.0
"""Seconds between two progress lines where there is no widget."""


def headless() -> bool:
    """Whether this kernel runs without a person: papermill, nbclient and nbconvert do not take input; Lab does.

    `DETLAB_HEADLESS=0` or `1` decides otherwise.
    """
    forced = os.environ.get("DETLAB_HEADLESS")
    if forced in {"0", "1"}:
        return forced == "1"
    kernel = getattr(get_ipython(), "kernel", None)
    return kernel is None or not getattr(kernel, "_allow_stdin", True)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let an interrupt that comes meanwhile come at the end.

    Only the main thread is interrupted, and only a handler that Python knows can be put back.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    came = threading.Event()
    handler = signal.signal(signal.SIGINT, lambda *_event: came.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came.is_set():
            signal.raise_signal(signal.SIGINT)


class ScreenOutput:
    """One output of a cell, whose content is replaced.

    An interrupt never comes between the first display and the knowledge of it: the next one would be a second output.
    """

    def __init__(self) -> None:
        self._handle = DisplayHandle()
        self._displayed = False

    def put(self, bundle: dict[str, Any]) -> None:
        """Display a mimebundle, in place of the one before."""
        with _interrupts_wait():
            if self._displayed:
                self._handle.update(bundle, raw=True)
            else:
                self._handle.display(bundle, raw=True)
                self._displayed = True


class Screen(Protocol):
    """One output of a cell."""

    def paint(self, state: ViewState) -> None:
        """Show the state while it changes."""

    def freeze(self, state: ViewState, note: str | None = None) -> None:
        """Leave the still view, with a note about why it no longer changes if the experiment has not ended."""


class TextScreen:
    """One output: a progress line while it runs, the still view at the end."""

    def __init__(self, *, url: str | None = None) -> None:
        self._output = ScreenOutput()
        self._url = url
        self._shown = ""
        self._painted_at = 0.0

    def paint(self, state: ViewState) -> None:
        """Show the progress line if it changed, at most every two seconds."""
        line = progress_line(state)
        now = time.monotonic()
        if self._shown and (line == self._shown or now - self._painted_at < TEXT_SECONDS):
            return
        self._output.put({"text/plain": line})
        self._shown, self._painted_at = line, now

    def freeze(self, state: ViewState, note: str | None = None) -> None:
        """Replace the line by the picture, the table and the text."""
        self._output.put(mimebundle(state, url=self._url, note=note))


class WidgetScreen:
    """The live widget; its output becomes the still view at the end.

    Front ends without widgets show the still picture that comes with it. The widget itself stays in the kernel for a
    while: a page that was closed before the end, and so missed the replacement, finds it there.
    """

    KEPT: ClassVar[int] = 5
    ended: ClassVar[deque[Any]] = deque()

    def __init__(self, *, url: str | None = None) -> None:
        self._output = ScreenOutput()
        self._url = url
        self._widget: Any = None

    def paint(self, state: ViewState) -> None:
        """Show the widget, then send it what changed."""
        if self._widget is not None:
            self._widget.push(state)
            return
        from detlab_magics.view.widget import LiveView

        self._widget = LiveView(state, url=self._url)
        widget = self._widget._repr_mimebundle_()
        number = state.experiment.id
        # A notebook that is saved now, and whose kernel ends before the search, keeps this picture.
        still = mimebundle(state, url=self._url, note=f"As it was when this view began. Now: %det_watch {number}")
        self._output.put({**still, VIEW_OF: {"experiment": number}, **_data(widget)})

    def freeze(self, state: ViewState, note: str | None = None) -> None:
        """Replace the widget by the still view."""
        still = mimebundle(state, url=self._url, note=note)
        self._output.put(still)
        if self._widget is None:
            return
        self._widget.freeze(state, still)
        self.ended.append(self._widget)
        self._widget = None
        while len(self.ended) > self.KEPT:
            self.ended.popleft().close()


def _data(bundle: Any) -> dict[str, Any]:
    """Return the data of a mimebundle, which may be (data, metadata), without its text fallback."""
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    return {k: v for k, v in (data or {}).items() if k != "text/plain"}


def screen(*, live: bool, url: str | None = None) -> Screen:
    """Return where to paint: the widget if somebody watches and it was built, else text."""
    if live:
        from detlab_magics.view import widget

        if widget.available():
            return WidgetScreen(url=url)
    return TextScreen(url=url)
