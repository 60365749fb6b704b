"""Servers that the Hub's spawner requests: create the task, keep its environment, report its state, release it.

Until the Hub has the server's address (`claim`), the stream that its spawner reads is the task's lease: if the Hub
dies, no client reads it, and the task is abandoned after a while. The environment of a server holds
its Hub token; it is in memory until the task runs and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas.runtimes import ANY, DOCKER, PROCESS
from detlab.schemas.taskwire import CreateTask, SpawnOffers, SpawnRequest, SpawnView, TaskEnd
from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.core.lifecycle import usertask
from detlab_hub.core.lifecycle.allocation import NOT_BEGUN
from detlab_hub.services.base import audit
from detlab_hub.services.base.callers import Caller, HubCaller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.services.lifecycle.allocation_transitions import send_launch
from detlab_hub.services.lifecycle.launching import has_certificate
from detlab_hub.services.lifecycle.task_transitions import apply_task, current_allocation
from detlab_hub.services.usertasks.prepared import feasible, prepare
from detlab_hub.services.usertasks.usertasks import LIVE, create_row
from detlab_hub.store.idempotency import known_task
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.tables import AgentRow, AllocationRow, TaskNote, TaskRow

POLL_SECONDS = 2.0
"""Seconds between two reads of a follower: its position in the queue changes without an event of its own."""
PAUSE_SECONDS = 0.1
"""Least time between two looks."""
TAIL_LINES = 20
KEY_CHARS = 100
SERVER_NAME_CHARS = 255
URL_CHARS = 2000
ENVIRONMENT_BYTES = 256 * 1024
_HAS = {PROCESS: "runs processes", DOCKER: "has a container engine"}
"""The text for a node that has a runtime; the same as in the other forms (form/runtimes.ts)."""
_WAITING = (AllocationState.PENDING, *NOT_BEGUN)


class Spawns(Service):
    """Use cases of the Hub's spawner."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._readers: Counter[str] = Counter()
        self._silent_since: dict[str, float] = {}

    async def post(self, hub: HubCaller, request: SpawnRequest) -> SpawnView:
        """Queue a server, or find the one that the same key made; its environment is renewed in both cases.

        Raises:
            ConfigError: With every mistake.
            ResourcesError: No agent could ever run it.
            Conflict: The key is another server's.
            TooFast: Its owner starts too many jobs lately.
            TooMany: Its owner has too many jobs that have not ended.
            NotAllowed: Its priority is better than its owner may give.
        """
        del hub  # its token is all it takes
        _check(request)
        caller = _owner_of(request)
        made = await prepare(self._context, caller, request.kind, request.config, None, request.template)
        config = made.config
        if request.hold:
            config["runtime"] = ANY
        if await self._context.read(lambda s: known_task(s, request.owner, _key(request))) is None:
            self._context.limiter.submission(request.owner, request.groups)
            await feasible(self._context, caller, request.kind, made)

        def make(unit: UnitOfWork) -> SpawnView:
            row = known_task(unit.session, request.owner, _key(request))
            if row is None:
                row = _create(unit, request, config)
            elif row.server_name != request.server_name:
                raise Conflict(f"the key of this spawn is that of server {row.server_name!r}")
            _keep_environment(unit, row, request.environment)
            return _view(unit.session, row, self._context)

        return await self._context.write(make)

    async def offers(self, hub: HubCaller, owner: str) -> SpawnOffers:
        """Return which runtimes a form must not offer to this user now, and why."""
        del hub
        nodes = self._context.backend.nodes(self._context.clock())
        there = [node for node in nodes if node.serves_user in {None, owner}]
        if not there:
            return SpawnOffers(closed=dict.fromkeys(_HAS, "no node is connected now"))
        offered = {runtime for node in there for runtime in node.runtimes}
        return SpawnOffers(closed={name: f"no node {word} now" for name, word in _HAS.items() if name not in offered})

    async def get(self, hub: HubCaller, task_id: str) -> SpawnView:
        """Return the state of a spawn.

        Raises:
            NotFound: There is no such spawn.
        """
        del hub
        return await self._context.read(lambda s: _view(s, _server(s, task_id), self._context))

    async def follow(self, hub: HubCaller, task_id: str) -> AsyncIterator[Sequence[SpawnView]]:
        """Yield every change of a spawn, until it has ended. Following is what keeps an unclaimed one alive."""
        self._readers[task_id] += 1
        try:
            with self._context.wakeups.listen("streams") as event:
                told: SpawnView | None = None
                while not self._context.stopped:
                    event.clear()
                    view = await self.get(hub, task_id)
                    if view != told:
                        yield [view]
                        told = view
                    if view.state.terminal:
                        return
                    await asyncio.sleep(PAUSE_SECONDS)
                    await wait_until(event, POLL_SECONDS)
        finally:
            self._readers[task_id] -= 1
            if not self._readers[task_id]:
                del self._readers[task_id]
            self._silent_since.pop(task_id, None)

    async def claim(self, hub: HubCaller, task_id: str) -> SpawnView:
        """Record that the Hub has the address: from now on its list of servers decides whether the task is wanted.

        Raises:
            Conflict: The task has ended.
        """
        del hub

        def claim(unit: UnitOfWork) -> SpawnView:
            row = _server(unit.session, task_id)
            if TrialState(row.state) is not TrialState.ACTIVE:
                raise Conflict(f"task {row.id} has ended: {row.end_reason}")
            row.claimed = True
            unit.changed_task(row)
            return _view(unit.session, row, self._context)

        return await self._context.write(claim)

    async def delete(self, hub: HubCaller, task_id: str) -> SpawnView:
        """End a server; one that waits is withdrawn. Doing it again changes nothing."""
        del hub

        def end(unit: UnitOfWork) -> SpawnView:
            row = _server(unit.session, task_id)
            current = current_allocation(unit, row)
            waits = current is not None and current.state in _WAITING
            before = row.state
            apply_task(unit, row, usertask.EndRequested(TaskEnd.CANCELED if waits else TaskEnd.KILLED))
            if row.state != before:  # the request came by the Hub
                audit.note(unit, audit.HUB, "task.stop", f"task {row.id}", row.name)
            return _view(unit.session, row, self._context)

        return await self._context.write(end)

    async def guard(self) -> None:
        """Abandon the spawns without a follower, and forget the environments of running tasks."""
        now = self._context.clock()
        unclaimed = await self._context.read(_unclaimed)
        self._silent_since = {
            task_id: self._silent_since.get(task_id, now) for task_id in unclaimed if not self._readers[task_id]
        }
        lease = self._context.settings.spawn_lease
        overdue = [task_id for task_id, since in self._silent_since.items() if now - since >= lease]
        if overdue:
            await self.abandon(overdue)
        known = set(self._context.spawn_secrets)
        if known:
            for task_id in await self._context.read(lambda s: _begun(s, known)):
                self._context.spawn_secrets.pop(task_id, None)

    async def abandon(self, task_ids: Sequence[str]) -> None:
        """End servers that no Hub waits for or knows."""

        def abandon(unit: UnitOfWork) -> None:
            for task_id in task_ids:
                apply_task(unit, unit.task(task_id), usertask.EndRequested(TaskEnd.ABANDONED))

        await self._context.write(abandon)


