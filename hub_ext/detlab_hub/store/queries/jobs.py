"""Allocations that hold slots or are pending, with their jobs' fields of the queue; and quotas."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import Table, bindparam, delete, func, or_, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    AllocationRow,
    ExperimentRow,
    QuotaRow,
    StorageQuotaRow,
    TaskRow,
    TrialRow,
    clean_text,
)

USER = "user"
GROUP = "group"


_QUOTAS: Table = QuotaRow.__table__
_QUOTA = PreparedStatement(
    select(_QUOTAS.c.kind, _QUOTAS.c.name, _QUOTAS.c.slots, _QUOTAS.c.set_by, _QUOTAS.c.set_at).where(
        _QUOTAS.c.kind == bindparam("kind"), _QUOTAS.c.name == bindparam("name")
    )
)


class QuotaLine(NamedTuple):
    """A quota, as read; see `QuotaRow`."""

    kind: str
    name: str
    slots: int
    set_by: str
    set_at: float


class Live(NamedTuple):
    """An allocation that has not ended, and its job."""

    allocation_id: str
    state: str
    slots: list[str]
    slots_needed: int
    requested_at: float
    owner: str
    experiment_id: int | None
    trial_id: int | None
    task_id: str | None
    idx: int | None
    """Of its trial."""
    kind: str | None
    """Of its user task."""
    name: str
    priority: int
    weight: float
    max_slots: int | None
    pool: str
    position: float | None
    submitted_at: float
    groups: list[str]
    workspace_id: int | None = None

    @property
    def pending(self) -> bool:
        """Whether it is pending."""
        return self.state == AllocationState.PENDING

    @property
    def held(self) -> int:
        """Slots that it holds."""
        return 0 if self.pending else len(self.slots)


def waiting_elsewhere(s: Session, allocations: Sequence[str]) -> dict[str, str]:
    """Return allocation -> what it waits for in the queue of a batch system, for those of these that do."""
    found: dict[str, str] = {}
    for part in chunks(allocations):
        query = select(AllocationRow.id, AllocationRow.stage_message).where(
            AllocationRow.id.in_(part),
            AllocationRow.state == AllocationState.ASSIGNED,
            AllocationRow.stage_message != "",
        )
        found.update((name, message) for name, message in s.execute(query))
    return found


def _of_job(name: str) -> tuple[object, object]:
    return getattr(ExperimentRow, name), getattr(TaskRow, name)


def live(s: Session, *, pending_only: bool = False) -> Sequence[Live]:
    """Return all allocations that have not ended, or only the pending ones."""
    columns = [func.coalesce(*_of_job(name)) for name in ("name", "priority", "weight", "resource_pool", "created_at")]
    name, priority, weight, pool, submitted_at = columns
    query = (
        select(
            AllocationRow.id,
            AllocationRow.state,
            AllocationRow.slots,
            AllocationRow.slots_needed,
            AllocationRow.requested_at,
            AllocationRow.owner,
            AllocationRow.experiment_id,
            AllocationRow.trial_id,
            AllocationRow.task_id,
            TrialRow.idx,
            TaskRow.kind,
            name,
            priority,
            weight,
            func.coalesce(*_of_job("max_slots")),
            pool,
            func.coalesce(*_of_job("position")),
            submitted_at,
            func.coalesce(*_of_job("workspace_id")),
            ExperimentRow.owner_groups,
            TaskRow.owner_groups,
        )
        .outerjoin(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
        .outerjoin(TrialRow, TrialRow.id == AllocationRow.trial_id)
        .outerjoin(TaskRow, TaskRow.id == AllocationRow.task_id)
        .where(or_(ExperimentRow.id.is_not(None), TaskRow.id.is_not(None)))
    )
    if pending_only:
        query = query.where(AllocationRow.state == AllocationState.PENDING)
    else:
        query = query.where(AllocationRow.state != AllocationState.TERMINATED)
    found: list[Live] = []
    for row in s.execute(query):
        facts: list[Any] = list(row)
        of_task, of_experiment, place = facts.pop(), facts.pop(), facts.pop()
        facts += [of_task or [] if of_experiment is None else of_experiment, place]
        found.append(Live(*facts))
    return found


# --- quotas ---------------------------------------------------------------------------------------------------


def quotas(s: Session, viewer: Person) -> list[QuotaRow]:
    """List the quotas that a user may read, users first."""
    shown = visible(ObjectKind.QUOTA, viewer, named=(QuotaRow.kind, QuotaRow.name))
    return list(s.scalars(select(QuotaRow).where(shown).order_by(QuotaRow.kind.desc(), QuotaRow.name)))


def quotas_of(s: Session, user: str, groups: Collection[str]) -> list[QuotaLine]:
    """List the quotas that bind a user of some groups: the user's, then those of the groups by their names."""
    s.flush()
    asked = [(USER, clean_text(user)), *((GROUP, name) for name in sorted(set(map(clean_text, groups))))]
    found = (_QUOTA.first(s, {"kind": kind, "name": name}) for kind, name in asked)
    return [QuotaLine(*row) for row in found if row is not None]


def storage_quotas(s: Session, viewer: Person) -> list[StorageQuotaRow]:
    """List the quotas of bytes that a user may read, users first."""
    shown = visible(ObjectKind.QUOTA, viewer, named=(StorageQuotaRow.kind, StorageQuotaRow.name))
    query = select(StorageQuotaRow).where(shown)
    return list(s.scalars(query.order_by(StorageQuotaRow.kind.desc(), StorageQuotaRow.name)))


def storage_quotas_of(s: Session, user: str, groups: Collection[str]) -> list[StorageQuotaRow]:
    """List the quotas of bytes that bind a user of some groups: the user's, then those of the groups by their names."""
    asked = [(USER, clean_text(user)), *((GROUP, name) for name in sorted(set(map(clean_text, groups))))]
    found = (s.get(StorageQuotaRow, key) for key in asked)
    return [row for row in found if row is not None]


def remove_quota(s: Session, kind: str, name: str, what: Literal["slots", "storage"] | None = None) -> bool:
    """Remove a quota of slots, of bytes, or both; return False if there was none."""
    tables: dict[str, type[QuotaRow] | type[StorageQuotaRow]] = {"slots": QuotaRow, "storage": StorageQuotaRow}
    removed = 0
    for table in tables.values() if what is None else (tables[what],):
        query = delete(table).where(table.kind == kind, table.name == clean_text(name))
        removed += getattr(s.execute(query), "rowcount", 0)
    return bool(removed)


def observed(s: Session) -> dict[int, float]:
    """Return how many seconds the completed trials of each experiment took, of experiments that have not ended."""
    took = TrialRow.ended_at - TrialRow.started_at
    query = select(TrialRow.experiment_id, func.avg(took)).where(
        TrialRow.experiment_id.in_(
            select(AllocationRow.experiment_id).where(AllocationRow.state != AllocationState.TERMINATED)
        ),
        TrialRow.state == TrialState.COMPLETED.value,
        took > 0,
    )
    return {number: float(seconds) for number, seconds in s.execute(query.group_by(TrialRow.experiment_id))}
