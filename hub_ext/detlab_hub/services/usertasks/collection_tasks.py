"""The tasks that remove collected checkpoints, and files of deleted experiments, with the rights of their owner.

There is one at a time for an experiment. Without slots it runs `detlab.run.collect`, which asks for what it is to
remove, removes it, sees that it is gone, and reports that, checkpoint by checkpoint, by the token of its own attempt.
All of it can be repeated: a task that is lost with its node is started again, and removes what is left.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import DetlabError, NotFound
from detlab.schemas.taskwire import TaskEnd, TaskKind
from detlab.schemas.wire import TrialState
from detlab.schemas.wire.storage import CollectItem, CollectList, CollectReport
from detlab_hub.core.lifecycle import usertask
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.fencing import current_holder
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints import event_files
from detlab_hub.services.checkpoints.removals import end_removal
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.lifecycle.queue_fields import queue_fields
from detlab_hub.services.lifecycle.task_transitions import apply_task
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, TaskNote, TaskRow

_log = logging.getLogger(__name__)
PROGRAM = ["python3", "-m", "detlab.run.collect"]
PER_READ = 200
"""Checkpoints in one reply."""
AGAIN = 3600.0
"""Seconds until a task that failed is followed by another."""
FIRST = 10.0
"""Seconds until one that was killed or lost is followed by another; four times as long after each further one."""
_NOT_ITS_FAULT = frozenset({TaskEnd.LOST.value, TaskEnd.KILLED.value, TaskEnd.CANCELED.value})
_AFTER_FIRST = {TaskEnd.LOST.value: 0.0, TaskEnd.KILLED.value: FIRST, TaskEnd.CANCELED.value: FIRST}
"""A node that is lost once says nothing of the next one."""
_REMEMBERED = 86400.0
_OF_TASK = ("runtime", "environment", "bind_mounts")
_PATHS = ("type", "host_path", "container_path", "storage_path")


class CollectionTasks(Service):
    """The requests of a task that removes checkpoints."""

    async def list(self, task: TaskCaller) -> CollectList:
        """Return what the task is to remove next; from then on it cannot be restored.

        Raises:
            NotFound: The task removes no checkpoints.
            StaleAttempt: The attempt is over.
        """
        return await self._context.write(lambda unit: _list(unit, task))

    async def report(self, task: TaskCaller, report: CollectReport) -> CollectList:
        """Book what is gone, note what failed, and return what the task is to remove next.

        Raises:
            NotFound: The task removes no checkpoints.
            StaleAttempt: The attempt is over.
        """

        def book(unit: UnitOfWork) -> CollectList:
            experiment = _experiment(unit, task)
            if isinstance(experiment, int):
                return _nothing(experiment)
            for one in report.items:
                row = unit.session.get(CheckpointRow, one.uuid)
                if row is not None and row.experiment_id == experiment.id:
                    end_removal(unit, one.uuid, one.paths, one.failure)
            if report.event_files is not None:
                event_files.end(unit, experiment, report.event_files.failure, report.event_files.freed)
            unit.changed_experiment(experiment.id)
            unit.session.flush()
            return _list(unit, task)

        return await self._context.write(book)


def _experiment(unit: UnitOfWork, task: TaskCaller) -> ExperimentRow | int:
    """Load the experiment whose checkpoints a task removes; its id, if the master has removed all of it meanwhile."""
    _, holder = current_holder(unit.session, task)
    number = holder.source.get(TaskNote.GC) if isinstance(holder, TaskRow) else None
    if isinstance(number, int) and unit.session.get(ExperimentRow, number) is None:
        return number
    row = collection.collected_by(unit.session, holder) if isinstance(holder, TaskRow) else None
    if row is None:
        raise NotFound("this task removes no checkpoints", hint="the master starts those that do")
    return row


def _nothing(experiment_id: int) -> CollectList:
    return CollectList(experiment_id=experiment_id, items=[])


def _list(unit: UnitOfWork, task: TaskCaller) -> CollectList:
    experiment = _experiment(unit, task)
    if isinstance(experiment, int):
        return _nothing(experiment)
    items = []
    for removal in collection.due_by_task(unit.session, unit.now, experiment.id, PER_READ):
        row = unit.session.get_one(CheckpointRow, removal.uuid)
        removal.begun_at = removal.begun_at or unit.now
        sizes = {path: int(entry["size"]) for path, entry in row.files.items()}
        going = sizes if removal.paths is None else dict.fromkeys(removal.paths, 0)
        items.append(CollectItem(uuid=row.uuid, paths=removal.paths, files=going, storage=row.storage))
    folders = None if items else event_files.hand_out(unit, experiment)
    return CollectList(experiment_id=experiment.id, items=items, event_files=folders)


# --- the task itself


def due(s: Session, now: float) -> list[int]:
    """Return the experiments of which checkpoints are to be removed by a task now."""
    return collection.experiments_due(s, now)


def act(unit: UnitOfWork, experiment_id: int) -> None:
    """Start the task that removes an experiment's checkpoints, unless one runs or has just failed."""
    row = unit.session.get(ExperimentRow, experiment_id)
    if row is None:
        return
    last = None if row.gc_task is None else unit.session.get(TaskRow, row.gc_task)
    if last is not None:
        if not TrialState(last.state).terminal:
            return
        if unit.now < (last.ended_at or 0.0) + _pause(unit.session, row, last, unit.now):
            return
    if collection.due_by_task(unit.session, unit.now, experiment_id, 1) or event_files.is_ready(unit, row):
        _begin(unit, row)