def _check(request: SpawnRequest) -> None:
    """Refuse what no spawner sends.

    Raises:
        ConfigError: With every mistake.
    """
    problems = []
    if not request.kind.served_by_hub:
        problems.append(Problem("kind", f"a {request.kind} is not a server of the Hub", "post it to tasks"))
    if not 8 <= len(request.key) <= KEY_CHARS:
        problems.append(Problem("key", f"must have 8 to {KEY_CHARS} characters"))
    if not request.owner:
        problems.append(Problem("owner", "is required"))
    if len(request.server_name) > SERVER_NAME_CHARS:
        problems.append(Problem("server_name", f"has more than {SERVER_NAME_CHARS} characters"))
    if len(request.base_url) > URL_CHARS or (not request.base_url.startswith("/") and request.base_url):
        problems.append(Problem("base_url", "must be a path"))
    if sum(len(name) + len(value) for name, value in request.environment.items()) > ENVIRONMENT_BYTES:
        problems.append(Problem("environment", f"is larger than {ENVIRONMENT_BYTES:,} bytes"))
    if any("\0" in text or "=" in name for name, value in request.environment.items() for text in (name, value)):
        problems.append(Problem("environment", "has a name or a value that no process can be given"))
    if problems:
        raise ConfigError(problems, "the spawn request has errors")


def _key(request: SpawnRequest) -> str:
    return f"hub:{request.key}"  # never a key that a user gives to a task of their own


