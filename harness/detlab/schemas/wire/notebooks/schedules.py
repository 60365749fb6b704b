"""Schedules: notebooks that run by the clock, or once after something else has completed."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from detlab.schemas.wire.base import PersonRequest, TrialState, Wire
from detlab.schemas.wire.views import GivenView, ProblemView


class ScheduleState(StrEnum):
    """What becomes of a schedule next."""

    ACTIVE = "active"
    PAUSED = "paused"
    """By a person; it waits for `resume`."""
    DISABLED = "disabled"
    """By the master, which says why; `resume` tries again."""
    DONE = "done"
    """It was to start one run, which was started, or never will be."""


class CreateSchedule(PersonRequest):
    """POST schedules: runs a notebook later, with the rights, quotas and policies of its owner at that time."""

    name: str | None = Field(None, max_length=200)
    """Also of the runs; null: `notebook run`."""
    config: dict[str, Any] | None = None
    """`schemas.taskconf`, as of a notebook run that starts now."""
    template: str | None = Field(None, max_length=1000)
    """A template of the master that is laid under the config at each start."""
    bundle: str | None = Field(None, max_length=200)
    """The notebook with what it imports: kept for as long as the schedule is there."""
    notebook: str | None = Field(None, max_length=4096)
    """Its path, for people."""
    parameters: dict[str, Any] = {}
    """What it is run with, for people."""
    cron: str = Field("", max_length=500)
    """Five fields, or `@daily` and the like."""
    time_zone: str = Field("UTC", min_length=1, max_length=100)
    """An IANA name, such as `Europe/Berlin`, where the fields are read."""
    after_experiment: int | None = Field(None, ge=1, lt=2**63)
    """Run once when this has completed, instead of `cron`."""
    after_task: str | None = Field(None, min_length=1, max_length=300)
    """Likewise."""
    idempotency_key: str | None = None

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if sum((bool(self.cron.strip()), self.after_experiment is not None, self.after_task is not None)) != 1:
            raise ValueError("say one of cron, after_experiment and after_task")
        return self


class ScheduleView(Wire):
    """A schedule."""

    id: int
    name: str = ""
    owner: str = ""
    state: ScheduleState = ScheduleState.ACTIVE
    reason: str = ""
    """Why it is disabled, or done without a run."""
    workspace: str = ""
    """Where its runs lie, as `OWNER/NAME`; empty: its owner's personal one."""
    workspace_id: int | None = None
    project: str = ""
    project_id: int | None = None
    cron: str = ""
    time_zone: str = "UTC"
    after_experiment: int | None = None
    after_task: str | None = None
    next_at: float | None = None
    """When it is due next; in the past: as soon as it is resumed, or the earlier refusal is tried again."""
    next_times: list[float] = []
    """When it is due next and after that, if it is active; only on a single schedule."""
    runs: int = 0
    """How many were started."""
    skipped: int = 0
    """How many were not, since the run before had not ended."""
    last_task: str | None = None
    """The newest run."""
    last_task_state: TrialState | None = None
    """None: it is there no more."""
    last_due_at: float | None = None
    """For when it was due; None: it was asked for by `run`, or waited for something."""
    last_started_at: float | None = None
    note: str = ""
    """Why what was due last was not started; empty: it was."""
    noted_at: float | None = None
    notebook: str | None = None
    parameters: dict[str, Any] = {}
    config: dict[str, Any] | None = None
    """As submitted, secrets masked; only on a single schedule."""
    created_at: float = 0.0
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""


class ScheduleList(Wire):
    """A page of schedules, the oldest first."""

    items: list[ScheduleView]
    next: int | None = None
    """`after` of the next page; null: this is the last one."""


class CreateScheduleReply(Wire):
    """What became of it."""

    schedule: ScheduleView
    created: bool = True
    """False: an earlier request with the same key has made it."""
    warnings: list[ProblemView] = []
    given: list[GivenView] = []
    """What a run would get now that its owner has not said: of its template, workspace, pool, cluster, policies."""
