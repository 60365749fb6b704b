"""A backend whose nodes are agents that dial in: an agent's connection, and the interface of such a backend."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from detlab.schemas.wire import Hello, MasterMessage, QueueHello
from detlab_hub.backends.base import Backend, Node, batch_system_of, node_of

Send = Callable[[MasterMessage], None]


@dataclass
class AgentConnection:
    """One connection of an agent. `send` puts a message into the connection's queue and must not block."""

    agent_id: str
    hello: Hello
    send: Send
    last_heartbeat: float
    hang_up: Callable[[], None] = lambda: None
    """Closes the connection; the agent may come back if its key is still good."""
    node: Node = field(init=False)
    """What the agent reported that it has: the same object for the whole connection, so that callers see that nothing
    changed."""

    def __post_init__(self) -> None:
        self.node = _node(self.hello)

    def queue_changed(self, queue: QueueHello) -> bool:
        """Note what the agent says of its batch system since its Hello; return whether that is news."""
        told = batch_system_of(queue)
        if self.node.queue is None or told == self.node.queue:
            return False
        self.node = replace(self.node, queue=told)
        return True


class AgentBackend(Backend, Protocol):
    """A backend that agents connect to; only the code that serves their connections needs more than `Backend`."""

    @property
    def refused(self) -> MutableMapping[str, str]:
        """Why the last connection of an agent was refused, for agents whose last one was."""
        ...

    def connect(self, hello: Hello, send: Send, now: float) -> AgentConnection:
        """Take a connection; an older one of the same agent is superseded."""
        ...

    def rival_of(self, hello: Hello, now: float) -> AgentConnection | None:
        """Return a connection of the same agent from another process, with a recent heartbeat."""
        ...

    def is_current(self, connection: AgentConnection) -> bool:
        """Whether this is the newest connection of its agent, and the agent is not given up."""
        ...

    def record_heartbeat(self, connection: AgentConnection, now: float) -> None:
        """Note that something was received from the agent."""
        ...

    def disconnect(self, connection: AgentConnection) -> bool:
        """Note that the connection is closed; return whether it was the current one."""
        ...

    def note_of(self, agent_id: str) -> str:
        """Return what an agent, or the one that speaks for it, says of it for people; "" if that is nothing."""
        ...

    def connected(self) -> Sequence[AgentConnection]:
        """Return the current connections."""
        ...


def _node(hello: Hello) -> Node:
    return node_of(
        hello.agent_id,
        hello.slots,
        serves_user=hello.serves_user,
        suspect=False,
        runtimes=hello.runtimes,
        pool=hello.pool,
        labels=hello.labels,
        max_zero_slot_tasks=hello.max_zero_slot_tasks,
        gangs=knows_gangs(hello),
        millicpus=None if hello.cpus is None else round(hello.cpus * 1000),
        host_memory=hello.memory,
        queue=hello.queue,
    )


def knows_gangs(hello: Hello) -> bool:
    """Whether an agent's harness supports trials over several agents.

    Agents that do not tell their processes apart are older: their harness would train the whole trial on each agent.
    """
    return bool(hello.process)
