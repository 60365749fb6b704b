"""Tasks that users start directly: notebooks, shells, commands, TensorBoards, borrowed cells, notebook runs."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden, Problem
from detlab.schemas import taskconf
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskEnd, TaskKind, TaskPage, TaskView
from detlab.schemas.wire import LogLine, TrialState
from detlab_hub.core.lifecycle import usertask
from detlab_hub.core.rights import ACTIONS, Action, ObjectKind
from detlab_hub.services.admission import cost_caps
from detlab_hub.services.admission.bundles import may_use
from detlab_hub.services.admission.destinations import destination_of, tasks_in
from detlab_hub.services.base import audit, references
from detlab_hub.services.base.access import check_may_ask, may_open_task, may_read, may_see_task, no_such, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.parts import TASKS
from detlab_hub.services.base.configs.rules import rules_for
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.limits.checks import check_queued
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.lifecycle.queue_fields import queue_fields
from detlab_hub.services.lifecycle.task_transitions import apply_task
from detlab_hub.services.logs.log_search import LogSearch
from detlab_hub.services.usertasks.prepared import feasible, prepare
from detlab_hub.services.views import pages, task_views
from detlab_hub.store.idempotency import key_problems, known_task
from detlab_hub.store.queries import limits
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.tables import TaskNote, TaskRow, TrialRow, clean_text

NAME_CHARS = 200
MOST_SHOWN = 1000
"""Experiments, or trials, of one TensorBoard: each is looked up."""
ROW_IDS = range(1, 2**63)
"""The ids that a database can hold."""
TASK_ID = re.compile(r"[a-z_]{1,20}-[0-9a-f]{12}")
DRAWN = re.compile(rf"(?:{'|'.join(kind for kind in TaskKind if kind.served_by_hub)})-[0-9a-f]{{8}}")
"""A server's name that we drew; the id of its task begins with it."""
SERVER_NAME_CHARS = 255
LIVE = tuple(state.value for state in TrialState if not state.terminal)


class StateOnly(Forbidden):
    """The caller sees the state of a task, as a member of its workspace, and asked for what is in it."""


