"""Fires schedules: starts their runs as a submission of their owners would, with the rights of that moment.

A run, and that its schedule has fired for this time, are one transaction: after a crash nothing starts twice, and what
was due meanwhile is made up for by one run. A Hub that cannot be asked delays runs; it never widens rights.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, DetlabError, Forbidden, NotFound, Unavailable
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskKind, TaskSource
from detlab.schemas.wire import ExperimentState, TrialState
from detlab.schemas.wire.notebooks.schedules import ScheduleState
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import destination_of
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for, may_see_task
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.limits.reached import TooFast
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.services.schedules.views import next_of
from detlab_hub.services.usertasks.hub_client import HubServers
from detlab_hub.services.usertasks.usertasks import UserTasks, create_row
from detlab_hub.services.views import task_views
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.tasks import schedules
from detlab_hub.store.tables import ScheduleRow, TaskNote, TaskRow, WorkspaceRow

_log = logging.getLogger(__name__)
PERIOD = 1.0
"""Seconds between two looks at what is due."""
PER_STEP = 200
HUB_PAUSE = 10.0
"""Seconds until the Hub is asked again that did not answer."""
HUB_FAILURES = 2
"""Owners of whom the Hub says nothing, one after the other, until it is not asked of the others either."""
LOOK_FOR_FAILURES = 15.0
"""Seconds between two looks for runs that have failed."""
AGAIN = 600.0
"""Seconds until what waited for something, and was refused then, is tried again; so is what has met a bug."""
SWEPT = 500
MOST_TOLD = 5
"""Alerts of one schedule in a minute."""
CLIENT = "det schedule"


class OwnerGone(Conflict):
    """The owner is no user of the Hub any more."""


@dataclass(frozen=True)
class FiringOrder:
    """What fires: a schedule as it was read.

    Attributes:
        id: The schedule.
        owner: Whose it is.
        groups: Their groups, as the Hub has said last.
        next_at: When it was due; None: it has waited for something.
        request: The task, in the workspace and project that are meant by their names of now.
    """

    id: int
    owner: str
    groups: frozenset[str]
    next_at: float | None
    request: CreateTask


class ScheduleFiring(Service):
    """Starts what is due.

    Args:
        context: The master's.
        usertasks: Who checks submissions.
        hub: Knows who is a user and in which groups; None: what was known when a schedule was made counts.
    """

    def __init__(self, context: ServiceContext, usertasks: UserTasks, hub: HubServers | None) -> None:
        super().__init__(context)
        self._usertasks = usertasks
        self._hub = hub
        self._not_before: dict[int, float] = {}
        """Schedules whose owner submits too fast, or is not known now; and bugs -> when they are tried again."""
        self._hub_asked_again = self._failures_looked = -math.inf

    async def fire_schedules(self) -> None:
        """Start what is due, and tell owners of runs that have failed.

        Raises:
            Unavailable: The database is busy or broken; the rest comes with the next step.
        """
        now = self._context.clock()
        if self._context.settings.is_copy or now < self._hub_asked_again:
            return
        if abs(now - self._failures_looked) >= LOOK_FOR_FAILURES:
            self._failures_looked = now
            for schedule_id in await self._context.read(lambda s: schedules.failed(s, PER_STEP)):
                await self._context.write(partial(_tell_failure, schedule_id=schedule_id))
        self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        later, in_a_row = list(self._not_before), 0
        for schedule_id in await self._context.read(lambda s: schedules.due(s, now, PER_STEP, without=later)):
            in_a_row = 0 if await self._guarded(schedule_id) else in_a_row + 1
            if in_a_row == HUB_FAILURES:
                self._hub_asked_again = self._context.clock() + HUB_PAUSE
                return

    async def sweep(self) -> None:
        """Remove schedules that are done, when as much time has passed as after which their runs are removed."""
        keep = self._context.settings.tasks_keep
        before = self._context.clock() - keep
        while keep and await self._context.write(lambda unit: schedules.purge(unit.session, before, SWEPT)) == SWEPT:
            pass

    async def run(self, schedule_id: int, owner: Caller | None, *, by: str) -> CreateTaskReply:
        """Start a run now, whatever the state of its schedule.

        Args:
            schedule_id: The schedule.
            owner: Its owner, if they ask themselves; None: the Hub is asked for who they are now.
            by: Who asks.

        Raises:
            Conflict: Its run before has not ended; or its owner is no user of the Hub any more.
            DetlabError: What a submission of the owner would be refused for.
        """
        order = await self._context.read(lambda s: _order(s, schedule_id))
        if order is None:
            raise NotFound(f"there is no schedule {schedule_id}", hint="det schedule list")
        groups = await self._groups(order) if owner is None else owner.groups
        who = Caller(order.owner, groups=groups)
        config, reply = await self._usertasks.check(who, order.request)
        reasons = self._context.pending_reasons

        def start(unit: UnitOfWork) -> CreateTaskReply:
            row = unit.session.get(ScheduleRow, schedule_id)
            if row is None:
                raise NotFound(f"there is no schedule {schedule_id}", hint="det schedule list")
            if (before := _live(unit.session, row)) is not None:
                raise Conflict(f"the run before, {before}, has not ended", hint=f"det task kill {before}")
            task = _start(unit, row, who, order.request, config)
            row.last_due_at = None
            audit.note(unit, by, Action.SCHEDULE_RUN, f"schedule {row.id}", task.id)
            view = task_views.task_view(unit.session, task, reasons, full=True)
            return reply.model_copy(update={"task": view, "created": True})

        return await self._context.write(start)

    async def _guarded(self, schedule_id: int) -> bool:
        """Fire one schedule; whatever is wrong with it keeps the others from nothing."""
        try:
            return await self._fire(schedule_id)
        except Unavailable:
            raise
        except Exception:  # a bug: it is tried again later
            _log.exception("schedule %d could not be fired", schedule_id)
            self._not_before[schedule_id] = self._context.clock() + AGAIN
            return True

    async def _fire(self, schedule_id: int) -> bool:
        """Fire one schedule; return False if the Hub does not say who its owner is now."""
        order = await self._context.read(lambda s: _order(s, schedule_id))
        if order is None:
            return True
        try:
            who = Caller(order.owner, groups=await self._groups(order))
        except OwnerGone as error:
            await self._context.write(partial(_disable, order=order, why=error.message))
            return True
        except DetlabError as error:
            _log.warning("schedule %d waits: %s", schedule_id, error.message)
            self._not_before[schedule_id] = self._context.clock() + HUB_PAUSE
            return False
        if not await self._context.write(partial(_settled, order=order, who=who)):
            await self._submit(order, who)
        return True

    async def _submit(self, order: FiringOrder, who: Caller) -> None:
        """Start a run, or note why not.

        Raises:
            Unavailable: The database is busy or broken.
        """
        try:
            await self._context.read(lambda s: destination_of(s, who, order.request.config or {}))
        except (ConfigError, Forbidden, NotFound) as error:
            why = f"its owner may not put anything into its workspace or project any more: {_said(error)}"
            await self._context.write(partial(_disable, order=order, why=why))
            return
        try:
            config, _ = await self._usertasks.check(who, order.request)
            await self._context.write(partial(_begin, order=order, who=who, config=config))
        except TooFast as error:
            self._not_before[order.id] = self._context.clock() + (error.retry_after or HUB_PAUSE)
        except Unavailable:
            raise
        except DetlabError as error:
            await self._context.write(partial(_refused, order=order, why=_said(error)))

    async def _groups(self, order: FiringOrder) -> frozenset[str]:
        """Return the groups in which the owner is now.

        Raises:
            OwnerGone: They are no user of the Hub any more.
            DetlabError: The Hub cannot be asked.
        """
        if self._hub is None:
            return order.groups
        groups = await self._hub.groups_of(order.owner)
        if groups is None:
            raise OwnerGone(f"{order.owner} is no user of the Hub any more", hint="det schedule list")
        return groups


# --- in a transaction


def _order(s: Session, schedule_id: int) -> FiringOrder | None:
    row = s.get(ScheduleRow, schedule_id)
    if row is None:
        return None
    config = dict(row.config)
    if row.workspace_id is not None:
        place = s.get(WorkspaceRow, row.workspace_id)
        personal = place is not None and place.kind == workspaces.PERSONAL
        config["workspace"] = "" if personal else str(row.workspace_id)
        _, _, project = workspaces.labels(s, [row.project_id or 0]).get(row.project_id or 0, ("", "", ""))
        config["project"] = project or str(row.project_id)
    request = CreateTask(
        kind=TaskKind.NOTEBOOK_RUN,
        name=row.name,
        config=config,
        bundle=row.bundle,
        template=row.template,
        source=TaskSource(client=CLIENT, notebook=row.notebook, parameters=row.parameters),
    )
    return FiringOrder(row.id, row.owner, frozenset(row.owner_groups), row.next_at, request)


def _current(unit: UnitOfWork, order: FiringOrder) -> ScheduleRow | None:
    """Return the schedule if it is still due as it was read; else somebody has paused, removed or fired it."""
    row = unit.session.get(ScheduleRow, order.id)
    current = row is not None and row.state == ScheduleState.ACTIVE and row.next_at == order.next_at
    return row if current else None


def _settled(unit: UnitOfWork, order: FiringOrder, who: Caller) -> bool:
    """Settle what needs no run: nothing is due any more, the run before goes on, or what it waits for has failed."""
    row = _current(unit, order)
    if row is None:
        return True
    if not row.cron:
        why = awaited(unit.session, who, row)
        if why:
            row.state, row.reason, row.next_at = ScheduleState.DONE.value, f"nothing was started: {why}", None
            row.noted_at = unit.now
            _tell(unit, row, "has started nothing", why)
        return bool(why)
    before = _live(unit.session, row)
    if before is not None:
        row.skipped += 1
        _note(unit, row, f"the run before, {before}, had not ended")
        _advance(unit, row)
    return before is not None


def awaited(s: Session, owner: Caller, row: ScheduleRow) -> str:
    """Return why what a schedule waits for will never complete for its owner; empty: it has, or may still."""
    if row.after_experiment is not None:
        try:
            state = experiment_for(s, owner, row.after_experiment).state
        except NotFound:
            return f"experiment {row.after_experiment} is not there any more"
        over = state == ExperimentState.DELETING or ExperimentState(state).terminal
        failed = over and state != ExperimentState.COMPLETED
        return f"experiment {row.after_experiment} has ended without completing ({state})" if failed else ""
    task = s.get(TaskRow, row.after_task or "")
    if task is None or not may_see_task(s, owner, task):
        return f"task {row.after_task} is not there any more"
    failed = TrialState(task.state).terminal and task.state != TrialState.COMPLETED
    return f"task {task.id} has ended without completing ({task.state})" if failed else ""


def _begin(unit: UnitOfWork, order: FiringOrder, who: Caller, config: dict[str, Any]) -> None:
    """Start the run, unless it was started meanwhile or is not to be started any more."""
    if _settled(unit, order, who):
        return
    row = unit.session.get_one(ScheduleRow, order.id)
    task = _start(unit, row, who, order.request, config)
    row.last_due_at = order.next_at
    row.note, row.noted_at = "", None
    _log.info("schedule %d of %s: task %s", row.id, row.owner, task.id)
    if row.cron:
        _advance(unit, row)
    else:
        row.state, row.next_at = ScheduleState.DONE.value, None


def _start(unit: UnitOfWork, row: ScheduleRow, who: Caller, request: CreateTask, config: dict[str, Any]) -> TaskRow:
    task = create_row(unit, who, request, config, key=None, notes={TaskNote.SCHEDULE: row.id})
    row.owner_groups = sorted(who.groups)
    row.last_task, row.last_started_at = task.id, unit.now
    row.runs += 1
    return task


def _live(s: Session, row: ScheduleRow) -> str | None:
    """Return the newest run of a schedule if it has not ended."""
    task = None if row.last_task is None else s.get(TaskRow, row.last_task)
    return None if task is None or TrialState(task.state).terminal else task.id


def _advance(unit: UnitOfWork, row: ScheduleRow) -> None:
    """Set when it is due next: after now, so that what was missed is made up for once."""
    try:
        row.next_at = next_of(row, unit.now)
    except ValueError as error:  # the time zone has gone with an upgrade of the system
        row.state, row.reason = ScheduleState.DISABLED.value, str(error)
        return
    if row.next_at is None:
        row.state, row.reason = ScheduleState.DONE.value, "no calendar has another such day"


def _refused(unit: UnitOfWork, order: FiringOrder, why: str) -> None:
    """Note why a run was refused; its owner is told when the reason is another than the last time."""
    row = _current(unit, order)
    if row is None:
        return
    if row.note != why:
        _tell(unit, row, "could not start a run", why)
    _note(unit, row, why)
    if row.cron:
        _advance(unit, row)
    else:
        row.next_at = unit.now + AGAIN


def _disable(unit: UnitOfWork, order: FiringOrder, why: str) -> None:
    row = _current(unit, order)
    if row is None:
        return
    row.state, row.reason = ScheduleState.DISABLED.value, why
    audit.note(unit, row.owner, "schedule.disable", f"schedule {row.id}", why)
    _tell(unit, row, "was disabled", f"{why}\nOnce that has changed: det schedule resume {row.id}")


def _note(unit: UnitOfWork, row: ScheduleRow, why: str) -> None:
    row.note, row.noted_at = why, unit.now


def _tell_failure(unit: UnitOfWork, schedule_id: int) -> None:
    row = unit.session.get(ScheduleRow, schedule_id)
    task = None if row is None or row.last_task is None else unit.session.get(TaskRow, row.last_task)
    if row is None or task is None:
        return
    row.told_task = task.id
    cause = (task.failure or {}).get("message") or "it has failed"
    _tell(unit, row, "has started a run that failed", f"{cause}\ndet task logs {task.id}", "error")


def _tell(unit: UnitOfWork, row: ScheduleRow, title: str, text: str, level: str = "warn") -> None:
    said = Said("alert", f"schedule {row.id} ({row.name[:100]}) {title}", text, level)
    tell(unit, row.owner, f"schedule {row.id}", said, most=MOST_TOLD)


def _said(error: DetlabError) -> str:
    """Return an error in one text, with the first of its problems."""
    problems = error.problems if isinstance(error, ConfigError) else []
    more = "; ".join(f"{one.path}: {one.message}" if one.path else one.message for one in problems[:3])
    return f"{error.message}: {more}" if more and more not in error.message else error.message
