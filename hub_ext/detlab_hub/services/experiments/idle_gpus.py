"""GPUs that are held and do nothing: their owners are told, and by the policy of the pool they are released.

`idle_gpu_warning` of a pool tells, `idle_gpu_release` takes them back after as long as lies between the two. A trial is
not lost: its experiment is paused, or, where others of its trials are in use, the trial alone saves, leaves and starts
again. Other tasks cannot save, and are ended. Who was told is kept in memory, as is what agents measure: after a
restart of the master both begin anew, so that nothing is released for a time in which nobody looked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.core.lifecycle import experiment as lifecycle
from detlab_hub.core.lifecycle import usertask
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.task_transitions import apply_task, say
from detlab_hub.services.lifecycle.transitions import apply_experiment, finish_turn
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.services.views.idle_gpus import IdleGpus, idle_now
from detlab_hub.store.tables import AllocationRow, TaskNote, TaskRow, TrialRow

_log = logging.getLogger(__name__)
EVERY = 60.0
"""Seconds between two looks."""
BEGINS = "its GPUs are idle"
RELEASED = "paused: its GPUs were at 0 %"
Change = Callable[[UnitOfWork], None]


@dataclass(frozen=True)
class _Told:
    """What the owner of idle GPUs was told: when they are released; infinity: they are not."""

    release_at: float


class IdleGpuWatch(Service):
    """Looks at GPUs that do nothing."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._told: dict[str, _Told] = {}
        self._looked = -math.inf

    async def due(self) -> Sequence[Change]:
        """Return what is to be done now, each in a transaction of its own: once in a minute, else nothing."""
        context = self._context
        now = context.clock()
        if abs(now - self._looked) < EVERY:
            return []
        self._looked = now
        context.gpus.forget(now)
        idle, marked = await context.read(lambda s: (idle_now(s, now, context.settings, context.gpus), _marked(s)))
        found = {one.allocation_id: one for one in idle}
        self._told = {key: told for key, told in self._told.items() if key in found}
        changes: list[Change] = [partial(_in_use, allocation_id=key) for key in sorted(marked - found.keys())]
        for one in idle:
            told = self._told.get(one.allocation_id)
            if told is None or (self._warns(one) and one.allocation_id not in marked):
                self._told[one.allocation_id] = told = _Told(self._release_at(one, now))
                changes.append(partial(_tell, idle=one, release_at=told.release_at, warn=self._warns(one)))
            elif now >= told.release_at:
                busy = any(one.experiment_id is not None and key not in found for key in await self._beside(one))
                changes.append(partial(_release, idle=one, alone=busy))
        return changes

    def _warns(self, one: IdleGpus) -> bool:
        pool = self._context.settings.pools.of(one.pool)
        return pool is not None and pool.idle_gpu_warning > 0

    def _release_at(self, one: IdleGpus, now: float) -> float:
        """Return when GPUs are released whose owner is told now: never by what only the trial itself reports."""
        pool = self._context.settings.pools.of(one.pool)
        if pool is None or not pool.idle_gpu_release or not one.measured:
            return math.inf
        return now + pool.idle_gpu_release - pool.idle_gpu_warning

    async def _beside(self, one: IdleGpus) -> Sequence[str]:
        """Return the running allocations of the same experiment."""
        query = select(AllocationRow.id).where(
            AllocationRow.experiment_id == one.experiment_id, AllocationRow.state == AllocationState.RUNNING
        )
        return await self._context.read(lambda s: list(s.scalars(query)))


def _marked(s: Session) -> set[str]:
    """Return the running allocations whose owners were told, or whose page shows it."""
    running = AllocationRow.state == AllocationState.RUNNING, AllocationRow.slots_needed > 0
    tasks = select(AllocationRow.id, TaskRow.source).join(TaskRow, TaskRow.id == AllocationRow.task_id).where(*running)
    found = {key for key, source in s.execute(tasks) if TaskNote.IDLE_GPUS in source}
    trials = select(AllocationRow.id, TrialRow.warnings).join(TrialRow, TrialRow.id == AllocationRow.trial_id)
    return found | {key for key, warnings in s.execute(trials.where(*running)) if _without(warnings) != warnings}


def _without(warnings: list[str]) -> list[str]:
    return [one for one in warnings if not one.startswith(BEGINS)]


def without_pause(warnings: Sequence[str]) -> list[str]:
    """Return the warnings of an experiment that goes on: without that it was paused for GPUs that did nothing."""
    return [one for one in warnings if not one.startswith(RELEASED)]


def _held(unit: UnitOfWork, allocation_id: str) -> AllocationRow | None:
    """Return an allocation that holds its GPUs, and was not asked to leave."""
    row = unit.allocation(allocation_id)
    return row if row is not None and row.state == AllocationState.RUNNING and row.preempt_reason is None else None


# --- in a transaction


def _in_use(unit: UnitOfWork, allocation_id: str) -> None:
    """Take back what was said: the GPUs are in use, or nothing is known of them any more."""
    row = _held(unit, allocation_id)
    if row is None:
        return
    if row.task_id is not None:
        task = unit.task(row.task_id)
        released = (task.source.get(TaskNote.IDLE_GPUS) or {}).get("release_at") is not None
        task.source = {key: value for key, value in task.source.items() if key != TaskNote.IDLE_GPUS}
        if released:
            say(unit, task, "its GPUs are in use again, or not measured: it is not ended for them")
        unit.changed_task(task)
    elif row.trial_id is not None:
        trial = unit.trial(row.trial_id)
        trial.warnings = _without(trial.warnings)
        unit.changed_trial(trial)


