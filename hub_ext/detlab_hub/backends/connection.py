"""A backend whose nodes are agents that dial in: an agent's connection, and the interface of such a backend."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from detlab.governance.attestation import attestation_problem
from detlab.schemas.wire import Hello, MasterMessage, QueueHello
from detlab.schemas.wire.governance.attestation import Attestation
from detlab_hub.backends.base import Backend, Node, batch_system_of, node_of
from detlab_hub.core.scheduling import GovernedPool

Send = Callable[[MasterMessage], None]
PATIENCE = 30.0
"""Seconds for which the first attestation of a connection is awaited."""
_NOTHING: frozenset[str] = frozenset()


class AgentAttestation:
    """What an agent has attested on this connection: one for all nodes that it speaks for.

    It counts from when the challenge was made, not from when the answer came: an answer may be held back.

    Args:
        agent_id: The agent.
        key: Of its attestations; empty: it has none, and nothing that it says counts.

    Attributes:
        ttl: Seconds for which it counts, the least that a pool of its nodes says.
        problem: Why the last answer does not count; empty: it does, or there was none.
        code: Digests of the code that its trials load.
    """

    def __init__(self, agent_id: str, key: bytes) -> None:
        self.agent_id, self._key = agent_id, key
        self.ttl = float("inf")
        self.problem = ""
        self.code: frozenset[str] = _NOTHING
        self._enforces = _NOTHING
        self._nonce = ""
        self._challenged = self._counts_from = float("-inf")
        self._awaited_since: float | None = None

    def challenge(self, nonce: str, now: float) -> str:
        """Ask the agent to answer this nonce from now on; return it."""
        if not self._nonce:
            self._awaited_since = now
        self._nonce, self._challenged = nonce, now
        return nonce

    def is_due(self, now: float) -> bool:
        """Whether the next challenge is due, so that an agent which answers never becomes stale."""
        return now - self._challenged > self.ttl / 3

    def is_awaited(self, now: float) -> bool:
        """Whether the first answer is still to come; an agent that gives none is not waited for long."""
        return self._awaited_since is not None and now - self._awaited_since <= PATIENCE

    def answer(self, said: Attestation, cluster_id: str) -> bool:
        """Take an answer; return whether it changes what counts."""
        self._awaited_since = None
        before = self.problem, self._enforces, self.code
        self.problem = attestation_problem(
            said, nonce=self._nonce, cluster_id=cluster_id, agent_id=self.agent_id, key=self._key
        )
        if not self._key:
            self.problem = "the agent has connected without a key of its own"
        if self.problem:
            self._enforces, self.code = _NOTHING, _NOTHING
        else:
            self._counts_from = self._challenged
            if before[1:] != (found := (frozenset(said.enforces), frozenset(said.code))):
                self._enforces, self.code = found
        return before != (self.problem, self._enforces, self.code)

    def enforces(self, now: float) -> frozenset[str]:
        """Return what it attests; nothing if that is stale. The same object as long as nothing changes."""
        return self._enforces if now - self._counts_from <= self.ttl else _NOTHING

    def described(self, now: float) -> str:
        """Return for people whether it counts."""
        if self.problem:
            return f"does not count: {self.problem}"
        if not self._enforces:
            return "missing: the agent has not answered, or is of an older version"
        return "fresh" if self.enforces(now) else "stale"


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
    """What the agent reported that it has: the same object until something changes, so that callers see that nothing
    did."""
    attested: AgentAttestation = field(init=False)
    governing: GovernedPool = field(default_factory=GovernedPool)
    """What its pool declares."""
    _last: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.node = _node(self.hello)
        self.attested = AgentAttestation(self.agent_id, b"")

    def govern(self, governing: GovernedPool, attested: AgentAttestation) -> None:
        """Set what its pool declares, and whose attestation counts for it: its own, or that of who speaks for it."""
        self.governing, self.attested, self._last = governing, attested, None
        attested.ttl = min(attested.ttl, governing.ttl)

    def node_at(self, now: float) -> Node:
        """Return its node with what it enforces now."""
        attested = self.attested.enforces(now)
        if attested is not self._last:
            self._last = attested
            enforces = self.governing.enforced(attested, dict(self.node.labels))
            code = (self.attested.code if attested else _NOTHING) if self.governing.attested else None
            if (enforces, code) != (self.node.enforces, self.node.code):
                self.node = replace(self.node, enforces=enforces, code=code)
        return self.node

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

    def connection_of(self, agent_id: str) -> AgentConnection | None:
        """Return the current connection of an agent or node."""
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
