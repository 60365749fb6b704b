"""Agents: identity, enrolment, connections, and loss. Their reports are handled in `connection`."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden
from detlab.schemas.wire import (
    AgentView,
    EnrolReply,
    EnrolRequest,
    Heartbeat,
    Hello,
    RecordAck,
    RecordBatch,
    SlotView,
    TokenReply,
)
from detlab_hub.backends.base import Node
from detlab_hub.backends.connection import AgentBackend, AgentConnection, Send
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.admission import instance_records, log_rate
from detlab_hub.services.agents import drains, removed
from detlab_hub.services.agents.arrivals import NONCE_BYTES, Arrivals, check_protocol
from detlab_hub.services.agents.connection import AgentSession, lose, node_id
from detlab_hub.services.agents.many_nodes import ManySessions
from detlab_hub.services.alerts.of_lines import LineRules
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import administers, check_administers, knows
from detlab_hub.services.base.callers import AgentCaller, Caller, EnrolCaller, TaskCaller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.fencing import caller_of, current_holder
from detlab_hub.services.base.offers import is_off, known_node
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.ingest import records
from detlab_hub.services.logs.matching import PolicyMatcher
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.queries import parts, tokens
from detlab_hub.store.tables import AgentRow, AllocationRow, TokenRow

_log = logging.getLogger(__name__)
ID_CHARS = 128
NO_IDS = frozenset({".", "..", "enrol", "enrolments", "connect", "records"})
"""Path steps and routes below `agents/`: an agent with such a name could not be disabled or removed."""
ANOTHER_USER = "another user"
"""Stands for an allocation that the caller may not know of."""


class Agents(Service):
    """The agents as people and they themselves see them."""

    def __init__(
        self, context: ServiceContext, connections: AgentBackend, policies: PolicyMatcher, lines: LineRules
    ) -> None:
        super().__init__(context)
        self._policies = policies
        self._lines = lines
        self._connections = connections
        self._arrivals = Arrivals(context, connections)

    # --- people

    async def list(self, caller: Caller) -> list[AgentView]:
        """Return all agents. All callers see which slots are in use; only the owner sees by whom (I9)."""
        return [*await self._context.look(caller.name, lambda s: self.views(s, caller))]

    def views(self, s: Session, caller: Caller, agent_id: str | None = None) -> Sequence[AgentView]:
        """Return what `list` does, within a read that is in progress, of all agents or of one."""
        now = self._context.clock()
        owners: dict[tuple[str, str], str] = {}
        had: dict[str, set[str]] = {}
        asked: dict[str, tuple[int, int]] = {}
        placed = {row.id: row for row in s.scalars(select(AllocationRow).where(AllocationRow.state.in_(PLACED)))}
        for name, agent, slots in parts.places(s, placed):
            row = placed[name]
            shown = row.id if knows(caller, ObjectKind.ALLOCATION, row.owner) else ANOTHER_USER
            had.setdefault(agent, set()).add(name)
            cpus, memory = asked.get(agent, (0, 0))
            asked[agent] = cpus + row.millicpus, memory + row.memory
            owners.update(dict.fromkeys(((agent, slot) for slot in slots), shown))
        running = {agent: len(names) for agent, names in had.items()}
        wanted = select(AgentRow).order_by(AgentRow.id)
        if agent_id is not None:
            wanted = wanted.where(AgentRow.id == agent_id)
        return [
            self._view(row, caller, running, owners, now).model_copy(update=_demands(row, asked.get(row.id, (0, 0))))
            for row in s.scalars(wanted)
        ]

    def _view(
        self, row: AgentRow, caller: Caller, running: dict[str, int], owners: dict[tuple[str, str], str], now: float
    ) -> AgentView:
        slots = [SlotView.model_validate(slot) for slot in row.slots]
        heard = self._connections.last_heartbeat(row.id)
        return AgentView.model_validate(
            {
                "id": row.id,
                "state": self._connections.state_of(row.id, now),
                "version": row.version,
                "address": row.address,
                "serves_user": _shown_user(caller, row.serves_user),
                "slots": [
                    slot.model_copy(
                        update={
                            "allocation_id": owners.get((row.id, slot.id)),
                            "enabled": slot.enabled and not is_off(slot.id, row.slots_off),
                        }
                    )
                    for slot in slots
                ],
                "running": running.get(row.id, 0),
                "enabled": row.enabled,
                "mode": drains.mode_of(row, running.get(row.id, 0)),
                "drain_until": row.drain_until,
                "runtimes": row.runtimes,
                "pool": row.pool,
                "labels": row.labels,
                "enrolled_at": row.created_at,
                "last_seen": row.last_seen if heard is None else heard,
                "refused": self._connections.refused.get(row.id) if administers(caller, ObjectKind.AGENT) else None,
                "note": self._connections.note_of(row.id),
                **_governance(self._connections.connection_of(row.id), now),
            }
        )

    async def create_enrolment(self, caller: Caller, ttl: float) -> TokenReply:
        """Make an enrolment token that expires after `ttl` seconds.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        check_administers(caller, ObjectKind.AGENT, "enrol agents")

        def make(unit: UnitOfWork) -> TokenReply:
            expires_at = unit.now + ttl
            audit.note(unit, caller, "agent.invite", "enrolment token", f"for {ttl:.0f} s")
            return TokenReply(
                token=tokens.issue(unit.session, "enrol", caller.name, expires_at, unit.now),
                expires_at=expires_at,
            )

        return await self._context.write(make)

    # --- agents

    async def enrol(self, caller: EnrolCaller, request: EnrolRequest) -> EnrolReply:
        """Give an agent its own key. An agent that enrols again gets a new one; the old one is void.

        Raises:
            Conflict: The agent speaks a protocol that this master does not; or an agent of that name is connected and
                has its key, so that the caller is another machine, or an attacker who wants its tasks.
            Forbidden: An administrator removed the agent, and it uses the cluster's own token, which never expires; or
                the token is that of an elastic pool's instance, for another agent.
        """
        check_protocol(request.protocol)
        check_id(request.agent_id)
        if self._connections.state_of(request.agent_id, self._context.clock()) == "connected":
            raise Conflict(
                f"an agent {request.agent_id!r} is connected", hint="give this one another name: det agent run --name"
            )

        def make(unit: UnitOfWork) -> EnrolReply:
            removed.check_return(unit, request.agent_id, caller.token_hash)
            inviter = unit.session.get(TokenRow, caller.token_hash)
            if inviter is not None:
                instance_records.check_token(inviter, request.agent_id)
            tokens.revoke(unit.session, "agent", request.agent_id)
            token = tokens.issue(unit.session, "agent", request.agent_id, None, unit.now)
            row = unit.session.get(AgentRow, request.agent_id)
            if row is None:
                row = AgentRow(id=request.agent_id, state="lost", slots=[], created_at=unit.now)
                unit.session.add(row)
            row.enrolled_by = caller.token_hash
            actor = audit.CLUSTER if inviter is None else inviter.subject
            audit.note(unit, actor, "agent.enrol", f"agent {request.agent_id}")
            unit.changed_cluster()
            return EnrolReply(agent_id=request.agent_id, token=token)

        return await self._context.write(make)

    async def connect(self, agent: AgentCaller, hello: Hello, send: Send) -> AgentSession | ManySessions:
        """Accept an agent's connection: tell it which of its tasks continue, and resend what it missed.

        Args:
            agent: Who authenticated.
            hello: Its first message.
            send: Queues a message for the agent; must neither block nor raise.

        Raises:
            Forbidden: The agent claims to be another one, or its key became void since it authenticated.
            Conflict: It speaks a protocol that this master does not, a field exceeds its limit, it has given uids
                otherwise than this master, a device has a name reserved for shares, another process of this name
                is alive, or it was removed or has connected anew meanwhile.
        """
        try:
            session = await self._arrivals.connect(agent, hello, send)
        except Conflict as error:
            await self._note_refusal(agent.agent_id, str(error))
            raise
        self._connections.refused.pop(agent.agent_id, None)
        return session

    async def _note_refusal(self, agent_id: str, why: str) -> None:
        """Keep for administrators why an agent is refused; it retries for ever, and is noted once."""
        if self._connections.refused.get(agent_id) == why:
            return
        self._connections.refused[agent_id] = why

        def note(unit: UnitOfWork) -> None:
            audit.note(unit, audit.CLUSTER, "agent.refuse", f"agent {agent_id}", why)
            unit.changed_cluster()

        await self._context.write(note)

    async def records(self, agent: AgentCaller, allocation_id: str, batch: RecordBatch, on_node: str = "") -> RecordAck:
        """Take records that a dead launcher left behind on a node of an agent.

        Raises:
            Forbidden: The allocation is not of this agent.
            StaleAttempt: The attempt is over.
        """

        def owned(s: Session) -> tuple[TaskCaller, int]:
            row = s.get(AllocationRow, allocation_id)
            mine = [] if row is None else parts.on(s, row, node_id(agent.agent_id, on_node))
            if row is None or not mine:
                raise Forbidden(f"allocation {allocation_id[:80]} is not of agent {agent.agent_id}")
            return caller_of(row), mine[0].rank

        _, node = await self._context.read(owned)
        batch = await log_rate.thinned(self._context, allocation_id, batch, node)
        found = await self._policies.match(allocation_id, batch, lambda s: current_holder(s, owned(s)[0]))
        lines = await self._lines.match(allocation_id, batch, lambda s: current_holder(s, owned(s)[0]))

        def take(unit: UnitOfWork) -> RecordAck:
            caller, node = owned(unit.session)
            return records.take(unit, caller, batch, node, found, lines)

        ack = await self._context.write(take)
        self._policies.written(allocation_id, found)
        return ack

    # --- the master's own

    async def expect_known(self) -> None:
        """Wait, after a start, for the agents that were there before; the time counts from now."""

        def known(s: Session) -> Sequence[Node]:
            placed = parts.agents_with(s, PLACED)
            return [
                known_node(row) for row in s.scalars(select(AgentRow)) if row.state == "connected" or row.id in placed
            ]

        now = self._context.clock()
        for node in await self._context.read(known):
            self._connections.expect(node, now)

    async def lose_silent(self) -> None:
        """Give up the agents that were silent for too long: their tasks are lost and run elsewhere."""
        now = self._context.clock()

        def unconnected(s: Session) -> set[str]:
            # An allocation can be placed on an agent in the moment in which that is given up.
            return {agent for agent in parts.agents_with(s, PLACED) if self._connections.last_heartbeat(agent) is None}

        gone = set(self._connections.silent(now)) | await self._context.read(unconnected)
        for agent_id in sorted(gone):
            if self._connections.last_heartbeat(agent_id) is not None and agent_id not in self._connections.silent(now):
                continue  # it came back while others were given up
            _log.warning("agent %s is lost", agent_id)
            heard = self._connections.last_heartbeat(agent_id) or 0.0
            await self._context.write(partial(lose, agent_id=agent_id, heard=heard))
            self._connections.give_up(agent_id)
            self._context.scheduler_kick.set()

    def heartbeat(self) -> None:
        """Tell every agent that this master is alive."""
        now = self._context.clock()
        for connection in self._connections.connected():
            nonce, attested = "", connection.attested
            if attested.agent_id == connection.agent_id and attested.is_due(now):
                nonce = attested.challenge(secrets.token_hex(NONCE_BYTES), now)
            connection.send(Heartbeat(time=now, nonce=nonce))