class UserTasks(Service):
    """Use cases of user tasks. All raise NotFound for a task that the caller may not know of."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._search = LogSearch(context)

    async def create(self, caller: Caller, request: CreateTask) -> CreateTaskReply:
        """Queue a task that the master runs by itself; a server of the Hub is started through `hubservers`.

        Raises:
            ConfigError: With every mistake.
            ResourcesError: No agent could ever run it.
            Conflict: The kind is a server of the Hub.
            TooFast: The caller submits too often.
            TooMany: The caller has too many jobs that have not ended.
            NotAllowed: Its priority is better than the caller may give.
        """
        if request.kind.served_by_hub and not request.dry_run:
            raise Conflict(f"a {request.kind} is started by the Hub")
        config, reply = await self.check(caller, request)
        if request.dry_run:
            return reply
        reasons = self._context.pending_reasons

        def make(unit: UnitOfWork) -> CreateTaskReply:
            known = known_task(unit.session, caller.name, request.idempotency_key)
            row = known or create_row(unit, caller, request, config, key=request.idempotency_key or None)
            view = task_views.task_view(unit.session, row, reasons, full=True)
            return reply.model_copy(update={"task": view, "created": known is None})

        return await self._context.write(make)

    async def check(self, caller: Caller, request: CreateTask) -> tuple[dict[str, Any], CreateTaskReply]:
        """Complete and check what is to be queued; return its config, and the reply without a task.

        Raises:
            ConfigError: With every mistake.
            ResourcesError: No agent could ever run it.
            TooFast: The caller submits too often.
        """
        made = await prepare(self._context, caller, request.kind, request.config, request.config_yaml, request.template)
        config, warnings = made.config, [*made.warnings]
        if await self._context.read(lambda s: known_task(s, caller.name, request.idempotency_key)) is None:
            if not request.dry_run:
                self._context.limiter.submission(caller.name, caller.groups)
            warnings += await feasible(self._context, caller, request.kind, made)
            warnings += self._context.halted_warnings
        given = list(made.given)
        return config, CreateTaskReply(created=False, warnings=warnings, config=masked_config(config), given=given)

    async def list(
        self,
        caller: Caller,
        *,
        limit: int = 100,
        before: str | None = None,
        kinds: Sequence[str] = (),
        states: Sequence[str] = (),
        owner: str | None = None,
        workspace: str | None = None,
        project: str | None = None,
    ) -> TaskPage:
        """Return a page of tasks, newest first; administrators see those of all users.

        Of a workspace or a project those of all users, if the caller is a member: of others' their state alone.

        Raises:
            NotFound: `before` is no task that the caller may know of; or there is no such workspace or project for
                them.
        """

        def page(s: Session) -> TaskPage:
            query = select(TaskRow.id).order_by(TaskRow.created_at.desc(), TaskRow.id.desc()).limit(limit + 1)
            if workspace is None and project is None:
                query = query.where(visible(ObjectKind.TASK, person(caller), owner=TaskRow.owner))
            else:
                theirs = visible(
                    ObjectKind.TASK_STATE, person(caller), owner=TaskRow.owner, workspace_id=TaskRow.workspace_id
                )
                query = query.where(theirs, *tasks_in(s, caller, workspace, project))
            if owner is not None:
                query = query.where(TaskRow.owner == owner)
            if kinds:
                query = query.where(TaskRow.kind.in_(list(kinds)))
            if states:
                query = query.where(TaskRow.state.in_(list(states)))
            if before:
                shown = _last_shown(s, caller, before)
                earlier = (TaskRow.created_at == shown.created_at) & (TaskRow.id < shown.id)
                query = query.where((TaskRow.created_at < shown.created_at) | earlier)
            views = partial(task_views.views_for, s, caller, reasons=self._context.pending_reasons)
            items, last = pages.of_rows(s, TaskRow, list(s.scalars(query)), limit, views)
            return TaskPage(items=items, next=None if last is None else last.id)

        return await self._context.look(caller.name, page)

    async def get(self, caller: Caller, task_id: str) -> TaskView:
        """Return one task with its config, secrets masked; to other members of its workspace its state alone."""
        reasons = self._context.pending_reasons
        return await self._context.read(
            lambda s: task_views.view_for(s, caller, seen_task(s, caller, task_id), reasons)
        )

    async def end(self, caller: Caller, task_id: str, reason: TaskEnd = TaskEnd.KILLED) -> TaskView:
        """End a task now; one that has ended is left unchanged."""

        def end(unit: UnitOfWork) -> TaskView:
            row = seen_task(unit.session, caller, task_id, Action.TASK_KILL)
            before = row.state
            apply_task(unit, row, usertask.EndRequested(reason))
            if row.state != before and reason is TaskEnd.KILLED:
                audit.note(unit, caller, "task.kill", f"task {row.id}", row.name)
            return task_views.view_for(unit.session, caller, row, self._context.pending_reasons)

        return await self._context.write(end)

    async def logs(
        self, caller: Caller, task_id: str, *, regex: str | None = None, context: int = 0, **wanted: Any
    ) -> tuple[Sequence[LogLine], logs.Edges]:
        """Return lines of the task's output (`wanted`: fields of `logs.Wanted`), and where to continue."""
        wanted_lines = logs.Wanted(**wanted)
        return await self._search.page(
            caller.name, lambda s: owned_task(s, caller, task_id).id, wanted_lines, regex, context
        )

    async def follow_logs(self, caller: Caller, task_id: str, after: int = 0) -> AsyncIterator[Any]:
        """Yield batches of the task's output after a line; end when the task has ended and all of it was sent."""
        known = await self._context.read(lambda s: owned_task(s, caller, task_id).id)

        def ended(s: Session) -> bool:
            row = s.get(TaskRow, known)
            return row is None or TrialState(row.state).terminal

        async for lines in self._context.follow_lines(caller.name, known, ended, after):
            yield lines


