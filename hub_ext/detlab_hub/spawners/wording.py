"""The texts of the spawn page, as plain text; the caller escapes them."""

from __future__ import annotations

from html import escape

from jupyterhub.spawner import SpawnException

from detlab.schemas.taskwire import SpawnView, TaskEnd
from detlab.schemas.wire import AllocationState

_PERCENT = {
    AllocationState.PENDING: 10,
    AllocationState.ASSIGNED: 40,
    AllocationState.PULLING: 50,
    AllocationState.STARTING: 65,
    AllocationState.RUNNING: 80,
}
_WELL = {TaskEnd.COMPLETED, TaskEnd.IDLE, TaskEnd.CANCELED, TaskEnd.KILLED, TaskEnd.MAX_TIME}
"""Ends that are not failures."""
_ENDINGS = {
    TaskEnd.COMPLETED: "The server ended before it answered.",
    TaskEnd.FAILED: "The server failed.",
    TaskEnd.KILLED: "The server was killed.",
    TaskEnd.IDLE: "The server was ended: it was idle.",
    TaskEnd.CANCELED: "The start was canceled.",
    TaskEnd.ABANDONED: "The start was abandoned: the Hub did not follow it any more.",
    TaskEnd.LOST: "The node of the server was lost.",
    TaskEnd.MAX_TIME: "The server ran for as long as it may (resources.max_time).",
}


class SpawnFailed(SpawnException):
    """A start that did not succeed, with what the failure page shows.

    Args:
        message: Text for people.
        reason: Short label for the Hub's metrics.
        html: The same as HTML, escaped by the caller; by default the text.
        status_code: Of the reply.
    """

    def __init__(self, message: str, *, reason: str, html: str = "", status_code: int = 400) -> None:
        shown = html or f"<p>{escape(message)}</p>"
        super().__init__(message, reason=reason, message_html=shown, status_code=status_code)
        self.jupyterhub_message = message
        self.jupyterhub_html_message = shown


def progress_of(view: SpawnView) -> tuple[int, str]:
    """Return percent and text of a spawn in progress."""
    state = view.allocation_state or AllocationState.PENDING
    percent = _PERCENT.get(state, 10)
    node = view.agent_id or "a node"
    match state:
        case AllocationState.PENDING:
            return percent, _waiting(view)
        case AllocationState.ASSIGNED:
            return percent, view.stage_message or f"{node} has room{_slots(view)}"
        case AllocationState.PULLING:
            return percent, view.stage_message or f"{node} pulls the image"
        case AllocationState.STARTING:
            return percent, view.stage_message or f"{node} prepares the server"
        case _:
            return percent, f"The server starts on {node}"


def _waiting(view: SpawnView) -> str:
    if view.place is None and not view.reason:
        return "Requesting an allocation"  # the scheduler has not looked yet
    where = "Waiting in the queue" + (f", place {view.place}" if view.place is not None else "")
    return f"{where}: {view.reason}" if view.reason else where


def _slots(view: SpawnView) -> str:
    return f": slots {', '.join(view.slots)}" if view.slots else ""


def ended(view: SpawnView) -> bool:
    """Whether the task is over."""
    return view.state.terminal


def status_of(view: SpawnView) -> int:
    """Return the exit status of an ended task that is reported to the Hub."""
    if view.exit_code is not None:
        return view.exit_code
    return 0 if view.end_reason in _WELL else 1


def failure_of(view: SpawnView, log_hint: str = "") -> SpawnFailed:
    """Return the exception for a task that ended before its server answered: why, and its last lines."""
    what = _ENDINGS.get(view.end_reason or TaskEnd.FAILED, "The server ended.")
    code = f" Exit code {view.exit_code}." if view.exit_code is not None else ""
    reason = f" {view.reason}" if view.reason else ""
    text = f"{what}{code}{reason}"
    tail = "\n".join(view.log_tail)
    html = f"<p>{escape(text)}</p>"
    if tail:
        html += f'<p>Its last lines:</p><pre class="text-start det-log-tail">{escape(tail)}</pre>'
    if log_hint:
        html += f"<p>{escape(log_hint)}</p>"
    message = f"{text}\n{tail}" if tail else text
    label = str(view.end_reason or TaskEnd.FAILED)
    return SpawnFailed(message, reason=label, html=html, status_code=503 if label == TaskEnd.LOST else 400)
