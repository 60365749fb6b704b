"""Agents: enrolment, their connections, what they report, and what happens when they are gone."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden
from detlab.schemas.wire import (
    PROTOCOL,
    AgentView,
    AllocationState,
    EnrolReply,
    EnrolRequest,
    ExitAck,
    Heartbeat,
    Hello,
    MasterMessage,
    RecordAck,
    RecordBatch,
    SlotView,
    TaskExited,
    TaskStage,
    TaskStarted,
    TokenReply,
    Welcome,
)
from detlab_hub.backends.agents import Agents as Connections
from detlab_hub.backends.agents import Connection, Send
from detlab_hub.backends.base import Node
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.services import audit, departures, records
from detlab_hub.services.callers import AgentCaller, Caller, EnrolCaller
from detlab_hub.services.fencing import caller_of
from detlab_hub.services.launching import build_launch
from detlab_hub.services.lives import apply_allocation, send_kill
from detlab_hub.services.placement import PLACED, holder_of
from detlab_hub.services.shell import Shell
from detlab_hub.services.turn import Turn
from detlab_hub.store.queries import tokens
from detlab_hub.store.tables import AgentRow, AllocationRow, TokenRow

_log = logging.getLogger(__name__)
REFUSED = "refused"
MACHINE_RESTARTED = "machine_restarted"
REFUSAL_TTL = 60.0
"""For this long a trial is not offered again to an agent that refused it."""
OLDEST_PROTOCOL = 1
MAX_EXIT_CODE = 2**31
ID_CHARS = 128
NO_IDS = frozenset({".", "..", "enrol", "enrolments", "connect", "records"})
"""Steps and routes below `agents/`: an agent of such a name could not be disabled or sent away."""
STAGE_CHARS = 200
SOMEBODY = "somebody else"
"""Stands for an allocation that the caller may not know of."""


class Agents:
    """The agents as people and they themselves see them."""

    def __init__(self, shell: Shell, connections: Connections) -> None:
        self._shell = shell
        self._connections = connections

    # --- people

    async def list(self, caller: Caller) -> list[AgentView]:
        """All agents. That a slot is in use everybody sees; by which allocation, its owner only (I9)."""
        return [*await self._shell.read(lambda s: self.views(s, caller))]

    def views(self, s: Session, caller: Caller, agent_id: str | None = None) -> Sequence[AgentView]:
        """`list` in a read that is under way, of all agents or of one."""
        now = self._shell.clock()
        owners: dict[tuple[str, str], str] = {}
        running: dict[str, int] = {}
        for row in s.scalars(select(AllocationRow).where(AllocationRow.state.in_(PLACED))):
            agent = row.agent_id or ""
            running[agent] = running.get(agent, 0) + 1
            shown = row.id if caller.sees(row.owner) else SOMEBODY
            owners.update(dict.fromkeys(((agent, slot) for slot in row.slots), shown))
        wanted = select(AgentRow).order_by(AgentRow.id)
        if agent_id is not None:
            wanted = wanted.where(AgentRow.id == agent_id)
        return [self._view(row, running, owners, now) for row in s.scalars(wanted)]

    def _view(
        self, row: AgentRow, running: dict[str, int], owners: dict[tuple[str, str], str], now: float
    ) -> AgentView:
        slots = [SlotView.model_validate(slot) for slot in row.slots]
        heard = self._connections.last_heard(row.id)
        return AgentView.model_validate(
            {
                "id": row.id,
                "state": self._connections.state_of(row.id, now),
                "version": row.version,
                "address": row.address,
                "serves_user": row.serves_user,
                "slots": [slot.model_copy(update={"allocation_id": owners.get((row.id, slot.id))}) for slot in slots],
                "running": running.get(row.id, 0),
                "enabled": row.enabled,
                "runtimes": row.runtimes,
                "enrolled_at": row.created_at,
                "last_seen": row.last_seen if heard is None else heard,
            }
        )

    async def create_enrolment(self, caller: Caller, ttl: float) -> TokenReply:
        """An enrolment token that expires after `ttl` seconds.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        if not caller.admin:
            raise Forbidden("only administrators may enrol agents")

        def make(turn: Turn) -> TokenReply:
            expires_at = turn.now + ttl
            audit.note(turn, caller, "agent.invite", "enrolment token", f"for {ttl:.0f} s")
            return TokenReply(
                token=tokens.issue(turn.session, "enrol", caller.name, expires_at, turn.now),
                expires_at=expires_at,
            )

        return await self._shell.write(make)

    # --- agents

    async def enrol(self, caller: EnrolCaller, request: EnrolRequest) -> EnrolReply:
        """Give an agent its own key. An agent that enrols again gets a new one; the old one is void.

        Raises:
            Conflict: The agent speaks a protocol that this master does not, or one of that name is connected: it has
                its key, so that whoever asks is another machine, or wants its tasks.
            Forbidden: An administrator sent it away, and it comes by the cluster's own token, which never expires.
        """
        check_protocol(request.protocol)
        check_id(request.agent_id)
        if self._connections.state_of(request.agent_id, self._shell.clock()) == "connected":
            raise Conflict(
                f"an agent {request.agent_id!r} is connected", hint="give this one another name: det agent run --name"
            )

        def make(turn: Turn) -> EnrolReply:
            departures.check_return(turn, request.agent_id, caller.token_hash)
            tokens.revoke(turn.session, "agent", request.agent_id)
            token = tokens.issue(turn.session, "agent", request.agent_id, None, turn.now)
            row = turn.session.get(AgentRow, request.agent_id)
            if row is None:
                row = AgentRow(id=request.agent_id, state="lost", slots=[], created_at=turn.now)
                turn.session.add(row)
            row.enrolled_by = caller.token_hash
            inviter = turn.session.get(TokenRow, caller.token_hash)
            actor = audit.CLUSTER if inviter is None else inviter.subject
            audit.note(turn, actor, "agent.enrol", f"agent {request.agent_id}")
            turn.changed_cluster()
            return EnrolReply(agent_id=request.agent_id, token=token)

        return await self._shell.write(make)

    async def connect(self, agent: AgentCaller, hello: Hello, send: Send) -> AgentSession:
        """Take an agent's connection: say which of its tasks go on, send again what it missed.

        Args:
            agent: Who authenticated.
            hello: Its first message.
            send: Queues a message for the agent; must neither block nor raise.

        Raises:
            Forbidden: The agent says it is another one, or its key became void since it authenticated.
            Conflict: It speaks a protocol that this master does not, or was sent away or connected anew meanwhile.
        """
        if hello.agent_id != agent.agent_id:
            raise Forbidden(f"agent {agent.agent_id} must not say it is {hello.agent_id}")
        check_protocol(hello.protocol)
        await self._shell.read(lambda s: check_key(s, agent))  # before it takes over from another connection
        early: list[MasterMessage] = []
        connection = self._connections.connect(hello, early.append, self._shell.clock())
        _log.info("agent %s connected: %d slots, %d tasks", agent.agent_id, len(hello.slots), len(hello.tasks))
        try:
            welcome = await self._shell.write(lambda turn: greet(turn, hello, agent))
        except Forbidden:
            if self._connections.is_current(connection):
                self._connections.give_up(agent.agent_id)
            raise
        except BaseException:
            self._connections.disconnect(connection)
            raise
        if not self._connections.is_current(connection):
            raise Conflict(f"agent {agent.agent_id} was sent away or connected anew while it said hello")
        # Welcome goes first; what was sent to the agent in the meantime comes after it.
        send(welcome)
        for message in early:
            send(message)
        connection.send = send
        self._shell.scheduler_kick.set()
        return AgentSession(self._shell, self._connections, connection)

    async def records(self, agent: AgentCaller, allocation_id: str, batch: RecordBatch) -> RecordAck:
        """Take records that a dead launcher left behind.

        Raises:
            Forbidden: The allocation is not of this agent.
            StaleAttempt: The attempt is over.
        """

        def take(turn: Turn) -> RecordAck:
            row = turn.allocation(allocation_id)
            if row is None or row.agent_id != agent.agent_id:
                raise Forbidden(f"allocation {allocation_id[:80]} is not of agent {agent.agent_id}")
            return records.take(turn, caller_of(row), batch)

        return await self._shell.write(take)

    # --- the master's own

    async def expect_known(self) -> None:
        """After a start: wait for the agents that were there before, from now on."""

        def known(s: Session) -> list[Node]:
            placed = set(s.scalars(select(AllocationRow.agent_id).where(AllocationRow.state.in_(PLACED))))
            return [
                Node(
                    row.id,
                    tuple(slot["id"] for slot in row.slots),
                    row.serves_user,
                    suspect=True,
                    runtimes=tuple(row.runtimes),
                )
                for row in s.scalars(select(AgentRow))
                if row.state == "connected" or row.id in placed
            ]

        now = self._shell.clock()
        for node in await self._shell.read(known):
            self._connections.expect(node, now)

    async def lose_overdue(self) -> None:
        """Give up the agents that were silent for too long: their tasks are lost and run elsewhere."""
        now = self._shell.clock()

        def strays(s: Session) -> set[str]:
            # An allocation can be placed on an agent in the moment in which that is given up.
            placed = s.scalars(select(AllocationRow.agent_id).where(AllocationRow.state.in_(PLACED)).distinct())
            return {agent for agent in placed if agent and self._connections.last_heard(agent) is None}

        gone = set(self._connections.overdue(now)) | await self._shell.read(strays)
        for agent_id in sorted(gone):
            _log.warning("agent %s is lost", agent_id)
            heard = self._connections.last_heard(agent_id) or 0.0
            await self._shell.write(partial(lose, agent_id=agent_id, heard=heard))
            self._connections.give_up(agent_id)
            self._shell.scheduler_kick.set()

    def heartbeat(self) -> None:
        """Say to every agent that this master lives."""
        now = self._shell.clock()
        for connection in self._connections.connected():
            connection.send(Heartbeat(time=now))


