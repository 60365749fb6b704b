"""How agents arrive: what their Hellos must hold to, whom they take over from, and the Welcome of each node."""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden
from detlab.governance.attestation import attestation_key
from detlab.schemas.wire import PROTOCOL, Hello, MasterMessage, MoreNodes, Welcome
from detlab_hub.backends.connection import AgentAttestation, AgentBackend, AgentConnection, Send, knows_gangs
from detlab_hub.services.admission import instance_records
from detlab_hub.services.agents.connection import AgentSession, check_key, greet, node_id
from detlab_hub.services.agents.hello import check_hello
from detlab_hub.services.agents.many_nodes import ManySessions, check_nodes, each_node, is_spoken_for, send_to, within
from detlab_hub.services.base.callers import AgentCaller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.offers import with_shares
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle import uids

_log = logging.getLogger(__name__)
OLDEST_PROTOCOL = 1
NONCE_BYTES = 16
NODES_AT_ONCE = 50
"""Nodes of one agent that are connected by one transaction: others wait for no more than that."""


def check_protocol(protocol: int) -> None:
    """Refuse agents that are too old or too new.

    Raises:
        Conflict: The protocol is not supported; the message says what to do.
    """
    if not OLDEST_PROTOCOL <= protocol <= PROTOCOL:
        raise Conflict(
            f"the agent speaks protocol {protocol}, this master {OLDEST_PROTOCOL} to {PROTOCOL}",
            hint="install the same version of detlab on both",
        )


@dataclass
class _Greeting:
    """A node that connects: who authenticated, what it said, and how it is answered."""

    agent: AgentCaller
    hello: Hello
    send: Send
    connection: AgentConnection | None = None
    early: list[MasterMessage] = field(default_factory=list)
    """What is sent to it before it is welcomed."""

    def answer(self, welcome: Welcome) -> None:
        """Send the Welcome first, then what was sent in the meantime; from now on messages go their way.

        Who speaks for itself, or for others, is challenged to attest what it enforces.
        """
        if self.connection is not None and not is_spoken_for(self.agent.agent_id):
            nonce = self.connection.attested.challenge(secrets.token_hex(NONCE_BYTES), self.connection.last_heartbeat)
            welcome = welcome.model_copy(update={"nonce": nonce})
        for message in (welcome, *self.early):
            self.send(message)
        if self.connection is not None:
            self.connection.send = self.send


def _connections_of(greetings: Sequence[_Greeting]) -> list[AgentConnection]:
    return [one.connection for one in greetings if one.connection is not None]


def _greet_all(unit: UnitOfWork, greetings: Sequence[_Greeting]) -> list[Welcome]:
    instance_records.void_token(unit, greetings[0].agent.agent_id)  # used once: it has a key of its own now
    return [greet(unit, one.hello, one.agent) for one in greetings]