def _last_shown(s: Session, caller: Caller, task_id: str) -> TaskRow:
    """Load the task before which a page begins. With another user's task, the page would reveal when it was made."""
    row = s.get(TaskRow, task_id)
    if row is None or not may_see_task(s, caller, row):
        raise no_such(
            f"there is no task {task_id[:80]!r} before which a page could begin",
            exists=row is not None,
            hint="`before` is the id of the last task of the page before (its `next`); leave it out for the first page",
        )
    return row


# --- in a transaction


def create_row(
    unit: UnitOfWork,
    caller: Caller,
    request: CreateTask,
    config: dict[str, Any],
    *,
    key: str | None,
    notes: Mapping[TaskNote, Any] = MappingProxyType({}),
    **more: Any,
) -> TaskRow:
    """Make a user task and ask for its place; `notes` are the master's own.

    Raises:
        ConfigError: Its code was not uploaded, the owner may not read what a TensorBoard shows, there is no such
            workspace or project for them, or a config policy does not allow it.
        NoUid: No uid is left for the owner.
        TooMany: The owner has too many jobs that have not ended.
        NotAllowed: Its priority is better than the owner may give.
    """
    uids.assign(unit, caller.name)
    problems = unknown(unit.session, caller, request)
    if problems:
        raise taskconf.refused(problems)
    check_queued(unit.settings.limits, caller.name, caller.groups, limits.live_jobs(unit.session, caller.name))
    slots = int((config.get("resources") or {}).get("slots") or 0)
    if slots:
        cost_caps.check(unit.session, caller, caller.name, unit.now)
    place = destination_of(unit.session, caller, config)
    rules_for(unit.session, place.workspace_id, TASKS).check(config)  # as of now
    if place.reference:  # whose workspace it is, for who submits the same again
        config = {**config, "workspace": place.reference}
    # Nothing is made for who works alone.
    workspace_id, project_id = place.made(unit) if place.reference or place.project is not None else (None, None)
    row = TaskRow(
        id=_draw_id(unit.session, request.kind, more.get("server_name") or ""),
        kind=request.kind.value,
        name=(request.name or config.get("description") or request.kind.value.replace("_", " "))[:NAME_CHARS],
        owner=caller.name,
        key=key,
        workspace_id=workspace_id,
        project_id=project_id,
        state=TrialState.ACTIVE.value,
        config=config,
        bundle=request.bundle,
        source=_source(request, caller, notes),
        **queue_fields(unit.settings, config, slots, caller),
        run=0,
        experiment_ids=request.experiment_ids,
        trial_ids=request.trial_ids,
        idle_timeout=config.get("idle_timeout"),
        created_at=unit.now,
        **more,
    )
    unit.session.add(row)
    unit.session.flush()
    references.record(unit.session, caller, "task", row.id, config)
    apply_task(unit, row, usertask.UserTaskCreated())
    audit.note(unit, caller, "task.create", f"task {row.id}", row.name)
    unit.changed_task(row)
    return row


def _source(request: CreateTask, caller: Caller, notes: Mapping[TaskNote, Any]) -> dict[str, Any]:
    by_run = {} if caller.run is None else {TaskNote.BY_RUN: caller.run}
    noted = {note.value: value for note, value in {**notes, **by_run}.items()}
    return {**request.source.model_dump(mode="json", exclude_defaults=True), **noted}


def unknown(s: Session, caller: Caller, request: CreateTask) -> list[Problem]:
    """Check what a request names: code, experiments, trials that its owner may use, and their number."""
    found = key_problems(request.idempotency_key)
    for which, numbers in (("experiment_ids", request.experiment_ids), ("trial_ids", request.trial_ids)):
        if len(numbers) > MOST_SHOWN:
            found.append(Problem(which, f"has {len(numbers):,} numbers; a task shows at most {MOST_SHOWN:,}"))
    if found:
        return found
    if request.bundle is not None and not may_use(s, caller, request.bundle):
        found.append(Problem("bundle", f"{request.bundle[:80]} was not uploaded", "upload it: PUT bundles/DIGEST"))
    for number in request.experiment_ids:
        if number not in ROW_IDS or not may_read(s, caller, number):
            found.append(Problem("experiment_ids", f"there is no experiment {number}", "det experiment list"))
    for number in request.trial_ids:
        trial = s.get(TrialRow, number) if number in ROW_IDS else None
        if trial is None or not may_read(s, caller, trial.experiment_id):
            found.append(Problem("trial_ids", f"there is no trial {number}", "det experiment list-trials EXPERIMENT"))
    return found


