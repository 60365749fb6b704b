"""One connection of an agent, from its Hello to its end: its reports, and their effect on its tasks."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden
from detlab.schemas.wire import (
    AllocationState,
    ExitAck,
    Heartbeat,
    Hello,
    MoreNodes,
    TaskExited,
    TaskStage,
    TaskStarted,
    Welcome,
)
from detlab.schemas.wire.governance.attestation import Attestation
from detlab_hub.backends.connection import AgentBackend, AgentConnection
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.core.lifecycle.allocation import AllocationKillRequested
from detlab_hub.services.base.callers import AgentCaller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.failures.cards import ON_NODE
from detlab_hub.services.lifecycle import gangs, no_progress
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation, send_kill, send_launch
from detlab_hub.services.placement.active_rows import PLACED, holder_of
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AgentRow, AllocationRow, TokenRow

_log = logging.getLogger(__name__)
REFUSED = "refused"
MACHINE_RESTARTED = "machine_restarted"
REFUSAL_TTL = 60.0
"""For this long a trial is not offered again to an agent that refused it."""
MAX_EXIT_CODE = 2**31
STAGE_CHARS = 200
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}")


def node_id(agent_id: str, node: str) -> str:
    """Return the name of an agent's node; "" is the agent's own."""
    return f"{agent_id}/{node}" if node else agent_id


@dataclass
class AgentSession:
    """One connection of an agent, as the web layer drives it."""

    _context: ServiceContext
    _connections: AgentBackend
    _connection: AgentConnection

    async def receive(self, message: Hello | MoreNodes | Heartbeat | TaskStarted | TaskStage | TaskExited) -> None:
        """Handle a message of the agent. Repeated and late ones change nothing.

        A node that has gone may have had tasks: what the agent says of them, and last of their ends, is heard here.

        Raises:
            Conflict: A newer connection of the same agent has taken over, or the agent was given up: it must
                connect anew.
        """
        self.heard()
        speaker = node_id(self._connection.agent_id, getattr(message, "node", ""))
        match message:
            case Hello():
                raise Conflict("an agent sends Hello once per connection")
            case MoreNodes():
                raise Conflict("an agent whose Hello names no nodes has no more of them")
            case Heartbeat():
                changed = message.queue is not None and self._connection.queue_changed(message.queue)
                if message.attestation is not None:
                    changed |= self._attested(message.attestation)
                if message.gpus is not None:
                    self._context.gpus.note(self._connection.agent_id, message.gpus, self._context.clock())
                if changed:
                    await self._context.write(lambda unit: unit.changed_cluster())
            case TaskStarted():
                await self._context.write(lambda unit: task_started(unit, speaker, message))
            case TaskStage():
                await self._context.write(lambda unit: task_stage(unit, speaker, message))
            case TaskExited():
                await self._exited(message, speaker)

    def heard(self) -> None:
        """Note that the agent is there.

        Raises:
            Conflict: It must connect anew, see `receive`.
        """
        if not self._connections.is_current(self._connection):
            raise Conflict(f"agent {self._connection.agent_id} has another connection, or was lost")
        self._connections.record_heartbeat(self._connection, self._context.clock())

    def _attested(self, said: Attestation) -> bool:
        """Take an attestation; return whether it changes what the agent enforces."""
        attested = self._connection.attested
        changed = attested.answer(said, self._context.settings.cluster_id)
        if changed:
            if attested.problem:
                _log.warning("the attestation of agent %s does not count: %s", attested.agent_id, attested.problem)
            self._context.scheduler_kick.set()
        return changed

    def attested_by(self, speaker: AgentSession) -> None:
        """Let the attestation of the agent that speaks for this node count for it."""
        self._connection.govern(self._connection.governing, speaker._connection.attested)

    async def _exited(self, message: TaskExited, agent_id: str) -> None:
        if message.reason in {REFUSED, MACHINE_RESTARTED}:
            least = REFUSAL_TTL if message.reason == REFUSED else 0.0
            found = await self._context.read(lambda s: _pause_of(s, message.allocation_id, agent_id, least))
            if found is not None:
                self._context.refusals[found[0], agent_id] = self._context.clock() + found[1]
        await self._context.write(lambda unit: task_exited(unit, agent_id, message))
        self._connection.send(ExitAck(allocation_id=message.allocation_id, run=message.run, node=message.node))

    def on_hang_up(self, close: Callable[[], None]) -> None:
        """Set how the master ends this connection when an administrator removes the agent."""
        self._connection.hang_up = close

    def closed(self) -> None:
        """Note that the connection is gone; the agent is suspect until it connects again."""
        if self._connections.disconnect(self._connection):
            _log.info("agent %s disconnected", self._connection.agent_id)
            self._context.scheduler_kick.set()


# --- in a transaction


def check_key(s: Session, agent: AgentCaller) -> None:
    """Check that an agent's key is still valid: the agent may be removed between its authentication and its Hello.

    Raises:
        Forbidden: The key is void.
    """
    if agent.key_hash and s.get(TokenRow, agent.key_hash) is None:
        raise Forbidden(
            f"the key of agent {agent.agent_id} is not valid any more: the agent was removed, or enrolled again"
        )


def check_address(address: str) -> None:
    """Check that an address is an IP address or a host name that can be dialled, and that a certificate can hold.

    Raises:
        Conflict: It is neither.
    """
    if not address or _HOST.fullmatch(address):
        return
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise Conflict(
            f"the agent's --address {address[:40]!r} is neither an IP address nor a host's name in ASCII",
            hint="det agent run --address ADDRESS; write other letters as xn--…",
        ) from None


def greet(unit: UnitOfWork, hello: Hello, agent: AgentCaller) -> Welcome:
    """Reconcile the tasks that the agent has with those that it should have.

    Raises:
        Forbidden: Its key is void: a row that was removed must not come back.
        Conflict: Its address cannot be dialled.
    """
    check_key(unit.session, agent)
    check_address(hello.address)
    _write_agent(unit, hello)
    tasks = {(task.allocation_id, task.run): task for task in hello.tasks}
    keep = []
    for row in parts.on_agent_in(unit.session, hello.agent_id, PLACED):
        if not gangs.holds(unit, row, hello.agent_id):
            continue  # its part here has ended; others have not
        task = tasks.pop((row.id, row.run), None)
        if task is not None:
            keep.append(row.id)
            if not task.exited:
                if task.begun:
                    gangs.started(unit, row, hello.agent_id)
                _end_without(unit, row, hello.agent_id, _missing(unit, hello, row))
            if row.state == AllocationState.TERMINATING:
                send_kill(unit, row, hello.agent_id)
        elif not gangs.has_begun(unit, row, hello.agent_id) and not _missing(unit, hello, row):
            send_launch(unit, row, only=hello.agent_id)
        else:
            # It was there and is not any more, or can never be: its agent lost it.
            gangs.lost(unit, row, hello.agent_id)
    for task in tasks.values():
        if task.exited:
            ack = ExitAck(allocation_id=task.allocation_id, run=task.run)
            unit.outbox.messages.append((hello.agent_id, ack))
    kill = sorted(task.allocation_id for task in tasks.values() if not task.exited)
    return Welcome(cluster_id=unit.settings.cluster_id, keep=sorted(keep), kill=kill, takes_more=True)


def _missing(unit: UnitOfWork, hello: Hello, row: AllocationRow) -> set[str]:
    """Return the slots that an allocation has on an agent, and that the agent no longer has.

    Where a batch system chooses the devices, their number is all that is known of them.
    """
    if hello.queue is not None:
        return set()
    return set(gangs.slots_on(unit, row, hello.agent_id)) - {slot.id for slot in hello.slots}


def _write_agent(unit: UnitOfWork, hello: Hello) -> None:
    row = unit.session.get(AgentRow, hello.agent_id)
    if row is None:
        row = AgentRow(id=hello.agent_id, created_at=unit.now)
        unit.session.add(row)
    row.state = "connected"
    row.version = hello.version
    row.serves_user = hello.serves_user
    row.runtimes, row.address = list(hello.runtimes), hello.address
    row.pool, row.labels = hello.pool, dict(hello.labels)
    row.max_zero_slot_tasks = hello.max_zero_slot_tasks
    row.millicpus = None if hello.cpus is None else round(hello.cpus * 1000)
    row.host_memory = hello.memory
    row.slots = [slot.model_dump(exclude={"allocation_id"}) for slot in hello.slots]
    row.last_seen = unit.now
    unit.changed_cluster()


def task_started(unit: UnitOfWork, agent_id: str, message: TaskStarted) -> None:
    """Handle the agent's report that it started a task."""
    row = _spoken_of(unit, agent_id, message)
    if row is None:
        return
    if row.agent_id == agent_id:
        row.address, row.port = message.address or row.address, message.port or row.port
        if message.secure:
            unit.holder(row).secured(unit, row)
    gangs.started(unit, row, agent_id)
    if message.machine and row.agent_id == agent_id:
        row.stage_message = f"{ON_NODE}{message.machine[:STAGE_CHARS]}"