def _governance(connection: AgentConnection | None, now: float) -> dict[str, Any]:
    """Return what an agent enforces of policies, and whether its attestation counts."""
    if connection is None:
        return {}
    node = connection.node_at(now)
    attestation = connection.attested.described(now) if connection.governing.attested else "not required"
    return {"enforces": sorted(node.enforces), "attestation": attestation}


def _shown_user(caller: Caller, user: str | None) -> str | None:
    """Return the one user whom an agent serves, as far as the caller may know the name; None if it serves all."""
    return ANOTHER_USER if user and not knows(caller, ObjectKind.USER, user) else user


def _demands(row: AgentRow, asked: tuple[int, int]) -> dict[str, float | int | None]:
    """Return the CPUs and the memory in bytes of an agent, and how much of them its tasks asked for."""
    return {
        "cpus": None if row.millicpus is None else row.millicpus / 1000,
        "cpus_asked": asked[0] / 1000,
        "memory": row.host_memory,
        "memory_asked": asked[1],
    }


def check_id(agent_id: str) -> None:
    """Check that an id can name an agent in lists, in container labels, and in the URLs of its API.

    Raises:
        Conflict: It cannot.
    """
    if not 0 < len(agent_id) <= ID_CHARS or not agent_id.isprintable():
        raise Conflict(f"an agent's id has 1 to {ID_CHARS} printable characters", hint="det agent run --name NAME")
    if agent_id in NO_IDS or set(agent_id) & set("/\\"):
        raise Conflict(
            f"an agent cannot be called {agent_id!r}: that is not valid in an address", hint="det agent run --name NAME"
        )
