"""Routes of schedules."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.taskwire import CreateTaskReply
from detlab.schemas.wire import Wire
from detlab.schemas.wire.notebooks.schedules import CreateSchedule, CreateScheduleReply, ScheduleList, ScheduleView
from detlab_hub.core.rights import Action
from detlab_hub.services.schedules.schedules import Schedules as SchedulesService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class SchedulesQuery(Wire):
    """Which schedules."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`next` of the page before."""
    owner: str | None = None


@route("schedules")
class Schedules(Guarded):
    """All of them."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: SchedulesQuery) -> ScheduleList:
        """List the caller's schedules, the oldest first; to administrators those of everybody."""
        return await self.services[SchedulesService].list(self.person, **query.model_dump())

    @needs("write", cross_site="xsrf", action=Action.SCHEDULE_CREATE)
    async def post(self, body: CreateSchedule) -> CreateScheduleReply:
        """Run a notebook by the clock, or once after something has completed, with the rights of that time."""
        return await self.services[SchedulesService].create(self.person, body)


@route("schedules/{schedule}")
class OneSchedule(Guarded):
    """One of them."""

    @needs("read", cross_site="xsrf")
    async def get(self, schedule: int) -> ScheduleView:
        """Return a schedule with its next times and its config."""
        return await self.services[SchedulesService].get(self.person, schedule)

    @needs("write", cross_site="xsrf", action=Action.SCHEDULE_REMOVE)
    async def delete(self, schedule: int) -> ScheduleView:
        """Remove a schedule; return it as it was. What it has started goes on."""
        return await self.services[SchedulesService].remove(self.person, schedule)


@route("schedules/{schedule}/pause")
class PauseSchedule(Guarded):
    """Pausing one."""

    @needs("write", cross_site="xsrf", action=Action.SCHEDULE_PAUSE)
    async def post(self, schedule: int) -> ScheduleView:
        """Have a schedule start nothing until it is resumed."""
        return await self.services[SchedulesService].pause(self.person, schedule)


@route("schedules/{schedule}/resume")
class ResumeSchedule(Guarded):
    """Resuming one."""

    @needs("write", cross_site="xsrf", action=Action.SCHEDULE_RESUME)
    async def post(self, schedule: int) -> ScheduleView:
        """Let a schedule go on; what was due meanwhile is made up for by one run."""
        return await self.services[SchedulesService].resume(self.person, schedule)


@route("schedules/{schedule}/run")
class RunSchedule(Guarded):
    """Running one now."""

    @needs("write", cross_site="xsrf", action=Action.SCHEDULE_RUN)
    async def post(self, schedule: int) -> CreateTaskReply:
        """Start a run of a schedule now; when it is due next stays."""
        return await self.services[SchedulesService].run(self.person, schedule)
