"""Agents that speak for many nodes: their Hello is one for each node, and their connection several.

To everything else such a node is an agent of its own, called `AGENT/NODE`. No agent can enrol under such a name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from detlab.errors import Conflict
from detlab.schemas.wire import (
    ExitAck,
    Heartbeat,
    Hello,
    Kill,
    Launch,
    MasterMessage,
    MoreNodes,
    NodeHello,
    SlotView,
    TaskExited,
    TaskStage,
    TaskStarted,
    Welcome,
)
from detlab_hub.backends.connection import Send
from detlab_hub.services.agents.connection import AgentSession, node_id

_NAME_CHARS = 100


def is_spoken_for(name: str) -> bool:
    """Whether this is a node that an agent speaks for, not an agent."""
    return "/" in name


def check_nodes(nodes: Sequence[NodeHello], there: Collection[str] = ()) -> None:
    """Check that nodes can be told apart and managed by their names, also from those that are there.

    Raises:
        Conflict: A name occurs twice or is not valid.
    """
    seen = set(there)
    for node in nodes:
        name = node.name
        if not 0 < len(name) <= _NAME_CHARS or not name.isprintable() or set(name) & set("/\\") or name in {".", ".."}:
            raise Conflict(f"the agent's Hello is refused: {name[:80]!r} cannot name a node")
        if name in seen:
            raise Conflict(f"the agent's Hello is refused: node {name!r} is there twice")
        seen.add(name)


def within(hello: Hello, limit: int) -> Hello:
    """Return a Hello without the nodes beyond the limit, and say so in its note: an agent is not cut off for its size.

    Those with tasks are the last to be left out.
    """
    count = max(hello.node_count, len(hello.nodes))
    if count <= limit:
        return hello
    busy = {task.node for task in hello.tasks}
    first = sorted(hello.nodes, key=lambda node: node.name not in busy)[:limit]
    note = f"{count - limit} of its {count} nodes are left out: c.DetHub.agent_nodes_limit is {limit}"
    return hello.model_copy(update={"nodes": first, "note": note})


def each_node(hello: Hello) -> Iterator[tuple[str, Hello]]:
    """Yield the Hello of the agent's own node, named "", and of each other one; what is away is in the first alone."""
    tasks: dict[str, list[object]] = {}
    for task in hello.tasks:
        tasks.setdefault(task.node, []).append(task)
    away = [node for node in hello.nodes if node.away]
    own = hello.model_copy(update={"nodes": away})
    yield "", own.model_copy(update={"tasks": tasks.get("", [])})
    own = own.model_copy(update={"nodes": []})
    for node in hello.nodes:
        if node.away:
            continue
        most = own.max_zero_slot_tasks if node.max_zero_slot_tasks is None else node.max_zero_slot_tasks
        yield (
            node.name,
            own.model_copy(
                update={
                    "agent_id": node_id(hello.agent_id, node.name),
                    "tasks": tasks.get(node.name, []),
                    "slots": _slots(node),
                    "labels": {**hello.labels, **node.labels},
                    "pool": node.pool or hello.pool,
                    "address": node.address or hello.address,
                    "max_zero_slot_tasks": most,
                    "cpus": node.cpus,
                    "memory": node.memory,
                    "note": node.note,
                }
            ),
        )


def _slots(node: NodeHello) -> list[SlotView]:
    return [*node.slots, *(SlotView(id=f"any{number}") for number in range(node.slot_count))]


def send_to(send: Send, node: str) -> Send:
    """Return how messages for a node are sent: they name it, and one heartbeat is enough for all."""

    def named(message: MasterMessage) -> None:
        if isinstance(message, Launch | Kill | ExitAck | Welcome):
            message = message.model_copy(update={"node": node or message.node})
        if not (node and isinstance(message, Heartbeat)):
            send(message)

    return named


@dataclass
class ManySessions:
    """The connection of an agent with many nodes.

    Attributes:
        sessions: A session for each node, by its name.
        more: Connects further nodes, and adds their sessions.
    """

    sessions: dict[str, AgentSession]
    more: Callable[[ManySessions, MoreNodes], Awaitable[None]]
    _close: Callable[[], None] = field(default=lambda: None, init=False)

    async def receive(self, message: Hello | MoreNodes | Heartbeat | TaskStarted | TaskStage | TaskExited) -> None:
        """Handle a message of the agent; see `AgentSession.receive`. Any message shows that all nodes are reached.

        What the agent says of a node that has gone since, or was not in its Hello, is the agent's own session's.

        Raises:
            Conflict: The agent must connect anew.
        """
        for session in self.sessions.values():
            session.heard()
        if isinstance(message, MoreNodes):
            await self.more(self, message)
            self.on_hang_up(self._close)
            return
        about = getattr(message, "node", "")
        if about in self.sessions and not isinstance(message, Hello | Heartbeat):
            message = message.model_copy(update={"node": ""})
        await self.sessions.get(about, self.sessions[""]).receive(message)

    def on_hang_up(self, close: Callable[[], None]) -> None:
        """See `AgentSession.on_hang_up`."""
        self._close = close
        for session in self.sessions.values():
            session.on_hang_up(close)

    def closed(self) -> None:
        """See `AgentSession.closed`."""
        for session in self.sessions.values():
            session.closed()
