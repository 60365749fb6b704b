"""Acts on many experiments, experiments that go on after their end, and schedules, of the scripted master."""

from __future__ import annotations

from typing import Any

from detlab.schemas.taskwire import CreateTaskReply, TaskKind
from detlab.schemas.wire import EditExperiment, ExperimentState
from detlab.schemas.wire.batches import BatchItem, BatchReply, BatchRequest
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab.schemas.wire.notebooks.schedules import CreateSchedule, CreateScheduleReply, ScheduleState, ScheduleView
from testbed.fake_master.requests import Route
from testbed.fake_master.state import ErrorReply

_EDITS = {"archive": {"archived": True}, "unarchive": {"archived": False}}
AT_ONCE = 3
"""Experiments that a request reaches, so that the client asks again."""


def batch(h: Any) -> None:
    """POST experiments/batch: archive and label, and otherwise as the single acts; a filter means all, newest first."""
    wanted = BatchRequest.model_validate_json(h.body)
    ids = wanted.experiment_ids or sorted((one for one in h.master.experiments), reverse=True)
    if wanted.filter and wanted.before is not None:
        ids = [one for one in ids if one < wanted.before]
    page, left = ids[:AT_ONCE], ids[AT_ONCE:]
    items = [_one(h.master, wanted, number) for number in page]
    done = [one.id for one in items if one.result == "done"]
    undo = []
    if done and not wanted.dry_run and wanted.act in _EDITS:
        undo = [BatchRequest(act="unarchive" if wanted.act == "archive" else "archive", experiment_ids=done)]
    following = page[-1] if left and wanted.filter else None
    h.tell(BatchReply(items=items, left=[] if wanted.filter else left, next=following, undo=undo))


def _one(master: Any, wanted: BatchRequest, number: int) -> BatchItem:
    try:
        view = master.experiment(str(number))
        if wanted.dry_run:
            return BatchItem(id=number, result="done", name=view.name, state=view.state)
        if wanted.act in _EDITS and (view.archived_at is not None) == (wanted.act == "archive"):
            return BatchItem(id=number, result="unchanged", name=view.name, state=view.state)
        if wanted.act in _EDITS:
            view = master.edit(str(number), EditExperiment(**_EDITS[wanted.act]).model_dump_json().encode())
        elif wanted.act in ("add_labels", "remove_labels"):
            edit = EditExperiment(**{wanted.act: wanted.labels})
            view = master.edit(str(number), edit.model_dump_json().encode())
        elif wanted.act == "delete":
            del master.experiments[number]
        elif wanted.act != "move":
            view = master.act(str(number), wanted.act)
    except ErrorReply as error:
        return BatchItem(id=number, result="refused", reason=error.view.message)
    return BatchItem(id=number, result="done", name=view.name, state=view.state)


def go_on(h: Any, number: str) -> None:
    """POST experiments/{id}/continue: it is active again, and the request is noted."""
    h.master.continued.append(ContinueExperiment.model_validate_json(h.body))
    h.master.update_experiment(int(number), state=ExperimentState.ACTIVE)
    h.tell(h.master.experiment(number))


def schedule(h: Any) -> None:
    """POST schedules: it is kept as it was asked for, and due at three times."""
    asked = CreateSchedule.model_validate_json(h.body)
    said = asked.model_dump(exclude={"idempotency_key", "template", "bundle"})
    number = len(h.master.schedules) + 1
    times = [2e9, 2e9 + 86400, 2e9 + 2 * 86400] if asked.cron else []
    view = ScheduleView(id=number, owner="alice", next_at=2e9 if asked.cron else None, next_times=times, **said)
    h.master.schedules[number] = view
    h.master.scheduled.append(asked)
    h.tell(CreateScheduleReply(schedule=view))


def _schedule(h: Any, number: str, **change: Any) -> ScheduleView:
    known = h.master.schedules.get(int(number))
    if known is None:
        raise ErrorReply(404, "not_found", f"there is no schedule {number}")
    view = h.master.schedules[int(number)] = known.model_copy(update=change)
    return view


def run_schedule(h: Any, number: str) -> None:
    """POST schedules/{id}/run: a task that waits."""
    task = h.master.add_task(TaskKind.NOTEBOOK_RUN, _schedule(h, number).name)
    h.tell(CreateTaskReply(task=task))


def remove_schedule(h: Any, number: str) -> None:
    """DELETE schedules/{id}."""
    gone = _schedule(h, number)
    del h.master.schedules[int(number)]
    h.tell(gone)


MANY_ROUTES: list[Route] = [
    ("POST", r"experiments/batch", batch),
    ("POST", r"experiments/(\d+)/continue", go_on),
    ("POST", r"schedules", schedule),
    ("GET", r"schedules", lambda h: h.tell({"items": list(h.master.schedules.values())})),
    ("GET", r"schedules/(\d+)", lambda h, n: h.tell(_schedule(h, n))),
    ("POST", r"schedules/(\d+)/pause", lambda h, n: h.tell(_schedule(h, n, state=ScheduleState.PAUSED))),
    ("POST", r"schedules/(\d+)/resume", lambda h, n: h.tell(_schedule(h, n, state=ScheduleState.ACTIVE))),
    ("POST", r"schedules/(\d+)/run", run_schedule),
    ("DELETE", r"schedules/(\d+)", remove_schedule),
]
