"""What agents offer, as the scheduler sees it, and what an allocation asks of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from detlab.schemas.wire import SlotView
from detlab_hub.backends.base import Node, node_of
from detlab_hub.core.scheduling import ANYWHERE, UNBOUNDED, Agent, AgentState, Constraints, Task, TaskState
from detlab_hub.core.scheduling.fitting import Kind, suits
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
        millicpus=row.millicpus,
        host_memory=row.host_memory,
    )


def without(node: Node, off: Collection[str]) -> Node:
    """A node without the slots that an administrator closed."""
    return replace(node, slots=tuple(slot for slot in node.slots if slot not in off))


def agent_of(node: Node, state: AgentState = AgentState.ENABLED) -> Agent:
    """A node as the scheduler sees it.

    Args:
        node: It.
        state: What an administrator decided of it.
    """
    if node.suspect:
        state = AgentState.SUSPECT
    return Agent(
        id=node.id,
        slots=len(node.slots),
        max_zero_slot_tasks=node.max_zero_slot_tasks,
        state=state,
        labels=dict(node.labels),
        slot_type=node.slot_type,
        gpu=node.gpu,
        memory=node.memory,
        millicpus=UNBOUNDED if node.millicpus is None else node.millicpus,
        host_memory=UNBOUNDED if node.host_memory is None else node.host_memory,
        runtimes=frozenset(node.runtimes),
        serves_user=node.serves_user,
    )


def beside(dated: Sequence[Agent], task: Task) -> Task:
    """A request in a pool with agents that may have no part of a trial over several: those that are not upgraded yet.

    Where one of them could have all of its slots it stays on one agent for as long as that is so. Else they are of no
    use to it, and it is spread over the others.

    Args:
        dated: Those agents.
        task: The request; what runs is left as it is.
    """
    if task.single_node or task.slots < 2 or task.state is not TaskState.PENDING:
        return task
    kind = Kind(task.constraints, task.runtime, task.user)
    whole = (agent for agent in dated if agent.state is AgentState.ENABLED and agent.id not in task.blocked_nodes)
    if any(agent.slots >= task.slots and suits(kind, agent) for agent in whole):
        return replace(task, single_node=True)
    return replace(task, blocked_nodes=task.blocked_nodes.union(agent.id for agent in dated))