def _draw_id(s: Session, kind: TaskKind, server_name: str) -> str:
    """Draw an unused task id. The id of a server with a drawn name derives from that name, as users see both."""
    for _ in range(10):
        drawn = DRAWN.fullmatch(server_name) is not None and server_name.startswith(f"{kind.value}-")
        found = f"{server_name}{secrets.token_hex(2)}" if drawn else f"{kind.value}-{secrets.token_hex(6)}"
        if s.get(TaskRow, found) is None:
            return found
    return f"{kind.value}-{secrets.token_hex(6)}"  # a server that was started thousands of times


def seen_task(s: Session, caller: Caller, task_id: str, action: Action | None = None) -> TaskRow:
    """Load a task whose state the caller may see, perhaps as a member of its workspace, and do what `action` says.

    Nothing but its state may be given to them: see `task_views.views_for`. It is named as for `owned_task`.

    Raises:
        NotFound: It does not exist, or not for the caller: they cannot tell.
        Forbidden: They may see its state, and not do that.
    """
    row = _named_task(s, caller, task_id)
    if row is None or not may_see_task(s, caller, row):
        raise no_such(f"there is no task {task_id[:80]}", exists=row is not None, hint="det task list")
    if action is not None and not may_see_task(s, caller, row, action):
        check_may_ask(caller, action)
        who = "they and administrators" if action is Action.TASK_MOVE else "they and admins of its workspace"
        raise Forbidden(f"task {row.id} is {row.owner}'s: only {who} may {ACTIONS[action].does}")
    return row


def owned_task(s: Session, caller: Caller, task_id: str, action: Action | None = None) -> TaskRow:
    """Load a task all of which the caller may read (I9), and with which they may do what `action` says.

    It is named by its id, or by the name of its server at the Hub.

    A server's name means the task that it runs now, or ran last; it is always the caller's own server.

    Raises:
        NotFound: It does not exist, or is another user's: the caller cannot tell.
        StateOnly: They see its state alone, as a member of its workspace.
        Forbidden: They may read it, and not do that.
    """
    row = _named_task(s, caller, task_id)
    if row is not None and not may_open_task(caller, row) and may_see_task(s, caller, row):
        raise StateOnly(
            f"task {row.id} is {row.owner}'s: members of its workspace see its state, not what is in it",
            hint=f"det task describe {row.id}",
        )
    if row is None or not may_open_task(caller, row):
        raise no_such(f"there is no task {task_id[:80]}", exists=row is not None, hint="det task list")
    if action is not None and not may_open_task(caller, row, action):
        check_may_ask(caller, action)
        raise Forbidden(f"task {row.id} is {row.owner}'s, who lets you read it, not change it")
    return row


def _named_task(s: Session, caller: Caller, task_id: str) -> TaskRow | None:
    row = s.get(TaskRow, task_id) if TASK_ID.fullmatch(task_id) else None
    return _of_server(s, caller, task_id) if row is None else row


def _of_server(s: Session, caller: Caller, name: str) -> TaskRow | None:
    """Return the newest task of the caller's own server of a name; others' go by their ids, for administrators, too."""
    if not 0 < len(name) <= SERVER_NAME_CHARS:
        return None
    query = select(TaskRow).where(TaskRow.server_name == clean_text(name), TaskRow.owner == person(caller).name)
    return s.scalar(query.order_by(TaskRow.created_at.desc(), TaskRow.id.desc()).limit(1))
