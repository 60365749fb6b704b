"""Where allocations run: a seat on each of their nodes, and the parts of those on several.

An allocation on one node is a gang of one: its only seat is in its own row, and no part is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, bindparam, or_, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import Prepared
from detlab_hub.store.session import StoreSession
from detlab_hub.store.tables import AllocationRow, PartRow


class Seat(NamedTuple):
    """What an allocation has of one node.

    Attributes:
        rank: Its place in the order of nodes; the chief's is 0.
        agent_id: The node.
        slots: Those that it has there.
        end: How its part ended (`EndKind`); None while it has not, and for an allocation on one node.
    """

    rank: int
    agent_id: str
    slots: list[str]
    end: str | None = None


def seats(s: Session, row: AllocationRow) -> list[Seat]:
    """The seats of an allocation in their order; none before it has a place."""
    if row.agent_id is None:
        return []
    if row.nodes < 2:
        return [Seat(0, row.agent_id, row.slots)]
    return [Seat(part.rank, part.agent_id, part.slots, part.end) for part in of_allocation(s, row)]


def seat_on(s: Session, row: AllocationRow, agent_id: str) -> Seat | None:
    """The seat of an allocation on a node, None if it has none there."""
    return next((seat for seat in seats(s, row) if seat.agent_id == agent_id), None)


def on_agent(agent_id: str) -> ColumnElement[bool]:
    """Of an allocation: it runs on this agent, or a part of it does."""
    return on_agents((agent_id,))


def on_agents(agent_ids: Collection[str]) -> ColumnElement[bool]:
    """Of an allocation: it runs on one of these agents, or a part of it does."""
    parts = select(PartRow.allocation_id).where(PartRow.agent_id.in_(agent_ids))
    return or_(AllocationRow.agent_id.in_(agent_ids), AllocationRow.id.in_(parts))


def on_agent_or_its_nodes(agent_id: str) -> ColumnElement[bool]:
    """Of an allocation: it runs on this agent or a node that it speaks for, or a part of it does."""
    below = f"{agent_id}/"
    parts = select(PartRow.allocation_id).where(
        or_(PartRow.agent_id == agent_id, PartRow.agent_id.startswith(below, autoescape=True))
    )
    whole = or_(AllocationRow.agent_id == agent_id, AllocationRow.agent_id.startswith(below, autoescape=True))
    return or_(whole, AllocationRow.id.in_(parts))


def of_allocation(s: Session, row: AllocationRow) -> Sequence[PartRow]:
    """The parts of an allocation in their order; none of one that is on one agent."""
    if row.nodes < 2:
        return ()
    return s.scalars(select(PartRow).where(PartRow.allocation_id == row.id).order_by(PartRow.rank)).all()


def on(s: Session, row: AllocationRow, agent_id: str) -> PartRow | None:
    """The part of an allocation that an agent has."""
    return next((part for part in of_allocation(s, row) if part.agent_id == agent_id), None)


def on_agent_in(s: Session, agent_id: str, states: Collection[str]) -> list[AllocationRow]:
    """The allocations in one of these states that an agent has, whole or a part of."""
    assert isinstance(s, StoreSession)
    found: list[AllocationRow] = s.those(AllocationRow, _on_agent_in(frozenset(states)), {"agent": agent_id})
    return found


@functools.cache
def _on_agent_in(states: frozenset[str]) -> Prepared:
    """Asked whenever an agent connects, and so compiled once: each state is a value of the statement."""
    parts = select(PartRow.allocation_id).where(PartRow.agent_id == bindparam("agent"))
    there = or_(AllocationRow.agent_id == bindparam("agent"), AllocationRow.id.in_(parts))
    in_one = or_(*(AllocationRow.state == state for state in sorted(states)))
    return Prepared(select(*AllocationRow.__table__.c).where(there, in_one))


def agents_with(s: Session, states: Collection[str]) -> set[str]:
    """The agents that have an allocation in one of these states, or a part of one that has not ended."""
    return {agent for query in _agents_with(frozenset(states)) for (agent,) in query.all(s, {}) if agent}


@functools.cache
def _agents_with(states: frozenset[str]) -> tuple[Prepared, Prepared]:
    """Asked at every tick, and so compiled once: each state is a value of the statements."""
    placed = or_(*(AllocationRow.state == state for state in sorted(states)))
    whole = select(AllocationRow.agent_id).where(placed, AllocationRow.agent_id.is_not(None), AllocationRow.nodes < 2)
    some = select(PartRow.agent_id).join(AllocationRow, AllocationRow.id == PartRow.allocation_id)
    return Prepared(whole), Prepared(some.where(placed, PartRow.end.is_(None)))


def places(s: Session, states: Collection[str]) -> list[tuple[str, str, list[str]]]:
    """(allocation, agent, slots) of each part of the allocations in these states, in order."""
    query = (
        select(PartRow.allocation_id, PartRow.agent_id, PartRow.slots)
        .join(AllocationRow, AllocationRow.id == PartRow.allocation_id)
        .where(AllocationRow.state.in_(states))
        .order_by(PartRow.allocation_id, PartRow.rank)
    )
    return [(row[0], row[1], row[2]) for row in s.execute(query)]