def check_id(agent_id: str) -> None:
    """Accept what can name an agent in lists, in labels of containers, and in the address by which it is steered.

    Raises:
        Conflict: It cannot.
    """
    if not 0 < len(agent_id) <= ID_CHARS or not agent_id.isprintable():
        raise Conflict(f"an agent's id has 1 to {ID_CHARS} printable characters", hint="det agent run --name NAME")
    if agent_id in NO_IDS or set(agent_id) & set("/\\"):
        raise Conflict(
            f"an agent cannot be called {agent_id!r}: that is no name in an address", hint="det agent run --name NAME"
        )


def check_protocol(protocol: int) -> None:
    """Refuse agents that are too old or too new.

    Raises:
        Conflict: With what to do.
    """
    if not OLDEST_PROTOCOL <= protocol <= PROTOCOL:
        raise Conflict(
            f"the agent speaks protocol {protocol}, this master {OLDEST_PROTOCOL} to {PROTOCOL}",
            hint="install the same version of detlab on both",
        )


@dataclass
class AgentSession:
    """One connection of an agent, as the web layer drives it."""

    _shell: Shell
    _connections: Connections
    _connection: Connection

    async def receive(self, message: Hello | Heartbeat | TaskStarted | TaskStage | TaskExited) -> None:
        """Take a message of the agent. Repeated and late ones change nothing.

        Raises:
            Conflict: A newer connection of the same agent has taken over, or the agent was given up: it must
                connect anew.
        """
        if not self._connections.is_current(self._connection):
            raise Conflict(f"agent {self._connection.agent_id} has another connection, or was lost")
        self._connections.heard(self._connection, self._shell.clock())
        match message:
            case Hello():
                raise Conflict("an agent says Hello once per connection")
            case Heartbeat():
                return
            case TaskStarted():
                await self._shell.write(lambda turn: task_started(turn, self._connection.agent_id, message))
            case TaskStage():
                await self._shell.write(lambda turn: task_stage(turn, self._connection.agent_id, message))
            case TaskExited():
                await self._exited(message)

    async def _exited(self, message: TaskExited) -> None:
        agent_id = self._connection.agent_id
        if message.reason == REFUSED:
            holder = await self._shell.read(lambda s: _holder_of(s, message.allocation_id))
            if holder is not None:
                self._shell.refusals[holder, agent_id] = self._shell.clock() + REFUSAL_TTL
        await self._shell.write(lambda turn: task_exited(turn, agent_id, message))
        self._connection.send(ExitAck(allocation_id=message.allocation_id, run=message.run))

    def on_hang_up(self, close: Callable[[], None]) -> None:
        """Say how the master ends this connection when an administrator wants the agent gone."""
        self._connection.hang_up = close

    def closed(self) -> None:
        """The connection is gone; the agent is suspect until it connects again."""
        if self._connections.disconnect(self._connection):
            _log.info("agent %s disconnected", self._connection.agent_id)
            self._shell.scheduler_kick.set()


