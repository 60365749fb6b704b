"""User tasks that are servers of the Hub: started, stopped, ended when idle and abandoned through the Hub."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, DetlabError, Unavailable
from detlab.schemas import expconf
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskView
from detlab.schemas.wire import TrialState
from detlab_hub.core.rights import Action
from detlab_hub.services.base.access import check_may_ask
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.services.usertasks.ended_servers import StoppedServers
from detlab_hub.services.usertasks.hub_client import HubServers, ServerOfHub
from detlab_hub.services.usertasks.idle import Idle
from detlab_hub.services.usertasks.prepared import feasible, prepare
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import DRAWN, UserTasks, seen_task, unknown
from detlab_hub.services.views import task_views
from detlab_hub.store.tables import TaskRow

_log = logging.getLogger(__name__)
START_SECONDS = 20.0
"""Seconds in which the Hub must request the allocation of a server that it was asked to start."""
UNLISTED_SECONDS = 120.0
"""Seconds after which a server that the Hub does not list is taken for an orphan."""


class Servers(Service):
    """The use cases; without a Hub to ask, only the idle rules work."""

    def __init__(self, context: ServiceContext, usertasks: UserTasks, spawns: Spawns, hub: HubServers | None) -> None:
        super().__init__(context)
        self._usertasks = usertasks
        self._spawns = spawns
        self._hub = hub
        self.idle = Idle(context)
        self._stopped = StoppedServers(context)
        self._missing_since: dict[str, float] = {}
        self._working: set[asyncio.Task[None]] = set()

    async def start(self, caller: Caller, request: CreateTask) -> CreateTaskReply:
        """Have the Hub start a named server of the caller's; return its task as soon as it is queued.

        Raises:
            Forbidden: A notebook run asks.
            ConfigError: With every mistake.
            ResourcesError: No agent could ever run it.
            Unavailable: The Hub cannot be asked.
        """
        check_may_ask(caller, Action.TASK_START_SERVER)
        asker = replace(caller, admin=False)  # a server reads with its own Hub token, which is no administrator's
        made = await prepare(self._context, asker, request.kind, request.config, request.config_yaml, request.template)
        problems = await self._context.read(lambda s: unknown(s, asker, request))
        if problems:
            raise ConfigError(problems)
        shown = masked_config(made.config)
        reply = CreateTaskReply(created=False, warnings=[*made.warnings], config=shown, given=[*made.given])
        server = ServerOfHub(caller.name, _draw_name(caller.name, request))
        found = None if request.dry_run else await self._find(server)
        if found is not None:
            return reply.model_copy(update={"task": found})
        reply.warnings += await feasible(self._context, asker, request.kind, made)
        reply.warnings += self._context.halted_warnings
        if request.dry_run:
            return reply
        return reply.model_copy(update={"task": await self._start(server, request), "created": True})

    async def _start(self, server: ServerOfHub, request: CreateTask) -> TaskView:
        if self._hub is None:
            raise Unavailable("this master does not know its Hub, which starts notebooks, shells and TensorBoards")
        shown = request.name if request.name and request.name.isprintable() else ""
        starting = asyncio.ensure_future(self._hub.start(server.owner, server.name, _options(request), shown))
        deadline = self._context.clock() + START_SECONDS
        try:
            with self._context.wakeups.listen("streams") as event:
                while True:
                    event.clear()
                    done = starting.done()
                    found = await self._find(server)
                    if found is not None:
                        return found
                    if done:
                        await starting  # says what the Hub refused
                    if self._context.clock() > deadline:
                        raise Unavailable(
                            f"the Hub did not request an allocation for {server.name} within {START_SECONDS:.0f} s",
                            hint="See the Hub's log.",
                        )
                    await wait_until(event, 0.2)
        finally:
            self._in_background(_quietly(starting, f"start of {server.name}"))

    async def _find(self, server: ServerOfHub) -> TaskView | None:
        reasons = self._context.pending_reasons

        def find(s: Session) -> TaskView | None:
            query = select(TaskRow).where(TaskRow.owner == server.owner, TaskRow.server_name == server.name)
            row = s.scalar(query.order_by(TaskRow.created_at.desc()).limit(1))
            return None if row is None else task_views.task_view(s, row, reasons, full=True)

        return await self._context.read(find)

    async def end(self, caller: Caller, task_id: str) -> TaskView:
        """End a server: its task now, its route at the Hub with it."""

        def look(s: Session) -> tuple[bool, str, str | None]:
            row = seen_task(s, caller, task_id, Action.TASK_KILL)
            return row.claimed, row.owner, row.server_name

        claimed, owner, server = await self._context.read(look)  # members of its workspace get no view with its name
        view = await self._usertasks.end(caller, task_id)
        if claimed and server is not None:
            self._stop_at_hub(owner, server)
        return view

    async def cull_idle(self) -> None:
        """Warn the users of idle servers, and end them."""
        for owner, name in await self.idle.poll():
            self._stop_at_hub(owner, name)

    async def reconcile(self) -> None:
        """Give up the servers that the Hub does not list, and have it forget those that have ended.

        It was restarted before it knew them, or lost them.
        """
        if self._hub is None:
            return
        try:
            running = await self._hub.running()
        except DetlabError as error:
            _log.debug("servers are not compared with the Hub's: %s", error.message)
            return
        now = self._context.clock()
        claimed = await self._context.read(_claimed)
        newest = set({server: task_id for task_id, server in claimed}.values())
        missing = {task_id for task_id, server in claimed if server not in running or task_id not in newest}
        self._missing_since = {task_id: self._missing_since.get(task_id, now) for task_id in missing}
        gone = [task_id for task_id, since in self._missing_since.items() if now - since >= UNLISTED_SECONDS]
        if gone:
            _log.warning("the Hub does not know %s: ended", ", ".join(sorted(gone)))
            await self._spawns.abandon(gone)
        await self._stopped.sweep(self._hub)

    async def stop(self) -> None:
        """Cancel calls to the Hub."""
        for task in list(self._working):
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    def _stop_at_hub(self, owner: str, name: str) -> None:
        if self._hub is not None:
            remove = DRAWN.fullmatch(name) is not None
            self._in_background(_quietly(self._hub.stop(owner, name, remove=remove), f"stop of {name or owner}"))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)


async def _quietly(work: Any, what: str) -> None:
    try:
        await work
    except DetlabError as error:
        _log.warning("%s at the Hub: %s", what, error.message)


def _draw_name(owner: str, request: CreateTask) -> str:
    """Return the server's name; the same key gives the same one, so that a repeated submit starts nothing twice."""
    key = request.idempotency_key
    drawn = secrets.token_hex(4) if not key else hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()[:8]
    return f"{request.kind.value}-{drawn}"


def _options(request: CreateTask) -> dict[str, Any]:
    """Return the Hub's user options that make its spawner ask for this very task."""
    raw: Any = request.config
    if raw is None and request.config_yaml is not None:
        raw, _ = expconf.load_yaml(request.config_yaml, "config")
    options = {
        "kind": request.kind.value,
        "config": raw,
        "name": request.name,
        "bundle": request.bundle,
        "template": request.template,
        "experiment_ids": request.experiment_ids,
        "trial_ids": request.trial_ids,
    }
    return {name: value for name, value in options.items() if value}


def _claimed(s: Session) -> list[tuple[str, ServerOfHub]]:
    """Return the servers that the Hub has reported as known, oldest first."""
    query = (
        select(TaskRow.id, TaskRow.owner, TaskRow.server_name)
        .where(TaskRow.state == TrialState.ACTIVE, TaskRow.claimed.is_(True), TaskRow.server_name.is_not(None))
        .order_by(TaskRow.created_at)
    )
    return [(task_id, ServerOfHub(owner, name or "")) for task_id, owner, name in s.execute(query)]
