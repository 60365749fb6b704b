"""What agents offer, as the scheduler sees it, and what an allocation requests of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from detlab.errors import Conflict
from detlab.schemas.shares import device_of, divide
from detlab.schemas.wire import Hello, SlotView
from detlab_hub.backends.base import Node, node_of
from detlab_hub.core.scheduling import (
    ANYWHERE,
    UNBOUNDED,
    Agent,
    AgentState,
    Constraints,
    Pools,
    SchedulerTask,
    TaskState,
    preferences_of,
    rule_of,
)
from detlab_hub.core.scheduling.fit.shapes import AgentNeeds, suits
from detlab_hub.store.tables import AgentRow

_log = logging.getLogger(__name__)


def kind_of_slots(agent: AgentRow | None) -> str:
    """Return the kind of an agent's slots, for config values by kind: cuda, rocm or cpu."""
    kinds = set() if agent is None else {slot.get("kind", "cpu") for slot in agent.slots}
    return next((kind for kind in ("cuda", "rocm") if kind in kinds), "cpu")


def constraints_of(raw: Mapping[str, Any] | None) -> Constraints:
    """Return the constraints of a stored request on its agents."""
    if not raw:
        return ANYWHERE
    labels = frozenset((str(name), str(value)) for name, value in (raw.get("labels") or {}).items())
    affinity = raw.get("affinity") or {}
    return Constraints(
        slot_type=raw.get("slot_type") or "",
        gpu=raw.get("gpu") or "",
        memory=int(raw.get("memory") or 0),
        labels=labels,
        required=frozenset(map(rule_of, affinity.get("required") or ())),
        preferred=preferences_of(affinity.get("preferred") or ()),
        requires=frozenset(map(str, raw.get("requires") or ())),
    )


def known_node(row: AgentRow) -> Node:
    """Return the node of an agent that is not connected, as its row describes it."""
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


def with_shares(hello: Hello, pools: Pools) -> Hello:
    """Return an agent's offer by the settings of its pool: each device whole, or divided into shares.

    Raises:
        Conflict: A device has a name that is reserved for shares.
    """
    odd = next((slot.id for slot in hello.slots if device_of(slot.id) != slot.id), None)
    if odd is not None:
        raise Conflict(f"an agent cannot call a slot {odd[:80]!r}: a dot and a number stand for a share of a device")
    parts = pools.shares_in(hello.pool)
    if parts > 1 and not hello.shares:
        _log.warning("agent %s is of an older version: its devices are not shared", hello.agent_id)
        parts = 1
    return hello.model_copy(update={"slots": divide(hello.slots, parts)})


def without(node: Node, off: Collection[str]) -> Node:
    """Return a node without the slots that an administrator closed."""
    return replace(node, slots=tuple(slot for slot in node.slots if not is_off(slot, off)))


def is_off(slot: str, off: Collection[str]) -> bool:
    """Whether a slot is closed: itself, or its device, if that was closed when it was one slot."""
    return slot in off or device_of(slot) in off


def usable(
    nodes: Sequence[Node], off: Mapping[str, Collection[str]], held: Iterable[tuple[str, Collection[str]]]
) -> list[Node]:
    """Return the nodes with the slots that can be assigned or are held.

    Left out are closed slots, those whose devices others use, and shares of a device of which a task still holds a slot
    that no longer exists: the pool has begun to divide its devices, or divides them otherwise than before.

    Args:
        nodes: All, with all of their slots.
        off: Slots that administrators closed, by agent.
        held: Slots that are held, by agent.
    """
    names = {node.id: frozenset(node.slots) for node in nodes}
    stale: dict[str, set[str]] = {}
    for agent, slots in held:
        if agent in names and not names[agent].issuperset(slots):
            stale.setdefault(agent, set()).update(device_of(slot) for slot in slots if slot not in names[agent])
    return [
        without(node, {*node.taken, *off.get(node.id, ()), *stale.get(node.id, ())})
        if node.taken or node.id in off or node.id in stale
        else node
        for node in nodes
    ]


def agent_of(node: Node, state: AgentState = AgentState.ENABLED) -> Agent:
    """Return a node as the scheduler sees it.

    Args:
        node: The node.
        state: The state that an administrator set; a suspect node is suspect whatever it is.
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
        enforces=node.enforces,
    )


def beside(dated: Sequence[Agent], task: SchedulerTask) -> SchedulerTask:
    """Adapt a request to a pool with agents that cannot take part in a trial over several: they are not upgraded yet.

    If one of them has enough slots for the whole request, it stays on one agent for as long as that is so. Otherwise
    they are of no use to it, and it is spread over the others.

    Args:
        dated: Those agents.
        task: The request; a running task is returned unchanged.
    """
    if task.single_node or task.slots < 2 or task.state is not TaskState.PENDING:
        return task
    kind = AgentNeeds(task.constraints, task.runtime, task.user)
    whole = (agent for agent in dated if agent.state is AgentState.ENABLED and agent.id not in task.blocked_nodes)
    if any(agent.slots >= task.slots and suits(kind, agent) for agent in whole):
        return replace(task, single_node=True)
    return replace(task, blocked_nodes=task.blocked_nodes.union(agent.id for agent in dated))