# --- in a transaction


def check_key(s: Session, agent: AgentCaller) -> None:
    """Check that an agent's key is still good: between its authentication and its Hello it may be sent away.

    Raises:
        Forbidden: It is void.
    """
    if agent.key_hash and s.get(TokenRow, agent.key_hash) is None:
        raise Forbidden(f"the key of agent {agent.agent_id} is void: it was sent away, or enrolled again")


def greet(turn: Turn, hello: Hello, agent: AgentCaller) -> Welcome:
    """Bring what the agent has and what it should have together.

    Raises:
        Forbidden: Its key is void: a row that was removed must not come back.
    """
    check_key(turn.session, agent)
    _write_agent(turn, hello)
    tasks = {(task.allocation_id, task.run): task for task in hello.tasks}
    live = turn.session.scalars(
        select(AllocationRow).where(AllocationRow.agent_id == hello.agent_id, AllocationRow.state.in_(PLACED))
    ).all()
    keep = []
    for row in live:
        task = tasks.pop((row.id, row.run), None)
        if task is not None:
            keep.append(row.id)
            if not task.exited:
                apply_allocation(turn, row, allocations.TaskStarted())
            if row.state == AllocationState.TERMINATING:
                send_kill(turn, row)
        elif row.state in allocations.NOT_BEGUN and _has_slots(hello, row):
            launch = build_launch(turn, row)
            if launch is not None:
                turn.outbox.messages.append((hello.agent_id, launch))
        else:
            # It was there and is not any more, or can never be: its agent lost it.
            apply_allocation(turn, row, allocations.AgentLost())
    for task in tasks.values():
        if task.exited:
            ack = ExitAck(allocation_id=task.allocation_id, run=task.run)
            turn.outbox.messages.append((hello.agent_id, ack))
    kill = sorted(task.allocation_id for task in tasks.values() if not task.exited)
    return Welcome(cluster_id=turn.settings.cluster_id, keep=sorted(keep), kill=kill)


