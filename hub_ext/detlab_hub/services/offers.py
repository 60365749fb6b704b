"""What agents offer, as the scheduler sees it, and what an allocation asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.schemas.wire import SlotView
from detlab_hub.backends.base import Node, node_of
from detlab_hub.core.scheduling import ANYWHERE, Agent, AgentState, Constraints
from detlab_hub.store.tables import AgentRow


def constraints_of(raw: Mapping[str, Any] | None) -> Constraints:
    """What a stored request asks of its agents."""
    if not raw:
        return ANYWHERE
    labels = frozenset((str(name), str(value)) for name, value in (raw.get("labels") or {}).items())
    return Constraints(raw.get("slot_type") or "", raw.get("gpu") or "", int(raw.get("memory") or 0), labels)


def known_node(row: AgentRow) -> Node:
    """An agent that is not here, as it was when it was."""
    return node_of(
        row.id,
        [SlotView.model_validate(slot) for slot in row.slots],
        serves_user=row.serves_user,
        suspect=True,
        runtimes=row.runtimes,
        pool=row.pool,
        labels=row.labels,
        max_zero_slot_tasks=row.max_zero_slot_tasks,
    )


def agent_of(node: Node, *, closed: bool = False) -> Agent:
    """A node as the scheduler sees it.

    Args:
        node: It.
        closed: An administrator lets nothing new start on it.
    """
    state = AgentState.SUSPECT if node.suspect else AgentState.DISABLED if closed else AgentState.ENABLED
    return Agent(
        id=node.id,
        slots=len(node.slots),
        max_zero_slot_tasks=node.max_zero_slot_tasks,
        state=state,
        labels=dict(node.labels),
        slot_type=node.slot_type,
        gpu=node.gpu,
        memory=node.memory,
        runtimes=frozenset(node.runtimes),
        serves_user=node.serves_user,
    )
