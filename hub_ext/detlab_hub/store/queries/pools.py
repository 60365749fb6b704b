"""How full the pools are: counted by the database, as thousands of tasks may be pending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState
from detlab_hub.store.tables import AgentRow, AllocationRow, ExperimentRow, TaskRow


class Queued(NamedTuple):
    """The pending tasks of a pool."""

    pool: str
    tasks: int
    slots: int


class HeldSlots(NamedTuple):
    """The slots of an allocation, and their agent."""

    pool: str | None
    """Of its agent; None if the agent is no longer known."""
    slots: list[str]


def queued(s: Session) -> list[Queued]:
    """Count the pending tasks and their slots, by pool."""
    pool = func.coalesce(ExperimentRow.resource_pool, TaskRow.resource_pool)
    query = (
        select(pool, func.count(), func.sum(AllocationRow.slots_needed))
        .outerjoin(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
        .outerjoin(TaskRow, TaskRow.id == AllocationRow.task_id)
        .where(AllocationRow.state == AllocationState.PENDING)
        .group_by(pool)
    )
    return [Queued(*row) for row in s.execute(query)]


def held(s: Session, placed: Sequence[AllocationState]) -> list[HeldSlots]:
    """List what each placed allocation in one of these states holds."""
    query = (
        select(AgentRow.pool, AllocationRow.slots)
        .select_from(AllocationRow)
        .outerjoin(AgentRow, AgentRow.id == AllocationRow.agent_id)
        .where(AllocationRow.state.in_(placed))
    )
    return [HeldSlots(*row) for row in s.execute(query)]


def closed(s: Session) -> frozenset[str]:
    """Return the agents that take no new work."""
    return frozenset(s.scalars(select(AgentRow.id).where(AgentRow.enabled.is_(False))))