def _has_slots(hello: Hello, row: AllocationRow) -> bool:
    return set(row.slots) <= {slot.id for slot in hello.slots}


def _write_agent(turn: Turn, hello: Hello) -> None:
    row = turn.session.get(AgentRow, hello.agent_id)
    if row is None:
        row = AgentRow(id=hello.agent_id, created_at=turn.now)
        turn.session.add(row)
    row.state = "connected"
    row.version = hello.version
    row.serves_user = hello.serves_user
    row.runtimes, row.address = list(hello.runtimes), hello.address
    row.slots = [slot.model_dump(exclude={"allocation_id"}) for slot in hello.slots]
    row.last_seen = turn.now
    turn.changed_cluster()


def task_started(turn: Turn, agent_id: str, message: TaskStarted) -> None:
    """The agent started a task."""
    row = turn.allocation(message.allocation_id)
    if row is not None and row.run == message.run and row.agent_id == agent_id:
        row.address, row.port = message.address or row.address, message.port or row.port
        apply_allocation(turn, row, allocations.TaskStarted())


def task_stage(turn: Turn, agent_id: str, message: TaskStage) -> None:
    """The agent says how far it is with a launch."""
    row = turn.allocation(message.allocation_id)
    if row is None or row.run != message.run or row.agent_id != agent_id:
        return
    row.stage_message = message.message[:STAGE_CHARS]
    apply_allocation(turn, row, allocations.StageReached(AllocationState(message.stage.upper())))
    if row.task_id is not None:
        turn.changed_task(turn.task(row.task_id))


def task_exited(turn: Turn, agent_id: str, message: TaskExited) -> None:
    """A task is gone and its records are delivered. What is stale or unknown is acknowledged all the same."""
    row = turn.allocation(message.allocation_id)
    known = row is not None and row.run == message.run and row.agent_id == agent_id
    if row is None or not known or row.state == AllocationState.TERMINATED:
        return
    row.exit_code = message.exit_code if abs(message.exit_code or 0) < MAX_EXIT_CODE else None
    turn.exits[row.id] = message
    refused = message.message or "no reason given" if message.reason == REFUSED else None
    if refused is not None:
        _log.warning("agent %s refused %s: %s", agent_id, row.id, refused)
    if message.reason == MACHINE_RESTARTED:
        _log.warning("agent %s lost %s: %s", agent_id, row.id, message.message)
        apply_allocation(turn, row, allocations.AgentLost())
        return
    apply_allocation(turn, row, allocations.TaskExited(message.exit_code, refused))


def lose(turn: Turn, agent_id: str, heard: float = 0.0) -> None:
    """Take an agent's tasks as dead; their next attempts have higher run numbers, so they cannot write."""
    agent = turn.session.get(AgentRow, agent_id)
    if agent is not None:
        agent.state = "lost"
        agent.last_seen = max(agent.last_seen, heard)
        turn.changed_cluster()
    for row in turn.session.scalars(
        select(AllocationRow).where(AllocationRow.agent_id == agent_id, AllocationRow.state.in_(PLACED))
    ).all():
        apply_allocation(turn, row, allocations.AgentLost())


def _holder_of(s: Session, allocation_id: str) -> int | str | None:
    row = s.get(AllocationRow, allocation_id)
    return None if row is None else holder_of(row)


def same_secret(secret_hash: str | None, token: str) -> bool:
    """Whether a token is the one whose SHA-256 (hex) is known, compared in constant time."""
    return secret_hash is not None and hmac.compare_digest(secret_hash.lower(), tokens.digest(token))