def _pause(s: Session, row: ExperimentRow, last: TaskRow, now: float) -> float:
    """Return the seconds between a task and the next: none after one that did its work, else more each time."""
    if last.end_reason == TaskEnd.COMPLETED.value:
        return 0.0
    if last.end_reason not in _NOT_ITS_FAULT:
        return AGAIN
    before = collection.ended_early(s, row.owner, _name(row), now - _REMEMBERED) - 1
    return min(AGAIN, FIRST * 4 ** min(before, 10)) if before > 0 else _AFTER_FIRST[last.end_reason]


def _name(row: ExperimentRow) -> str:
    return f"gc of experiment {row.id}"


def _begin(unit: UnitOfWork, row: ExperimentRow) -> None:
    try:
        uids.assign(unit, row.owner)
        config = task_config(row, PROGRAM, _name(row))
        fields = queue_fields(unit.settings, config, 0, Caller(row.owner, groups=frozenset(row.owner_groups)))
    except DetlabError as error:  # no uid is left, or no pool is there: the operator is told, and it is tried again
        _log.warning("checkpoints of experiment %d stay: %s", row.id, error.message)
        for removal in collection.due_by_task(unit.session, unit.now, row.id, PER_READ):
            removal.failure, removal.due_at = error.message, unit.now + AGAIN
        if event_files.is_ready(unit, row):
            event_files.end(unit, row, error.message, 0)
        unit.changed_experiment(row.id)
        return
    task = TaskRow(
        id=f"{TaskKind.COMMAND.value}-{secrets.token_hex(6)}",
        kind=TaskKind.COMMAND.value,
        name=_name(row),
        owner=row.owner,
        state=TrialState.ACTIVE.value,
        config=config,
        bundle=None,
        source={TaskNote.GC.value: row.id},
        **fields,
        run=0,
        experiment_ids=[row.id],
        trial_ids=[],
        created_at=unit.now,
    )
    unit.session.add(task)
    unit.session.flush()
    row.gc_task = task.id
    apply_task(unit, task, usertask.UserTaskCreated())
    unit.changed_task(task)
    _log.info("experiment %d: task %s removes its checkpoints", row.id, task.id)


def task_config(row: ExperimentRow, program: list[str], description: str) -> dict[str, Any]:
    """Return the config of a task on an experiment's storage: how its trials run, without slots; no credentials."""
    kept = {key: row.config[key] for key in _OF_TASK if row.config.get(key) is not None}
    storage = row.config.get("checkpoint_storage") or {}
    return {
        **kept,
        "entrypoint": program,
        "description": description,
        "checkpoint_storage": {key: storage[key] for key in _PATHS if storage.get(key) is not None},
        "resources": {"slots": 0},
    }