def _create(unit: UnitOfWork, request: SpawnRequest, config: dict[str, object]) -> TaskRow:
    for older in unit.session.scalars(
        select(TaskRow).where(
            TaskRow.owner == request.owner, TaskRow.server_name == request.server_name, TaskRow.state.in_(LIVE)
        )
    ).all():
        # the Hub runs one server of a name at a time: it has lost this one
        apply_task(unit, older, usertask.EndRequested(TaskEnd.ABANDONED))
    created = CreateTask(
        kind=request.kind,
        name=request.name or None,
        bundle=request.bundle,
        experiment_ids=request.experiment_ids,
        trial_ids=request.trial_ids,
    )
    row = create_row(
        unit,
        _owner_of(request),
        created,
        config,
        key=_key(request),
        notes=_notes(request),
        server_name=request.server_name,
        base_url="" if request.hold else request.base_url,
    )
    wanted = config.get("idle_timeout")
    row.idle_timeout = unit.settings.idle_timeouts.get(row.kind) if wanted is None else float(str(wanted))
    row.idle_timeout = row.idle_timeout or None
    return row


def _owner_of(request: SpawnRequest) -> Caller:
    return Caller(request.owner, groups=frozenset(request.groups))


def _notes(request: SpawnRequest) -> dict[TaskNote, Any]:
    if request.hold:
        return {TaskNote.HOLD: True}
    return {TaskNote.SERVER_HOST: request.server_host} if request.server_host else {}


def _keep_environment(unit: UnitOfWork, row: TaskRow, environment: dict[str, str]) -> None:
    """Keep the environment until the task runs; a launch that had to wait for it is sent."""
    current = current_allocation(unit, row)
    if TrialState(row.state).terminal or current is None or current.state not in _WAITING:
        return
    unit.spawn_secrets[row.id] = dict(environment)
    if current.state in NOT_BEGUN and current.agent_id is not None:
        send_launch(unit, current)


def _server(s: Session, task_id: str) -> TaskRow:
    row = s.get(TaskRow, task_id)
    if row is None or row.server_name is None:
        raise NotFound(f"there is no spawn {task_id[:80]}")
    return row


def _view(s: Session, row: TaskRow, context: ServiceContext) -> SpawnView:
    s.flush()
    reasons = context.pending_reasons
    current = s.scalar(select(AllocationRow).where(AllocationRow.task_id == row.id, AllocationRow.run == row.run))
    state = TrialState(row.state)
    view = SpawnView(
        task_id=row.id,
        state=state,
        exit_code=row.exit_code,
        end_reason=None if row.end_reason is None else TaskEnd(row.end_reason),
    )
    if state.terminal:
        return _ended(s, row, view)
    if current is None:
        return view
    pending = current.state == AllocationState.PENDING
    return view.model_copy(
        update={
            "allocation_state": AllocationState(current.state),
            "place": reasons.places.get(current.id) if pending else None,
            "reason": reasons.get(current.id) if pending else None,
            "stage_message": current.stage_message or "",
            "agent_id": current.agent_id,
            "slots": current.slots,
            "gpu_uuids": _gpus(s, current),
            "address": current.address,
            "port": current.port,
            "secure": has_certificate(row, current),
        }
    )


def _gpus(s: Session, current: AllocationRow) -> list[str]:
    agent = s.get(AgentRow, current.agent_id) if current.agent_id and current.slots else None
    known = {} if agent is None else {slot["id"]: slot.get("uuid") for slot in agent.slots}
    return [uuid for slot in current.slots if (uuid := known.get(slot))]


def _ended(s: Session, row: TaskRow, view: SpawnView) -> SpawnView:
    failure = row.failure or {}
    tail = [line.text for line in lines.page(s, row.id, None, TAIL_LINES, TAIL_LINES)]
    return view.model_copy(update={"reason": failure.get("message"), "log_tail": tail})


_UNCLAIMED = select(TaskRow.id).where(
    TaskRow.state == TrialState.ACTIVE, TaskRow.server_name.is_not(None), TaskRow.claimed.is_(False)
)
"""Run every second, so prepared once, and read without the ORM."""


def _unclaimed(s: Session) -> list[str]:
    return list(s.connection().execute(_UNCLAIMED).scalars())


def _begun(s: Session, known: set[str]) -> set[str]:
    """Return the known tasks whose environment is not needed for a launch any more.

    One that this read does not see is being written just now: its environment has just arrived.
    """
    there = set(s.scalars(select(TaskRow.id).where(TaskRow.id.in_(known))))
    waiting = s.scalars(
        select(AllocationRow.task_id).where(AllocationRow.task_id.in_(known), AllocationRow.state.in_(_WAITING))
    )
    return there - {task_id for task_id in waiting if task_id is not None}
