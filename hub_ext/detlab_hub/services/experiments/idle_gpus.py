"""GPUs that are held and do nothing: their owners are told, and by the policy of the pool they are released.

`idle_gpu_warning` of a pool tells, `idle_gpu_release` takes them back after as long as lies between the two; how, is
for what holds them (`Holder.release_gpus`). Who was told is kept in memory, as is what agents measure: after a restart
of the master both begin anew, so that nothing is released for a time in which nobody looked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial

from detlab.schemas.wire import AllocationState
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import GpusAtZero, UnitOfWork, minutes
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.services.views.idle_gpus import IdleGpus, idle_now
from detlab_hub.store.queries.metrics.idle import marked_idle, running_of
from detlab_hub.store.tables import AllocationRow

_log = logging.getLogger(__name__)
EVERY = 60.0
"""Seconds between two looks."""
Change = Callable[[UnitOfWork], None]


class IdleGpuWatch(Service):
    """Looks at GPUs that do nothing."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._release_at: dict[str, float | None] = {}
        """By allocation whose owner was told: when its GPUs are released; None: they are not."""
        self._looked = -math.inf

    async def due(self) -> Sequence[Change]:
        """Return what is to be done now, each in a transaction of its own: once in a minute, else nothing."""
        context = self._context
        now = context.clock()
        if abs(now - self._looked) < EVERY:
            return []
        self._looked = now
        context.gpus.forget(now)
        idle, marked = await context.read(lambda s: (idle_now(s, now, context.settings, context.gpus), marked_idle(s)))
        found = {one.allocation_id: one for one in idle}
        self._release_at = {key: at for key, at in self._release_at.items() if key in found}
        changes: list[Change] = [partial(_in_use, allocation_id=key) for key in sorted(marked - found.keys())]
        for one in idle:
            key = one.allocation_id
            if key not in self._release_at or (self._warns(one) and key not in marked):
                self._release_at[key] = self._when_released(one, now)
                gpus = self._gpus(one, now, self._release_at[key])
                changes.append(partial(_tell, idle=one, gpus=gpus))
            elif (release_at := self._release_at[key]) is not None and now >= release_at:
                beside = await context.read(partial(running_of, experiment_id=one.experiment_id))
                alone = any(other not in found for other in beside)
                changes.append(partial(_release, idle=one, gpus=self._gpus(one, now, release_at, alone=alone)))
        return changes

    def _gpus(self, one: IdleGpus, now: float, release_at: float | None, *, alone: bool = False) -> GpusAtZero:
        slots = "1 slot" if one.slots == 1 else f"{one.slots} slots"
        held = f"it holds {slots}, whose GPUs are at 0 % for {minutes(now - one.since)}"
        return GpusAtZero(held, one.since, one.pool, release_at, told=self._warns(one), alone=alone)

    def _warns(self, one: IdleGpus) -> bool:
        pool = self._context.settings.pools.of(one.pool)
        return pool is not None and pool.idle_gpu_warning > 0

    def _when_released(self, one: IdleGpus, now: float) -> float | None:
        """Return when GPUs are released whose owner is told now: never by what only the trial itself reports."""
        pool = self._context.settings.pools.of(one.pool)
        if pool is None or not pool.idle_gpu_release or not one.measured:
            return None
        return now + pool.idle_gpu_release - pool.idle_gpu_warning


# --- in a transaction


def _held(unit: UnitOfWork, allocation_id: str) -> AllocationRow | None:
    """Return an allocation that holds its GPUs, and was not asked to leave."""
    row = unit.allocation(allocation_id)
    return row if row is not None and row.state == AllocationState.RUNNING and row.preempt_reason is None else None


def _in_use(unit: UnitOfWork, allocation_id: str) -> None:
    if (row := _held(unit, allocation_id)) is not None:
        unit.holder(row).gpus_in_use(unit, row)


def _tell(unit: UnitOfWork, idle: IdleGpus, gpus: GpusAtZero) -> None:
    """Note that GPUs are idle, and tell the owner if the pool asks for it: once in each such time."""
    row = _held(unit, idle.allocation_id)
    if row is not None and (text := unit.holder(row).gpus_idle(unit, row, gpus)):
        _alert(unit, idle, f"GPUs of {idle.subject} are idle", text)


def _release(unit: UnitOfWork, idle: IdleGpus, gpus: GpusAtZero) -> None:
    """Take the GPUs back, and tell the owner why."""
    row = _held(unit, idle.allocation_id)
    if row is not None and (text := unit.holder(row).release_gpus(unit, row, gpus)):
        _alert(unit, idle, f"Idle GPUs of {idle.subject} are released", text)


def _alert(unit: UnitOfWork, idle: IdleGpus, title: str, text: str) -> None:
    said = Said("alert", title, text, "warn", idle.experiment_id, idle.trial_id)
    tell(unit, idle.owner, title, said, most=1)
    _log.info("%s", title)
