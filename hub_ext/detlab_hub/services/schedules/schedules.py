"""Schedules: made, listed, paused, resumed and removed by their owners."""

from __future__ import annotations

from dataclasses import replace
from datetime import tzinfo
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Problem
from detlab.schemas import taskconf
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskKind, TaskSource
from detlab.schemas.wire.notebooks.schedules import (
    CreateSchedule,
    CreateScheduleReply,
    ScheduleList,
    ScheduleState,
    ScheduleView,
)
from detlab_hub.core.rights import Action
from detlab_hub.core.schedules import Cron, CronError, next_time
from detlab_hub.services.admission.destinations import destination_of
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_may_ask, experiment_for, owns, person, schedule_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.limits.checks import check_schedules
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.schedules.firing import ScheduleFiring, awaited
from detlab_hub.services.schedules.views import schedule_view, schedule_views, zone_of
from detlab_hub.services.usertasks.prepared import feasible, prepare
from detlab_hub.services.usertasks.usertasks import seen_task, unknown
from detlab_hub.services.views import pages
from detlab_hub.store.idempotency import key_problems
from detlab_hub.store.queries.tasks import schedules
from detlab_hub.store.tables import ScheduleRow

NAMED = "notebook run"
"""The name of what was given none."""


class Schedules(Service):
    """Use cases of schedules. All raise NotFound for one that the caller may not know of."""

    def __init__(self, context: ServiceContext, firing: ScheduleFiring) -> None:
        super().__init__(context)
        self._firing = firing

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Schedules:
        """Make it with what fires them."""
        return cls(services.context, services[ScheduleFiring])

    async def create(self, caller: Caller, wanted: CreateSchedule) -> CreateScheduleReply:
        """Make a schedule, whose runs would be accepted now.

        Raises:
            ConfigError: With every mistake of the cron expression, the time zone and the config.
            Conflict: What it waits for has ended without completing.
            Forbidden: A notebook run asks; or the caller may put nothing into the workspace.
            NotFound: There is no such experiment, task or template for the caller.
            ResourcesError: No agent could ever run it.
            TooMany: The caller has too many.
        """
        check_may_ask(caller, Action.SCHEDULE_CREATE)
        owner = replace(caller, admin=False)  # it fires with the rights of a user
        first = _first(wanted, self._context.clock())
        request = _request(wanted)
        made = await prepare(self._context, owner, request.kind, request.config, None, request.template)
        warnings = [*made.warnings, *await feasible(self._context, owner, request.kind, made)]

        def make(unit: UnitOfWork) -> CreateScheduleReply:
            before = schedules.known(unit.session, owner.name, wanted.idempotency_key)
            row = before or _add(unit, owner, wanted, request, made.config, first)
            view = schedule_view(unit.session, row)
            given = list(made.given)
            return CreateScheduleReply(schedule=view, created=before is None, warnings=warnings, given=given)

        return await self._context.write(make)

    async def list(
        self, caller: Caller, *, limit: int = 100, after: int | None = None, owner: str | None = None
    ) -> ScheduleList:
        """Return one page of the caller's schedules, the oldest first; to administrators those of everybody."""

        def look(s: Session) -> ScheduleList:
            ids = schedules.page(s, person(caller), limit + 1, after, owner)
            items, last = pages.of_rows(s, ScheduleRow, ids, limit, lambda rows: schedule_views(s, rows))
            return ScheduleList(items=items, next=None if last is None else last.id)

        return await self._context.look(caller.name, look)

    async def get(self, caller: Caller, schedule_id: int) -> ScheduleView:
        """Return one schedule with its next times and its config, secrets masked."""
        return await self._context.read(lambda s: schedule_view(s, schedule_for(s, caller, schedule_id)))

    async def pause(self, caller: Caller, schedule_id: int) -> ScheduleView:
        """Have a schedule start nothing until it is resumed; one that is paused is left alone.

        Raises:
            Conflict: It is done.
        """

        def pause(unit: UnitOfWork) -> ScheduleView:
            row = schedule_for(unit.session, caller, schedule_id, Action.SCHEDULE_PAUSE)
            _check_not_done(row)
            if row.state != ScheduleState.PAUSED:
                row.state, row.reason = ScheduleState.PAUSED.value, ""
                audit.note(unit, caller, Action.SCHEDULE_PAUSE, f"schedule {row.id}", row.name)
            return schedule_view(unit.session, row)

        return await self._context.write(pause)

    async def resume(self, caller: Caller, schedule_id: int) -> ScheduleView:
        """Let a schedule go on that was paused or disabled; what was due meanwhile is made up for by one run.

        Raises:
            Conflict: It is done.
        """

        def resume(unit: UnitOfWork) -> ScheduleView:
            row = schedule_for(unit.session, caller, schedule_id, Action.SCHEDULE_RESUME)
            _check_not_done(row)
            if row.state != ScheduleState.ACTIVE:
                row.state, row.reason, row.note = ScheduleState.ACTIVE.value, "", ""
                audit.note(unit, caller, Action.SCHEDULE_RESUME, f"schedule {row.id}", row.name)
            return schedule_view(unit.session, row)

        return await self._context.write(resume)

    async def remove(self, caller: Caller, schedule_id: int) -> ScheduleView:
        """Remove a schedule; return it as it was. What it has started goes on."""

        def remove(unit: UnitOfWork) -> ScheduleView:
            row = schedule_for(unit.session, caller, schedule_id, Action.SCHEDULE_REMOVE)
            view = schedule_view(unit.session, row)
            unit.session.delete(row)
            audit.note(unit, caller, Action.SCHEDULE_REMOVE, f"schedule {row.id}", row.name)
            return view

        return await self._context.write(remove)

    async def run(self, caller: Caller, schedule_id: int) -> CreateTaskReply:
        """Start a run of a schedule now, whatever its state; when it is due next stays.

        Raises:
            Conflict: Its run before has not ended; or its owner is no user of the Hub any more.
            DetlabError: What a submission of its owner would be refused for.
        """
        owner = await self._context.read(lambda s: schedule_for(s, caller, schedule_id, Action.SCHEDULE_RUN).owner)
        return await self._firing.run(schedule_id, caller if owns(caller, owner) else None, by=caller.name)


