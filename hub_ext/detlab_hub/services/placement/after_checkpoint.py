"""Preemption delayed until a checkpoint that is due soon.

A pass chooses preemption victims. A victim that is about to save a checkpoint is held back, and so are the victims
chosen for the same pending task: their slots would only wait for it. The next passes treat them as leaving, so that
their slots stay reserved for that task, while all of them keep running; the pass after the commit of the checkpoint
chooses again, and sends the preemption then. Nothing is stored: no decision has been made yet, and a trial that is no
longer needed meanwhile keeps its slots. An overdue checkpoint is waited for a few seconds, see
`core.lifecycle.cadence`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import bindparam, select

from detlab_hub.core.lifecycle.cadence import ENOUGH, is_near
from detlab_hub.core.scheduling import PlacementDecision, Snapshot
from detlab_hub.services.base.pending import HeldBack, Saving
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import AllocationRow, CheckpointRow

_log = logging.getLogger(__name__)
_LAST = PreparedStatement(
    select(CheckpointRow.created_at)
    .where(CheckpointRow.trial_id == bindparam("trial"), CheckpointRow.run == bindparam("run"))
    .order_by(CheckpointRow.steps_completed.desc(), CheckpointRow.created_at.desc())
    .limit(ENOUGH)
)
_LONGEST = 2
"""A victim is held back for at most so many times `checkpoint_near`, as is a single checkpoint. Of many that
leave together there is always one that is about to save."""


class DelayedPreemption:
    """The preemption victims that are held back in one pass.

    Args:
        unit: The transaction.
        before: Who was in the pass before.
    """

    def __init__(self, unit: UnitOfWork, before: Saving) -> None:
        self._turn = unit
        self._before = before
        self._near: dict[str, bool] = {}
        self._shown: set[str] = set()
        """Allocations that the pass treated as leaving."""
        self.saving: dict[str, HeldBack] = {}

    def as_leaving(self, snapshot: Snapshot) -> Snapshot:
        """Return the pool as if the victims that are still held back had been asked to leave.

        Where no checkpoint is due soon any more, the pool is unchanged: victims are chosen by a pass that treats nobody
        as leaving.
        """
        if not self._before:
            return snapshot
        there = {task.id for task in snapshot.tasks}
        staying = {task.id for task in snapshot.tasks if task.on and task.preemptible and not task.leaving}
        shown = set[str]()
        for waiting in {name for held in self._before.values() for name in held.waiting} & there:
            members = {name for name in staying & self._before.keys() if waiting in self._before[name].waiting}
            if self._is_held_back(members):
                shown |= members
        if not shown:
            return snapshot
        self._shown |= shown
        tasks = (replace(task, leaving=True) if task.id in shown else task for task in snapshot.tasks)
        return replace(snapshot, tasks=tuple(tasks))

    def hold_back(self, decision: PlacementDecision) -> set[str]:
        """Note the victims whose preemption is delayed; return the tasks that wait for any of them."""
        released, told = set(decision.release), set[str]()
        for waiting, victims in decision.gathered.items():
            members = {name for name in victims if name in released or name in self._shown}
            # Whom a pass took for leaving it may give to anybody: only for whom it was chosen does it go on to be.
            chosen = {name for name in members if name in released or waiting in self._before[name].waiting}
            if chosen and self._is_held_back(members):
                told.add(waiting)
                for name in chosen:
                    self._note(name, waiting, self._since(members))
        return told

    def _note(self, name: str, waiting: str, since: float) -> None:
        known = self.saving.get(name)
        if known is not None:
            self.saving[name] = HeldBack(min(known.since, since), known.waiting | {waiting})
            return
        self.saving[name] = HeldBack(since, frozenset({waiting}))
        if name not in self._before:
            _log.info("allocation %s is to leave, after a checkpoint that is near", name)

    def _since(self, members: Collection[str]) -> float:
        return min((self._before[name].since for name in members if name in self._before), default=self._turn.now)

    def _is_held_back(self, members: Collection[str]) -> bool:
        """Whether the preemption of victims that leave together is delayed: one of them is about to save."""
        near = self._turn.settings.checkpoint_near
        if near <= 0.0 or self._turn.now - self._since(members) > _LONGEST * near:
            return False
        return any(self._saves_soon(name) for name in members)

    def _saves_soon(self, name: str) -> bool:
        known = self._near.get(name)
        if known is None:
            known = self._near[name] = _saves_soon(self._turn, self._turn.session.get_one(AllocationRow, name))
        return known


def _saves_soon(unit: UnitOfWork, row: AllocationRow) -> bool:
    """Whether an allocation that is to be preempted should first be left to save."""
    if row.trial_id is None:
        return False
    times = [found.created_at for found in _LAST.all(unit.session, {"trial": row.trial_id, "run": row.run})]
    return is_near(times[::-1], unit.now, unit.settings.checkpoint_near)