class Arrivals:
    """Connections from their Hello to their Welcome."""

    def __init__(self, context: ServiceContext, connections: AgentBackend) -> None:
        self._context, self._connections = context, connections

    async def connect(self, agent: AgentCaller, hello: Hello, send: Send) -> AgentSession | ManySessions:
        """See `Agents.connect`."""
        check_nodes(hello.nodes)
        if not hello.nodes:
            return await self._connect(agent, hello, send)
        hello = within(hello, self._context.settings.agent_nodes_limit)

        async def more(there: ManySessions, message: MoreNodes) -> None:
            check_nodes(message.nodes, there.sessions)
            room = max(0, self._context.settings.agent_nodes_limit + 1 - len(there.sessions))
            nodes = [node for node in message.nodes if not node.away][:room]
            said = hello.model_copy(update={"nodes": nodes, "tasks": message.tasks})
            await self._connect_each(agent, itertools.islice(each_node(said), 1, None), send, there)

        sessions = ManySessions({}, more)
        try:
            await self._connect_each(agent, each_node(hello), send, sessions)
        except BaseException:
            sessions.closed()
            raise
        return sessions

    async def _connect_each(
        self, agent: AgentCaller, nodes: Iterator[tuple[str, Hello]], send: Send, there: ManySessions
    ) -> None:
        """Connect nodes of an agent that speaks for many, and add their sessions to those that are there."""
        while some := list(itertools.islice(nodes, NODES_AT_ONCE)):
            greetings = [
                _Greeting(replace(agent, agent_id=node_id(agent.agent_id, node)), said, send_to(send, node))
                for node, said in some
            ]
            made = await self._connect_together(greetings)
            there.sessions |= zip((node for node, _ in some), made, strict=True)
            for session in made:
                session.attested_by(there.sessions[""])

    async def _connect(self, agent: AgentCaller, hello: Hello, send: Send) -> AgentSession:
        (session,) = await self._connect_together([_Greeting(agent, hello, send)])
        return session

    async def _connect_together(self, greetings: Sequence[_Greeting]) -> list[AgentSession]:
        """Connect some nodes of one agent, by one transaction."""
        for one in greetings:
            if one.hello.agent_id != one.agent.agent_id:
                raise Forbidden(f"agent {one.agent.agent_id} must not say it is {one.hello.agent_id[:80]}")
            check_protocol(one.hello.protocol)
            check_hello(one.hello, self._context.settings)

        def vet(s: Session) -> None:
            check_key(s, greetings[0].agent)  # its key and its uids are the same for all
            uids.check_agent(s, self._context.settings.uids, greetings[0].hello)

        await self._context.read(vet)  # before it takes over from another connection, and is missed when that ends
        try:
            for one in greetings:
                self._take(one)
            said = await self._context.write(partial(_greet_all, greetings=greetings))
        except Forbidden:
            for connection in filter(self._connections.is_current, _connections_of(greetings)):
                self._connections.give_up(connection.agent_id)
            raise
        except BaseException:
            self._let_go(greetings)
            raise
        for one in greetings:
            if one.connection is None or not self._connections.is_current(one.connection):
                self._let_go(greetings)
                raise Conflict(f"agent {one.agent.agent_id} was removed or reconnected during its Hello")
        for one, welcome in zip(greetings, said, strict=True):
            one.answer(welcome)
        self._context.scheduler_kick.set()
        return [AgentSession(self._context, self._connections, connection) for connection in _connections_of(greetings)]

    def _take(self, one: _Greeting) -> None:
        """Take a connection, whose messages wait until it is welcomed.

        Raises:
            Conflict: Another process of its name is alive, or its pool is placed by others.
        """
        one.hello = hello = with_shares(one.hello, self._context.settings.pools)
        rival = self._connections.rival_of(hello, self._context.clock())
        if rival is not None:
            raise Conflict(
                f"another process, at {rival.hello.address[:40]}, is connected as this agent: one needs another --name"
            )
        self._check_queue(hello)
        one.connection = self._connections.connect(hello, one.early.append, self._context.clock())
        key = attestation_key(one.agent.key_hash) if one.agent.key_hash else b""
        attested = AgentAttestation(one.agent.agent_id, key)
        one.connection.govern(self._context.settings.pools.governance_in(hello.pool), attested)
        _log.info("agent %s connected: %d slots, %d tasks", hello.agent_id, len(hello.slots), len(hello.tasks))
        if not knows_gangs(hello):
            _log.warning(
                "agent %s is of an older version: it gets no part of a trial over several agents", hello.agent_id
            )

    def _let_go(self, greetings: Sequence[_Greeting]) -> None:
        for connection in _connections_of(greetings):
            self._connections.disconnect(connection)

    def _check_queue(self, hello: Hello) -> None:
        """Check that a pool is placed either by one batch system or by this master.

        Raises:
            Conflict: Another agent of the pool has its tasks placed otherwise.
        """
        queue = self._connections.queues.get(hello.pool)
        if queue not in {None, hello.agent_id}:
            raise Conflict(
                f"the batch system of agent {queue} places the tasks of pool {hello.pool}",
                hint="det agent run --pool NAME: give this agent another pool of c.DetHub.pools",
            )
        if hello.queue is None:
            return
        others = [
            node.id
            for node in self._connections.nodes(self._context.clock())
            if node.pool == hello.pool and node.id != hello.agent_id and node.queue is None
        ]
        if others:
            raise Conflict(
                f"pool {hello.pool} has other agents ({', '.join(others[:3])}), whose tasks this master places",
                hint="det agent run --pool NAME: a batch system needs a pool of its own of c.DetHub.pools",
            )