def task_stage(unit: UnitOfWork, agent_id: str, message: TaskStage) -> None:
    """Handle the agent's report of how far it is with a launch."""
    row = _spoken_of(unit, agent_id, message)
    if row is None:
        return
    row.stage_message = message.message[:STAGE_CHARS]
    if message.stage == "queued":
        unit.changed_cluster()
        unit.holder(row).allocation_changed(unit, row)
        if row.experiment_id is not None:
            unit.changed_experiment(row.experiment_id)  # it may be the reason that the whole one waits for
    else:
        apply_allocation(unit, row, allocations.StageReached(AllocationState(message.stage.upper())))
    unit.holder(row).stage_reported(unit, row)


def task_exited(unit: UnitOfWork, agent_id: str, message: TaskExited) -> None:
    """Handle the end of a task whose records are delivered. A stale or unknown one is acknowledged all the same."""
    row = _spoken_of(unit, agent_id, message)
    if row is None:
        return
    if abs(message.exit_code or 0) >= MAX_EXIT_CODE:
        message = message.model_copy(update={"exit_code": None})
    if message.reason == REFUSED:
        _log.warning("agent %s refused %s: %s", agent_id, row.id, message.message or "no reason given")
        gangs.refused(unit, row, agent_id, message)
    elif message.reason == MACHINE_RESTARTED:
        _log.warning("agent %s lost %s: %s", agent_id, row.id, message.message)
        gangs.lost(unit, row, agent_id, message)
    else:
        gangs.exited(unit, row, agent_id, message)