def _tell(unit: UnitOfWork, idle: IdleGpus, release_at: float, *, warn: bool) -> None:
    """Note that GPUs are idle, and tell the owner if the pool asks for it: once in each such time."""
    row = _held(unit, idle.allocation_id)
    if row is None:
        return
    if row.task_id is not None:
        _tell_of_task(unit, unit.task(row.task_id), idle, release_at, warn=warn)
    elif row.trial_id is not None and warn:
        _tell_of_trial(unit, unit.trial(row.trial_id), idle, release_at)


def _tell_of_task(unit: UnitOfWork, task: TaskRow, idle: IdleGpus, release_at: float, *, warn: bool) -> None:
    released = release_at if math.isfinite(release_at) else None
    task.source = {**task.source, TaskNote.IDLE_GPUS.value: {"since": idle.since, "release_at": released}}
    unit.changed_task(task)
    if warn:
        ends = f"It is ended in {_minutes(release_at - unit.now)} unless it uses them. " if released else ""
        text = f"{_at_zero(unit, idle)}. {ends}It may wait, or nobody may need it any more: det task kill {task.id}"
        say(unit, task, text)
        said = Said("alert", f"GPUs of {task.kind} {task.id} are idle", text, "warn")
        tell(unit, task.owner, f"idle {task.id}", said, most=1)
        _log.info("task %s: its GPUs are idle", task.id)


def _tell_of_trial(unit: UnitOfWork, trial: TrialRow, idle: IdleGpus, release_at: float) -> None:
    mark = f"{BEGINS} in attempt {idle.run}"
    if any(one.startswith(mark) for one in trial.warnings):
        return  # it was told before a restart of this master
    ends = (
        ""
        if release_at == math.inf
        else f" They are released in {_minutes(release_at - unit.now)} unless it uses them."
    )
    text = (
        f"{mark}: {_at_zero(unit, idle)}. It may wait for data or hang: det trial logs {trial.id};"
        f" det experiment pause {trial.experiment_id} releases them.{ends}"
    )
    trial.warnings = [*_without(trial.warnings), text]
    unit.changed_trial(trial)
    said = Said("alert", f"GPUs of trial {trial.id} are idle", text, "warn", trial.experiment_id, trial.id)
    tell(unit, idle.owner, f"idle {trial.id}", said, most=1)
    _log.info("trial %d: its GPUs are idle", trial.id)


def _release(unit: UnitOfWork, idle: IdleGpus, *, alone: bool) -> None:
    """Take the GPUs back, and tell the owner why.

    Args:
        unit: The transaction.
        idle: Who holds them.
        alone: Whether a trial leaves alone, as others of its experiment are in use.
    """
    row = _held(unit, idle.allocation_id)
    if row is None or row.run != idle.run:
        return
    if row.task_id is not None:
        _end_task(unit, unit.task(row.task_id), idle)
    elif row.trial_id is not None:
        _stop_trial(unit, unit.trial(row.trial_id), row, idle, alone=alone)


def _end_task(unit: UnitOfWork, task: TaskRow, idle: IdleGpus) -> None:
    if task.state != TrialState.ACTIVE:
        return
    text = f"{_at_zero(unit, idle)}: it is ended, as the pool {idle.pool} says"
    say(unit, task, text)
    apply_task(unit, task, usertask.EndRequested(TaskEnd.IDLE))
    said = Said("alert", f"{task.kind} {task.id} is ended for idle GPUs", text, "warn")
    tell(unit, task.owner, f"released {task.id}", said, most=1)
    _log.info("task %s: ended for idle GPUs", task.id)


def _stop_trial(unit: UnitOfWork, trial: TrialRow, row: AllocationRow, idle: IdleGpus, *, alone: bool) -> None:
    if trial.state != TrialState.ACTIVE:
        return
    held = _at_zero(unit, idle)
    if alone:
        text = f"trial {trial.id}: {held}. It saves, leaves and starts again, as the pool {idle.pool} says"
        unit.holder(row).ask_to_leave(unit, row, None)
    else:
        text = f"{RELEASED}: trial {trial.id}: {held}. Then: det experiment activate {trial.experiment_id}"
        experiment = unit.experiment(trial.experiment_id)
        experiment.warnings = [*without_pause(experiment.warnings), text]
        apply_experiment(unit, experiment, lifecycle.ExperimentPauseRequested())
        unit.changed_experiment(experiment.id)
    trial.warnings = _without(trial.warnings)
    unit.changed_trial(trial)
    said = Said("alert", f"Idle GPUs of trial {trial.id} are released", text, "warn", trial.experiment_id, trial.id)
    tell(unit, idle.owner, f"released {trial.id}", said, most=1)
    _log.info("trial %d: idle GPUs are released", trial.id)
    finish_turn(unit)


def _at_zero(unit: UnitOfWork, idle: IdleGpus) -> str:
    slots = "1 slot" if idle.slots == 1 else f"{idle.slots} slots"
    return f"it holds {slots}, whose GPUs are at 0 % for {_minutes(unit.now - idle.since)}"


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min"
