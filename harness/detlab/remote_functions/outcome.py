"""How a cell's task ended: its report, the values it brought, and the words for an end without a report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from detlab.client.tasks import Task
from detlab.run.cell import REPORT, SUFFIX
from detlab.run.values import ValueProblem, decode
from detlab.schemas.taskwire import TaskEnd, TaskView

_ENDS = {
    TaskEnd.KILLED: "was killed",
    TaskEnd.CANCELED: "was canceled while it waited",
    TaskEnd.LOST: "was lost with its node",
    TaskEnd.IDLE: "was ended for idleness",
    TaskEnd.MAX_TIME: "was ended: it reached its maximum time (resources.max_time)",
}


@dataclass
class CellOutcome:
    """What a task of a cell has left.

    Attributes:
        reported: Whether the cell came to its end.
        error: What it raised, as `detlab.run.cell` describes it; None: nothing, or it did not come to its end.
        values: The variables that came back.
        pickled: Those that are pickles, and their types.
        problems: Why others could not be read.
    """

    reported: bool = False
    error: dict[str, Any] | None = None
    values: dict[str, Any] = field(default_factory=dict)
    pickled: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_outcome(task: Task, *, own: bool = True) -> CellOutcome:
    """Return what a task that has ended has left.

    Args:
        task: Of a cell.
        own: Whether pickles among its values may be read, which runs code.
    """
    found = {output.name: output for output in task.outputs()}
    outcome = CellOutcome()
    if REPORT in found:
        report = json.loads(task.read_output(found[REPORT]))
        outcome.reported = True
        outcome.error = None if report["ok"] else report["error"]
        outcome.pickled = {str(name): str(kind) for name, kind in (report.get("pickled") or {}).items()}
    for name, output in found.items():
        if not name.endswith(SUFFIX):
            continue
        variable = name.removesuffix(SUFFIX)
        try:
            outcome.values[variable] = decode(task.read_output(output), variable, own=own)
        except ValueProblem as problem:
            outcome.problems.append(str(problem))
    return outcome


def how_it_ended(view: TaskView) -> str:
    """Return what happened to a task that ended without a report: the rest of a sentence."""
    how = _ENDS.get(view.end_reason) if view.end_reason is not None else None
    if how is not None:
        return how
    if view.failure is not None:
        return f"ended: {view.failure.message}"
    return f"ended without a result (exit code {view.exit_code})"
