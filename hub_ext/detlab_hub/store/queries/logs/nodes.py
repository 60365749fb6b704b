"""The agents on which output was written. A line of an attempt over several has its agent's place in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sqlalchemy import Select, and_, bindparam, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import AllocationRow, PartRow

Nodes: TypeAlias = Mapping[int, Mapping[int | None, str]]
"""Attempt -> node's place -> agent; an attempt on one agent has the place None."""


def _query() -> Select[int, str | None, int | None, str | None]:
    chosen = AllocationRow.run, AllocationRow.agent_id, PartRow.rank, PartRow.agent_id.label("part")
    several = and_(PartRow.allocation_id == AllocationRow.id, AllocationRow.nodes > 1)  # else no line names a node
    return select(*chosen).outerjoin(PartRow, several)


_OF_TRIAL = PreparedStatement(_query().where(AllocationRow.trial_id == bindparam("holder")))
_OF_TASK = PreparedStatement(_query().where(AllocationRow.task_id == bindparam("holder")))


def of(s: Session, holder: int | str) -> Nodes:
    """Return the agents of all attempts of a trial (its number) or a user task (its id)."""
    found: dict[int, dict[int | None, str]] = {}
    for row in (_OF_TASK if isinstance(holder, str) else _OF_TRIAL).all(s, {"holder": holder}):
        agent_id = row.agent_id if row.rank is None else row.part
        if agent_id is not None:
            found.setdefault(row.run, {})[row.rank] = agent_id
    return found


def runs_on(nodes: Nodes, agent_id: str) -> dict[int, frozenset[int | None]]:
    """Return the places of an agent, by attempt."""
    places = {run: frozenset(at for at, name in places.items() if name == agent_id) for run, places in nodes.items()}
    return {run: had for run, had in places.items() if had}
