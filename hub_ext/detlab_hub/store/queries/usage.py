"""Slot time by day, user and kind."""

from __future__ import annotations

from functools import cache

from sqlalchemy import Table, case, func, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.tables import AllocationRow, SlotUsageRow

_USAGE: Table = SlotUsageRow.__table__


def add(s: Session, day: str, owner: str, kind: str, slot_seconds: float) -> None:
    """Add slot time to a day's sum."""
    row = {"day": day, "owner": owner, "kind": kind, "slot_seconds": slot_seconds}
    _adding(s.get_bind().dialect.name).run(s, row)


@cache
def _adding(dialect: str) -> PreparedStatement:
    """Make the statement, which runs at each end of an allocation, once."""
    insert = postgresql_insert if dialect == "postgresql" else sqlite_insert
    statement = insert(_USAGE)
    summed = {"slot_seconds": _USAGE.c.slot_seconds + statement.excluded.slot_seconds}
    statement = statement.on_conflict_do_update(index_elements=["day", "owner", "kind"], set_=summed)
    return PreparedStatement(statement, ("day", "owner", "kind", "slot_seconds"))


def between(s: Session, first: str, last: str, viewer: Person) -> list[SlotUsageRow]:
    """Return the sums of ended allocations.

    Args:
        s: A session.
        first: Day, YYYY-MM-DD.
        last: Day, included.
        viewer: Only of users whose usage this user may read.
    """
    query = select(SlotUsageRow).where(SlotUsageRow.day >= first, SlotUsageRow.day <= last)
    return list(s.scalars(query.where(visible(ObjectKind.USER, viewer, owner=SlotUsageRow.owner))))


def slot_seconds(s: Session, experiment_id: int, now: float) -> float:
    """Return for how long slots were assigned to an experiment's trials until now, or then, all slots together."""
    until = case((AllocationRow.ended_at < now, AllocationRow.ended_at), else_=now)
    query = select(func.sum((until - AllocationRow.assigned_at) * AllocationRow.slots_needed)).where(
        AllocationRow.experiment_id == experiment_id, AllocationRow.assigned_at <= now
    )
    return float(s.scalar(query) or 0.0)
