"""Slot time by day, user and kind."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import NamedTuple

from sqlalchemy import ColumnElement, Table, bindparam, case, func, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from detlab.schemas.wire import ExperimentState
from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    AllocationRow,
    CostCapRow,
    ExperimentRow,
    FadedUsageRow,
    ProjectCostRow,
    SlotUsageRow,
)

_USAGE: Table = SlotUsageRow.__table__
_HOUR = 3600.0
_FADED = PreparedStatement(
    select(FadedUsageRow.owner, FadedUsageRow.slot_seconds, FadedUsageRow.at).where(
        FadedUsageRow.pool == bindparam("pool")
    )
)


def add(s: Session, day: str, owner: str, kind: str, slot_seconds: float, cost: float = 0.0) -> None:
    """Add slot time, and what it cost, to a day's sums."""
    row = {"day": day, "owner": owner, "kind": kind, "slot_seconds": slot_seconds, "cost": cost}
    _adding(s.get_bind().dialect.name).run(s, row)


@cache
def _adding(dialect: str) -> PreparedStatement:
    """Make the statement, which runs at each end of an allocation, once."""
    insert = postgresql_insert if dialect == "postgresql" else sqlite_insert
    statement = insert(_USAGE)
    summed = {name: _USAGE.c[name] + statement.excluded[name] for name in ("slot_seconds", "cost")}
    statement = statement.on_conflict_do_update(index_elements=["day", "owner", "kind"], set_=summed)
    return PreparedStatement(statement, ("day", "owner", "kind", "slot_seconds", "cost"))


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


# --- use that fades


class Faded(NamedTuple):
    """What a user has used of a pool, as of a time: it fades from then on."""

    owner: str
    slot_seconds: float
    at: float


def faded(s: Session, pool: str) -> list[Faded]:
    """Return what users have used of a pool, without what runs."""
    return [Faded(*row) for row in _FADED.all(s, {"pool": pool})]


def put_faded(s: Session, pool: str, owner: str, slot_seconds: float, now: float) -> None:
    """Write down what a user has used of a pool as of now."""
    s.merge(FadedUsageRow(pool=pool, owner=owner, slot_seconds=slot_seconds, at=now))


def faded_of(s: Session, pool: str, owner: str) -> Faded | None:
    """Return what a user has used of a pool, None if nothing was written down."""
    row = s.get(FadedUsageRow, (pool, owner))
    return None if row is None else Faded(row.owner, row.slot_seconds, row.at)


# --- costs


class RunningCost(NamedTuple):
    """An allocation with a price that has slots now."""

    owner: str
    experiment_id: int | None
    project_id: int | None
    slots: int
    assigned_at: float
    price: float

    def since(self, begin: float, now: float) -> float:
        """Return what it has cost from a time, in seconds since the epoch, until now."""
        return max(0.0, now - max(begin, self.assigned_at)) / _HOUR * self.slots * self.price


def running_costs(s: Session, placed: Collection[str]) -> list[RunningCost]:
    """Return the allocations that cost something and have slots: those in some states."""
    columns = (
        AllocationRow.owner,
        AllocationRow.experiment_id,
        ExperimentRow.project_id,
        AllocationRow.slots_needed,
        AllocationRow.assigned_at,
        AllocationRow.price,
    )
    query = select(*columns).outerjoin(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
    query = query.where(
        AllocationRow.state.in_(placed), AllocationRow.price > 0, AllocationRow.assigned_at.is_not(None)
    )
    return [RunningCost(*row[:4], row[4] or 0.0, row[5]) for row in s.execute(query)]


def cost_of_experiment(s: Session, experiment_id: int, now: float) -> float:
    """Return what an experiment's trials have cost until now."""
    until = case((AllocationRow.ended_at < now, AllocationRow.ended_at), else_=now)
    span = (until - AllocationRow.assigned_at) / _HOUR * AllocationRow.slots_needed * AllocationRow.price
    query = select(func.sum(span)).where(
        AllocationRow.experiment_id == experiment_id, AllocationRow.price > 0, AllocationRow.assigned_at <= now
    )
    return max(0.0, float(s.scalar(query) or 0.0))


def costs_of_users(s: Session, owners: Collection[str], month: str) -> dict[str, float]:
    """Return what ended allocations of some users cost in a month, YYYY-MM."""
    row, found = SlotUsageRow, dict[str, float]()
    query = select(row.owner, func.sum(row.cost)).where(row.day.between(f"{month}-01", f"{month}-31"))
    for some in chunks(sorted(owners)):
        found |= {one[0]: float(one[1]) for one in s.execute(query.where(row.owner.in_(some)).group_by(row.owner))}
    return found


def costs_of_projects(s: Session, projects: Collection[int], month: str) -> dict[int, float]:
    """Return what ended allocations of the experiments of some projects cost in a month, YYYY-MM."""
    row, found = ProjectCostRow, dict[int, float]()
    query = select(row.project_id, row.cost).where(row.month == month)
    for some in chunks(sorted(projects)):
        found |= {one[0]: one[1] for one in s.execute(query.where(row.project_id.in_(some)))}
    return found


def add_project_cost(s: Session, project_id: int, month: str, cost: float) -> None:
    """Add to what a project costs in a month."""
    row = s.get(ProjectCostRow, (project_id, month))
    if row is None:
        s.add(ProjectCostRow(project_id=project_id, month=month, cost=cost))
        s.flush()
    else:
        row.cost += cost


def caps(s: Session) -> list[CostCapRow]:
    """Return the caps of cost, by kind and name."""
    return list(s.scalars(select(CostCapRow).order_by(CostCapRow.kind, CostCapRow.name)))


def active(s: Session, kind: str, name: str) -> list[int]:
    """Return the active experiments under a cap that run on the cluster."""
    column = {"user": ExperimentRow.owner, "project": ExperimentRow.project_id, "experiment": ExperimentRow.id}[kind]
    return _on_cluster(s, column == (name if kind == "user" else int(name)))


def active_of(s: Session, experiments: Collection[int]) -> list[int]:
    """Return those of some experiments that are active and run on the cluster."""
    return [number for some in chunks(sorted(experiments)) for number in _on_cluster(s, ExperimentRow.id.in_(some))]


def _on_cluster(s: Session, which: ColumnElement[bool]) -> list[int]:
    query = select(ExperimentRow.id, ExperimentRow.config).where(ExperimentRow.state == ExperimentState.ACTIVE.value)
    found = s.execute(query.where(which).order_by(ExperimentRow.id))
    return [number for number, config in found if not config.get("unmanaged")]
