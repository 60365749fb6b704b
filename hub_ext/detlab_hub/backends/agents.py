"""The connected agents, and those whose connection was lost.

Pure bookkeeping over injected time: which agents may send, which can be reached, which are suspect (no new work) and
which are lost. An agent that connects twice is served by its newer connection only; a second process under the
name of a connected one is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from detlab.schemas.wire import Hello, MasterMessage
from detlab_hub.backends.base import Node
from detlab_hub.backends.connection import AgentConnection, Send

_log = logging.getLogger(__name__)


@dataclass
class LiveAgents:
    """All agents that are not lost; see `AgentBackend`."""

    suspect_after: float
    lost_after: float
    queues: Mapping[str, str] = field(default_factory=dict)
    """Pools whose tasks are placed by the batch system behind an agent, and that agent."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why the last connection of an agent was refused, for agents whose last one was."""
    _connections: dict[str, AgentConnection] = field(default_factory=dict)
    _missed: dict[str, tuple[Node, float]] = field(default_factory=dict)
    """Agents without a connection: their node, and the time of their last heartbeat."""

    def expect(self, node: Node, now: float) -> None:
        """Wait for an agent that was connected before this master started."""
        self._missed[node.id] = (node, now)
        self._note_queue(node)

    def connect(self, hello: Hello, send: Send, now: float) -> AgentConnection:
        """Take a connection; an older one of the same agent is superseded."""
        connection = AgentConnection(hello.agent_id, hello, send, now)
        self._connections[hello.agent_id] = connection
        self._missed.pop(hello.agent_id, None)
        self._note_queue(connection.node)
        return connection

    def _note_queue(self, node: Node) -> None:
        """Note for which pool an agent's batch system places tasks, from now on."""
        others = {pool: agent for pool, agent in self.queues.items() if agent != node.id}
        self.queues = others if node.queue is None else {**others, node.pool: node.id}

    def _forget_queue(self, agent_id: str) -> None:
        if self.state_of(agent_id, 0.0) == "lost":
            self.queues = {pool: agent for pool, agent in self.queues.items() if agent != agent_id}

    def rival_of(self, hello: Hello, now: float) -> AgentConnection | None:
        """Return the agent's live connection (one with a recent heartbeat) from another process; None if there is none.

        When the same process connects again, it takes over from its own broken connection immediately; another process
        takes over once that connection is suspect. Agents that do not tell their processes apart always take over.
        """
        there = self._connections.get(hello.agent_id)
        if there is None or not hello.process or there.hello.process in {"", hello.process}:
            return None
        return there if now - there.last_heartbeat <= self.suspect_after else None

    def is_current(self, connection: AgentConnection) -> bool:
        """Whether this is the agent's newest connection and the agent is not given up."""
        return self._connections.get(connection.agent_id) is connection

    def record_heartbeat(self, connection: AgentConnection, now: float) -> None:
        """Record that something was received from the agent."""
        connection.last_heartbeat = max(connection.last_heartbeat, now)

    def disconnect(self, connection: AgentConnection) -> bool:
        """Remove a closed connection; return whether it was the current one."""
        if not self.is_current(connection):
            return False
        del self._connections[connection.agent_id]
        node = replace(connection.node, suspect=True)
        if connection.governing.attested:  # it attests anew when it returns
            node = replace(node, enforces=frozenset(), code=frozenset())
        self._missed[connection.agent_id] = (node, connection.last_heartbeat)
        return True

    def forgive(self, seconds: float) -> None:
        """Discount a pause of `seconds` in which this process itself did not run, for instance on a suspended machine.

        The agents' silence during the pause does not count against them.
        """
        for connection in self._connections.values():
            connection.last_heartbeat += seconds
        self._missed = {key: (node, last + seconds) for key, (node, last) in self._missed.items()}

    def give_up(self, agent_id: str) -> None:
        """Treat the agent as lost: expect nothing from it until it sends Hello again."""
        known = self._connections.pop(agent_id, None), self._missed.pop(agent_id, None)
        if any(known):
            self._forget_queue(agent_id)

    def note_of(self, agent_id: str) -> str:
        """Return what an agent, or the one that speaks for it, says of it for people; "" if that is nothing."""
        connection = self._connections.get(agent_id)
        if connection is not None:
            return connection.hello.note
        speaker, _, name = agent_id.partition("/")
        there = self._connections.get(speaker)
        return "" if there is None else next((node.note for node in there.hello.nodes if node.name == name), "")

    def asks_point(self, agent_id: str) -> bool:
        """Whether a trial that is sent to the agent without hyperparameters asks for them when it runs."""
        connection = self._connections.get(agent_id)
        return connection is not None and connection.hello.asks_point

    def connection_of(self, agent_id: str) -> AgentConnection | None:
        """Return the current connection of an agent or node."""
        return self._connections.get(agent_id)

    def attesting(self, agent_id: str, now: float) -> bool:
        """Whether the agent has just connected, and its attestation is awaited."""
        connection = self._connections.get(agent_id)
        return connection is not None and connection.governing.attested and connection.attested.is_awaited(now)

    def connected(self) -> list[AgentConnection]:
        """List the current connections."""
        return list(self._connections.values())

    def state_of(self, agent_id: str, now: float) -> str:
        """Return the agent's state: `connected`, `suspect` or `lost`."""
        connection = self._connections.get(agent_id)
        if connection is not None:
            return "suspect" if now - connection.last_heartbeat > self.suspect_after else "connected"
        return "suspect" if agent_id in self._missed else "lost"

    def last_heartbeat(self, agent_id: str) -> float | None:
        """Return the time of the agent's last heartbeat since this master's start."""
        connection = self._connections.get(agent_id)
        if connection is not None:
            return connection.last_heartbeat
        missed = self._missed.get(agent_id)
        return None if missed is None else missed[1]

    def silent(self, now: float) -> list[str]:
        """Return the agents that were silent for so long that their tasks must be considered dead."""
        silent = [c.agent_id for c in self._connections.values() if now - c.last_heartbeat > self.lost_after]
        missed = [agent_id for agent_id, (_, last) in self._missed.items() if now - last > self.lost_after]
        return sorted(silent + missed)

    def hang_up(self, agent_id: str) -> None:
        """Close an agent's connection, if there is one."""
        connection = self._connections.get(agent_id)
        if connection is not None:
            connection.hang_up()

    def dismiss(self, agent_id: str) -> None:
        """Close an agent's connection and no longer expect anything from it."""
        self.refused.pop(agent_id, None)
        connection = self._connections.get(agent_id)
        self.give_up(agent_id)
        if connection is not None:
            connection.hang_up()

    def deliver(self, node_id: str, message: MasterMessage) -> None:
        """Send a message if the agent is connected; else do nothing."""
        connection = self._connections.get(node_id)
        if connection is None:
            _log.info("agent %s is away; %s waits for its return", node_id, message.type)
            return
        connection.send(message)

    def nodes(self, now: float) -> tuple[Node, ...]:
        """List the connected agents, and the suspect ones (marked as such)."""
        # Copied in one go: views are made in reader threads while agents come and go.
        connections, missed = list(self._connections.values()), list(self._missed.values())
        present = [
            replace(connection.node_at(now), suspect=True)
            if now - connection.last_heartbeat > self.suspect_after
            else connection.node_at(now)
            for connection in connections
        ]
        return tuple(sorted((*present, *(node for node, _ in missed)), key=lambda n: n.id))
