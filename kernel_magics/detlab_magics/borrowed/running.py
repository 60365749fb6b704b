"""A borrowed cell while it runs: one line about where it stands, its output, its end, and what an interrupt asks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from detlab.client import Task
from detlab.errors import DetlabError
from detlab.remote_functions.interrupts import after_kill, ask, kill_and_wait
from detlab.remote_functions.outcome import how_it_ended, read_outcome
from detlab.remote_functions.output import CellOutput, shown
from detlab.schemas.taskwire import TaskView
from detlab.schemas.wire import AllocationState, LogLine
from detlab_magics.cells.modules import CellModules
from detlab_magics.errors import MagicError, StoppedWatching
from detlab_magics.plaintext import in_notebook, plain, plain_lines
from detlab_magics.view.screen import ScreenOutput, headless
from detlab_magics.view.text import duration

STATE_SECONDS = 2.0
"""Seconds after an outage until the task's state is requested again."""
TAIL_LINES = 20


class CellFailed(MagicError):
    """A borrowed cell did not end well: shown as its own traceback, with the cell's own lines."""

    shown_as = "CellFailed"

    def __init__(self, message: str, *, hint: str | None = None, traceback: list[str] | None = None) -> None:
        super().__init__(message, hint=hint)
        self._traceback = traceback

    def _render_traceback_(self) -> list[str]:
        if self._traceback is None:
            return super()._render_traceback_()
        *above, last = self._traceback or [""]
        kind, colon, message = last.partition(":")
        return [*above, f"\x1b[0;31m{kind}\x1b[0m{colon}{message}"]