def _spoken_of(unit: UnitOfWork, agent_id: str, message: TaskStarted | TaskStage | TaskExited) -> AllocationRow | None:
    """Return the allocation that an agent reports on.

    None if the agent does not hold it, or if it has ended, so that the report is late.
    """
    row = unit.allocation(message.allocation_id)
    if row is None or row.run != message.run or not gangs.holds(unit, row, agent_id):
        return None
    return None if row.state == AllocationState.TERMINATED else row


def lose(unit: UnitOfWork, agent_id: str, heard: float = 0.0) -> None:
    """Treat an agent's tasks as dead; their next attempts have higher run numbers, so they cannot write any more."""
    agent = unit.session.get(AgentRow, agent_id)
    if agent is not None:
        agent.state = "lost"
        agent.last_seen = max(agent.last_seen, heard)
        unit.changed_cluster()
    for row in parts.on_agent_in(unit.session, agent_id, PLACED):
        gangs.lost(unit, row, agent_id)


def _pause_of(s: Session, allocation_id: str, agent_id: str, least: float) -> tuple[int | str, float] | None:
    """Return what an agent has refused or lost, and for how long it is not asked again; None: it is at once."""
    row = s.get(AllocationRow, allocation_id)
    if row is None or not parts.on(s, row, agent_id):
        return None
    pause = max(least, no_progress.pause_before_next(s, row))
    return (holder_of(row), pause) if pause else None


def _end_without(unit: UnitOfWork, row: AllocationRow, agent_id: str, gone: Collection[str]) -> None:
    """End an allocation that runs on an agent which came back without some of its slots (a GPU fell off).

    Its task no longer has a device, or soon will not: it is killed, and a trial starts again elsewhere, uncounted.
    """
    if row.state == AllocationState.TERMINATING or not gone:
        return
    message = f"agent {agent_id} came back without {'slot' if len(gone) == 1 else 'slots'} {', '.join(sorted(gone))}"
    _log.warning("allocation %s: %s; it is killed", row.id, message)
    unit.holder(row).slots_gone(unit, row, message)
    apply_allocation(unit, row, AllocationKillRequested(unit.now))