def _check_not_done(row: ScheduleRow) -> None:
    if row.state == ScheduleState.DONE:
        hint = f"Have it run again: det schedule run-now {row.id}"
        raise Conflict(f"schedule {row.id} is done: it was to start one run", hint=hint)


def _first(wanted: CreateSchedule, now: float) -> float | None:
    """Return when a schedule is due first; None: when what it waits for has completed.

    Raises:
        ConfigError: Of the cron expression and the time zone, all that is wrong.
    """
    problems: list[Problem] = key_problems(wanted.idempotency_key)
    cron: Cron | None = None
    zone: tzinfo | None = None
    try:
        zone = zone_of(wanted.time_zone)
    except ValueError as error:
        problems.append(Problem("time_zone", str(error), "an IANA name, such as Europe/Berlin"))
    try:
        cron = Cron.parse(wanted.cron) if wanted.cron.strip() else None
    except CronError as error:
        hint = "minute hour day-of-month month day-of-week, such as 0 6 * * 1-5, or @daily"
        problems += [Problem("cron", mistake, hint) for mistake in error.mistakes]
    if problems:
        raise ConfigError(problems, "the schedule cannot be made")
    return None if cron is None or zone is None else next_time(cron, now, zone)


def _request(wanted: CreateSchedule) -> CreateTask:
    return CreateTask(
        kind=TaskKind.NOTEBOOK_RUN,
        name=wanted.name,
        config=wanted.config or {},
        bundle=wanted.bundle,
        template=wanted.template,
        source=TaskSource(notebook=wanted.notebook, parameters=wanted.parameters),
    )


def _add(
    unit: UnitOfWork,
    owner: Caller,
    wanted: CreateSchedule,
    request: CreateTask,
    completed: dict[str, Any],
    first: float | None,
) -> ScheduleRow:
    s = unit.session
    if problems := unknown(s, owner, request):
        raise taskconf.refused(problems)
    check_schedules(unit.settings.limits, owner.name, owner.groups, schedules.count_of(s, owner.name))
    place = destination_of(s, owner, completed)
    workspace_id, project_id = place.made(unit) if place.reference or place.project is not None else (None, None)
    row = ScheduleRow(
        owner=owner.name,
        owner_groups=sorted(owner.groups),
        key=wanted.idempotency_key or None,
        name=wanted.name or NAMED,
        workspace_id=workspace_id,
        project_id=project_id,
        config=request.config,
        template=wanted.template,
        bundle=wanted.bundle,
        notebook=wanted.notebook,
        parameters=wanted.parameters,
        cron=wanted.cron.strip(),
        time_zone=wanted.time_zone,
        after_experiment=wanted.after_experiment,
        after_task=None if wanted.after_task is None else seen_task(s, owner, wanted.after_task).id,
        next_at=first,
        created_at=unit.now,
    )
    if wanted.after_experiment is not None:
        experiment_for(s, owner, wanted.after_experiment)
    if not row.cron and (never := awaited(s, owner, row)):
        raise Conflict(f"{never}: nothing would run", hint="Run it now: det notebook run, without --after")
    s.add(row)
    s.flush()
    audit.note(unit, owner, Action.SCHEDULE_CREATE, f"schedule {row.id}", f"{row.name}: {_when(row)}")
    return row


def _when(row: ScheduleRow) -> str:
    if row.cron:
        return f"{row.cron} ({row.time_zone})"
    return f"after experiment {row.after_experiment}" if row.after_task is None else f"after task {row.after_task}"