@dataclass
class Following:
    """One borrowed cell being followed; threads read, the kernel's main thread shows.

    Args:
        task: The task.
        modules: The captured cells, for tracebacks.
        variables: Where results go: the notebook's namespace.
        own: Whether the task is the caller's own, so that pickles of it may be read.
    """

    task: Task
    modules: CellModules
    variables: MutableMapping[str, Any]
    own: bool = True
    _news: queue.SimpleQueue[tuple[str, Any]] = field(default_factory=queue.SimpleQueue)
    _aside: list[str] = field(default_factory=list)
    """What came beside the cell's own output: Python that could not start, our own traceback."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._status = StatusLine()
        self._output = CellOutput(lambda text: print(text, end="", flush=True), f"det task logs {self.task.id}")

    def until_end(self) -> None:
        """Show the task until it has ended, then bring its results back.

        Raises:
            CellFailed: The cell raised, or was ended.
            StoppedWatching: The cell was interrupted; the task was killed or continues, as the user chose.
        """
        for work in (self._read_states, self._read_lines):
            threading.Thread(target=self._guarded, args=(work,), name="detlab-run", daemon=True).start()
        while True:
            try:
                self._show_until_ended()
                break
            except KeyboardInterrupt:
                self._interrupted()
        self._output.close()
        self._stop.set()
        self.task.reload()
        self._settle()

    # --- reading, in threads ------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:  # shown by the main thread, which raises it
            self._news.put(("error", problem))

    def _read_states(self) -> None:
        """Show its states until it is up; during an outage the line stays, and the log's reader reports the error."""
        own = Task(self.task._session, self.task.view)
        while not self._stop.is_set():
            try:
                own.await_up(tell=lambda view: self._news.put(("view", view)))
            except DetlabError:
                self._stop.wait(STATE_SECONDS)
            else:
                return

    def _read_lines(self) -> None:
        for line in Task(self.task._session, self.task.view).iter_logs(follow=True):
            if self._stop.is_set():
                return
            self._news.put(("line", line))
        self._news.put(("end", None))

    # --- showing, in the kernel's own thread --------------------------------------------------------------

    def _show_until_ended(self) -> None:
        while True:
            try:
                kind, item = self._news.get(timeout=0.1)
            except queue.Empty:
                kind, item = "nothing", None
            if kind == "end":
                return
            if kind == "error":
                raise item
            if kind == "view":
                self._status.tell(item)
            elif kind == "line":
                self._take(item)
            if self._output.due:
                self._output.flush()

    def _take(self, line: LogLine) -> None:
        if line.stdtype == "stdout":
            self._output.add(line.text if line.rank is None else f"[rank={line.rank}] {line.text}")
        else:
            self._aside = [*self._aside, line.text][-200:]

    # --- the end ------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Bring the variables back and report how the cell ended.

        Raises:
            CellFailed: The cell raised, or was ended.
        """
        outcome = read_outcome(self.task, own=self.own)
        self.variables.update(outcome.values)
        view = self.task.view
        self._status.end(view, list(outcome.values))
        for name in sorted(set(outcome.pickled) & set(outcome.values)):
            print(f"note: {plain(name)} came back as a pickle ({plain(outcome.pickled[name])})")
        if outcome.error is not None:
            raise self._raised(outcome.error)
        if not outcome.reported:
            raise self._ended(view)
        if outcome.problems:
            said = "\n".join(plain(problem, 600) for problem in outcome.problems)
            raise CellFailed(said, hint=f"det task outputs {self.task.id}")

    def _raised(self, error: dict[str, Any]) -> CellFailed:
        """Make the exception that stands for the one the cell raised, with its name and traceback."""
        name = str(error.get("type"))
        kind = type(name if name.isidentifier() else "CellFailed", (CellFailed,), {"shown_as": name})
        lines = [self._with_cells(shown(str(line))) for line in error.get("traceback") or []]
        return kind(str(error.get("message")), traceback=lines)

    def _with_cells(self, line: str) -> str:
        for cell in self.modules.cells.values():
            line = line.replace(f'File "{cell.filename}"', f'File "{cell.shown_as}"')
        return line

    def _ended(self, view: TaskView) -> CellFailed:
        """Make the exception for a task that ended without reporting a result."""
        failure = view.failure
        how = plain(how_it_ended(view), 300)
        tail = "".join(f"\n{shown(text)}" for text in self._aside[-TAIL_LINES:])
        hint = failure.hint if failure is not None and failure.hint else f"det task logs {view.id}"
        return CellFailed(f"the borrowed cell ({view.id}) {how}{plain_lines(tail)}", hint=in_notebook(hint))

    # --- interrupt ----------------------------------------------------------------------------------------

    def _interrupted(self) -> None:
        """Ask what the interrupt meant; return to continue watching.

        Raises:
            StoppedWatching: The user chose to stop watching, or to kill the task.
        """
        self._output.flush()
        answer = "k" if headless() else ask(self.task.id)
        if answer == "s":
            self._stop.set()
            again = f"to watch it again and get its variables: %det_run {self.task.id}"
            hint = f"{again}; to kill it: det task kill {self.task.id}"
            raise StoppedWatching(f"stopped watching; {self.task.id} continues", hint=hint)
        if answer == "k":
            self._kill()

    def _kill(self) -> None:
        kill_and_wait(self.task)
        self._stop.set()
        self._status.end(self.task.view, [])
        hint = None if self.task.state.terminal else f"det task describe {self.task.id}"
        raise StoppedWatching(after_kill(self.task), hint=hint)


class StatusLine:
    """One line of the cell that is replaced as the task continues."""

    def __init__(self) -> None:
        self._output = ScreenOutput()
        self._shown = ""

    def tell(self, view: TaskView) -> None:
        """Show where the task stands, if that changed."""
        self._put(status_of(view))

    def end(self, view: TaskView, back: list[str]) -> None:
        """Show how long it took, and what came back."""
        seconds = (view.ended_at or 0.0) - (view.started_at or view.ended_at or 0.0)
        word = view.end_reason.value if view.end_reason else view.state.value.lower()
        came = f" · set here: {', '.join(sorted(plain(name, 40) for name in back))}" if back else ""
        self._put(f"{view.id}: {word} after {duration(seconds)}{_place(view)}{came}")

    def _put(self, text: str) -> None:
        if text != self._shown:
            self._output.put({"text/plain": text})
            self._shown = text


def status_of(view: TaskView) -> str:
    """Return where a task stands, in one line: place in the queue and reason, or node."""
    if view.allocation_state in {None, AllocationState.PENDING} and not view.state.terminal:
        place = f", position {view.place}" if view.place else ""
        reason = f": {plain(view.pending_reason, 200)}" if view.pending_reason else ""
        return f"{view.id}: waits for {_slots(view)}{place}{reason}"
    stage = f": {plain(view.stage_message, 200)}" if view.stage_message else ""
    word = "running" if view.allocation_state is AllocationState.RUNNING else "starting"
    return f"{view.id}: {word} with {_slots(view)}{_place(view)}{stage}"


def _slots(view: TaskView) -> str:
    return f"{view.slots_needed} slot{'' if view.slots_needed == 1 else 's'}"


def _place(view: TaskView) -> str:
    return f" on {plain(view.agent_id, 60)}" if view.agent_id else ""
