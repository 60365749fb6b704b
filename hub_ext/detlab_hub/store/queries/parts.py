"""The parts of allocations, one for each node. An allocation on one node is a gang of one."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import ColumnElement, bindparam, or_, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.session import StoreSession
from detlab_hub.store.tables import AllocationRow, PartRow


def of_allocation(s: Session, row: AllocationRow) -> list[PartRow]:
    """List the parts of an allocation in their order, the chief's first; none before it is placed."""
    found = (s.get(PartRow, (row.id, rank)) for rank in range(row.nodes))
    return [part for part in found if part is not None]


def on(s: Session, row: AllocationRow, agent_id: str) -> list[PartRow]:
    """List the parts of an allocation that an agent has: several only where it hands them to a batch system."""
    return [part for part in of_allocation(s, row) if part.agent_id == agent_id]


def on_agent(agent_id: str) -> ColumnElement[bool]:
    """Return the condition that a part of an allocation is on this agent."""
    return on_agents((agent_id,))


def on_agents(agent_ids: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a part of an allocation is on one of these agents."""
    return AllocationRow.id.in_(select(PartRow.allocation_id).where(PartRow.agent_id.in_(agent_ids)))


def on_agent_or_its_nodes(agent_id: str) -> ColumnElement[bool]:
    """Return the condition that a part of an allocation is on this agent or on a node that it represents."""
    below = PartRow.agent_id.startswith(f"{agent_id}/", autoescape=True)
    return AllocationRow.id.in_(select(PartRow.allocation_id).where(or_(PartRow.agent_id == agent_id, below)))


def on_agent_in(s: Session, agent_id: str, states: Collection[str]) -> list[AllocationRow]:
    """List the allocations in one of these states of which an agent has a part.

    The session holds their parts then, so that `of_allocation` need not read them.
    """
    assert isinstance(s, StoreSession)
    whole, pieces = _on_agent_in(frozenset(states))
    found: list[AllocationRow] = s.those(AllocationRow, whole, {"agent": agent_id})
    s.those(PartRow, pieces, {"agent": agent_id})
    return found


@functools.cache
def _on_agent_in(states: frozenset[str]) -> tuple[PreparedStatement, PreparedStatement]:
    """Make the statements, which run whenever an agent connects, once: each state is a value of them."""
    there = select(PartRow.allocation_id).where(PartRow.agent_id == bindparam("agent"))
    whole = AllocationRow.id.in_(there), _in_one_of(states)
    pieces = PartRow.allocation_id.in_(select(AllocationRow.id).where(*whole))
    return PreparedStatement(select(*AllocationRow.__table__.c).where(*whole)), PreparedStatement(
        select(*PartRow.__table__.c).where(pieces)
    )


def agents_with(s: Session, states: Collection[str]) -> set[str]:
    """Return the agents with a part that has not ended, of an allocation in one of these states."""
    return {agent for (agent,) in _agents_with(frozenset(states)).all(s, {})}


@functools.cache
def _agents_with(states: frozenset[str]) -> PreparedStatement:
    """Make the statement, which runs at every tick, once: each state is a value of it."""
    held = select(PartRow.agent_id).join(AllocationRow, AllocationRow.id == PartRow.allocation_id)
    return PreparedStatement(held.where(_in_one_of(states), PartRow.end.is_(None)))


def _in_one_of(states: Iterable[str]) -> ColumnElement[bool]:
    return or_(*(AllocationRow.state == state for state in sorted(states)))


def places(s: Session, allocations: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (allocation, agent, slots) of each part of these allocations, those of each in their order."""
    wanted = select(PartRow.allocation_id, PartRow.agent_id, PartRow.slots)
    for names in chunks(list(allocations)):
        there = PartRow.allocation_id.in_(names)
        for row in s.execute(wanted.where(there).order_by(PartRow.allocation_id, PartRow.rank)):
            yield row[0], row[1], row[2]


def held_on(s: Session, agents: Collection[str], states: Collection[str]) -> dict[str, set[str]]:
    """Return which slots allocations in one of these states hold of some agents."""
    found: dict[str, set[str]] = {}
    held = select(PartRow.agent_id, PartRow.slots).join(AllocationRow, AllocationRow.id == PartRow.allocation_id)
    for names in chunks(list(agents)):
        for agent, slots in s.execute(held.where(PartRow.agent_id.in_(names), AllocationRow.state.in_(states))):
            found.setdefault(agent, set()).update(slots)
    return found
