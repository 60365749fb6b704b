"""Quotas of bytes: checked when an experiment is submitted; trials that run are warned and never refused.

A commit of a checkpoint is always taken, whatever is stored already: what a trial has computed is not to be lost. So a
quota bounds what is begun, not what is written, and says so early: from `NEARLY` of it on, at each submit, in the log
of the trial that stores, and in its experiment.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Problem
from detlab.schemas.wire import LogRecord
from detlab.schemas.wire.storage import size_text
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import jobs
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.queries.storage import usage
from detlab_hub.store.tables import ExperimentRow, StorageQuotaRow

NEARLY = 0.8
"""The part of a quota from which on it is warned of."""
WARNED = "the storage quota of "
"""Begins the warning in experiments."""
SHARE = 50.0
"""Sums for warnings take at most one part in so many of the time, however much there is to sum up."""


class StorageFull(Conflict):
    """A quota of bytes is used up: nothing new is begun."""

    default_code = "quota.storage"


@dataclass(frozen=True)
class QuotaStanding:
    """How much of a quota of bytes is used."""

    kind: str
    name: str
    used: int
    limit: int

    @property
    def level(self) -> int:
        """0: below the warning; 1: nearly used; 2: used up."""
        return 2 if self.used >= self.limit else int(self.used >= NEARLY * self.limit)

    @property
    def notice(self) -> str:
        """What readers of an experiment may know, who need not know how much its owner stores."""
        return f"{WARNED}{self.kind} {self.name} is {'used up' if self.level == 2 else 'nearly used up'}"

    @property
    def said(self) -> str:
        """The same with numbers, for those whom the quota binds."""
        part = f", {self.used / self.limit:.0%}" if self.limit else ""
        return f"{self.notice}: {size_text(self.used)} of {size_text(self.limit)}{part}"


def of_rows(s: Session, rows: Sequence[StorageQuotaRow]) -> list[tuple[StorageQuotaRow, QuotaStanding]]:
    """Return how much of each quota is used."""
    groups = usage.of_groups(s, [row.name for row in rows if row.kind == jobs.GROUP])
    found = []
    for row in rows:
        use = groups[row.name] if row.kind == jobs.GROUP else usage.of_user(s, row.name)
        found.append((row, QuotaStanding(row.kind, row.name, use.used, row.size)))
    return found


def standings(s: Session, user: str, groups: Collection[str]) -> list[QuotaStanding]:
    """Return the quotas of bytes that bind a user of some groups, with what is used of each."""
    return [one for _, one in of_rows(s, jobs.storage_quotas_of(s, user, groups))]


async def check(context: ServiceContext, caller: Caller, config: dict[str, Any]) -> list[Problem]:
    """Return warnings about quotas that are nearly used up.

    Raises:
        StorageFull: One is used up, and the experiment would store checkpoints.
    """
    if config.get("unmanaged"):
        return []

    def read(s: Session) -> tuple[list[QuotaStanding], list[tuple[int, str, int]]]:
        found = standings(s, caller.name, caller.groups)
        full = any(one.level == 2 for one in found)
        return found, usage.largest(s, caller.name, 3) if full else []

    found, largest = await context.read(read)
    full = next((one for one in found if one.level == 2), None)
    if full is not None:
        raise StorageFull(f"no new experiment: {full.said}", hint=_what_helps(largest))
    path = "checkpoint_storage"
    hint = "see `det storage usage --by experiment`; `det experiment gc ID` frees what a policy does not keep"
    return [Problem(path, said, hint, "warning") for said in (one.said for one in found if one.level)]


async def check_room(context: ServiceContext, user: str, groups: Collection[str], size: int) -> None:
    """Check that a file of a run may be stored.

    Raises:
        StorageFull: A quota of bytes that binds its owner would be passed.
    """

    def read(s: Session) -> tuple[list[QuotaStanding], list[tuple[int, str, int]]]:
        found = standings(s, user, groups)
        full = any(one.used + size > one.limit for one in found)
        return found, usage.largest(s, user, 3) if full else []

    found, largest = await context.read(read)
    full = next((one for one in found if one.used + size > one.limit), None)
    if full is not None:
        raise StorageFull(f"this file of {size_text(size)} has no room: {full.said}", hint=_what_helps(largest))


def room_left(s: Session, user: str, groups: Collection[str]) -> float:
    """Return the bytes until the first quota that binds a user is used up; infinity: none binds them."""
    return min((float(one.limit - one.used) for one in standings(s, user, groups)), default=math.inf)


def _what_helps(largest: Sequence[tuple[int, str, int]]) -> str:
    free = "`det experiment gc ID` and `det checkpoint delete UUID` free bytes; an administrator may raise the quota."
    if not largest:
        return f"See `det storage usage --by group` and `det quota list`. {free}"
    most = ", ".join(f"{key} ({size_text(size)})" for key, _, size in largest)
    return f"Your experiments with most bytes: {most}; see `det storage usage --by experiment`. {free}"


class StorageWarnings:
    """Warns a trial in its log, and in its experiment, when what it has stored brings a quota near its end."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._not_before: dict[str, float] = {}

    async def after_commit(self, task: TaskCaller) -> None:
        """Compare what is stored with the quotas that bind the experiment, and warn once for each level of each.

        For a user without a quota this costs a look at the quotas. Else the sums are spared while they would take more
        than a part of the time; a later commit makes them.
        """
        now = self._context.clock()

        def read(s: Session) -> tuple[list[str] | None, str, float]:
            experiment = s.get(ExperimentRow, task.experiment_id)
            if experiment is None or self._not_before.get(experiment.owner, 0.0) > now:
                return None, "", 0.0
            began = self._context.clock()
            found = standings(s, experiment.owner, experiment.owner_groups)
            told = [one.notice for one in found if one.level]
            before = [said for said in experiment.warnings if said.startswith(WARNED)]
            took = self._context.clock() - began if found else 0.0
            return (told if told != before else None), experiment.owner, took

        told, owner, took = await self._context.read(read)
        if took:
            self._not_before[owner] = now + SHARE * took
        if told is not None:
            await self._context.write(lambda unit: _warn(unit, task, told))


def _warn(unit: UnitOfWork, task: TaskCaller, told: Sequence[str]) -> None:
    row, trial = current_attempt(unit.session, task)
    experiment = unit.experiment(trial.experiment_id)
    new = [said for said in told if said not in experiment.warnings]
    experiment.warnings = [*(said for said in experiment.warnings if not said.startswith(WARNED)), *told]
    unit.changed_experiment(experiment.id)
    if not new:
        return
    hint = "this trial stores on, but new experiments are refused once it is used up: see `det storage usage`"
    records = [
        LogRecord(seq=0, time=unit.now, stdtype="launcher", level="WARNING", text=f"detlab: {said}; {hint}")
        for said in new
    ]
    lines.append(unit.session, trial.id, row.run, records)
    unit.outbox.wake_logs.add(trial.id)
