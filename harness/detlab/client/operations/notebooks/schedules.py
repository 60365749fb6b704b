"""Operations on schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detlab.client.operations.experiments import one, pages, upload
from detlab.client.transport.calls import Call, Flow, Progress, field_of, model
from detlab.schemas.taskwire import TaskView
from detlab.schemas.wire.notebooks.schedules import CreateSchedule, CreateScheduleReply, ScheduleView

if TYPE_CHECKING:
    from detlab.client.bundling.bundle import Bundle


def create_schedule(wanted: CreateSchedule, bundle: Bundle, progress: Progress | None) -> Flow[CreateScheduleReply]:
    """Upload the notebook if the master lacks it, then make the schedule; repeating this makes nothing twice."""
    yield from upload(bundle, progress)
    return (yield Call("POST", "schedules", json=wanted, parse=model(CreateScheduleReply)))


def schedules(limit: int | None = None, owner: str | None = None) -> Flow[list[ScheduleView]]:
    """List the caller's schedules, the oldest first; to administrators those of everybody."""
    return pages("schedules", ScheduleView, "after", limit, {"owner": owner})


def schedule(schedule_id: int) -> Flow[ScheduleView]:
    """Fetch one schedule."""
    return one(Call("GET", f"schedules/{int(schedule_id)}", parse=model(ScheduleView)))


def pause_schedule(schedule_id: int) -> Flow[ScheduleView]:
    """Have a schedule start nothing until it is resumed."""
    return one(Call("POST", f"schedules/{int(schedule_id)}/pause", parse=model(ScheduleView)))


def resume_schedule(schedule_id: int) -> Flow[ScheduleView]:
    """Let a schedule go on."""
    return one(Call("POST", f"schedules/{int(schedule_id)}/resume", parse=model(ScheduleView)))


def run_schedule(schedule_id: int) -> Flow[TaskView]:
    """Start a run of a schedule now."""
    return one(Call("POST", f"schedules/{int(schedule_id)}/run", parse=field_of("task", TaskView), again=False))


def remove_schedule(schedule_id: int) -> Flow[ScheduleView]:
    """Remove a schedule; return it as it was."""
    return one(Call("DELETE", f"schedules/{int(schedule_id)}", parse=model(ScheduleView), again=False))
