"""Wire models of the job queue and of quotas.

A job is what somebody put into the queue: an experiment, with all its trials, or one user task. Its id is the
experiment's number, or the task's id.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from detlab.schemas.taskwire import IdleGpuView
from detlab.schemas.wire import PersonRequest, Wire
from detlab.schemas.wire.grants import NAME_CHARS, GrantTo
from detlab.schemas.wire.workspaces import REFERENCE_CHARS

EXPERIMENT = "experiment"
"""`JobView.kind` of an experiment; else it is a `taskwire.TaskKind`."""
TRIAL_PREFIX = "trial-"
"""`GET jobs/trial-12/why` asks for trial 12; `jobs/12/why` for all that waits of experiment 12."""
MOST_SLOTS = 1_000_000
MOST_BYTES = 2**60
MOST_COST = 1e12
COST_ONLY = ("project", "experiment")
"""Kinds that have a cap of cost alone."""


class JobView(Wire):
    """A job that holds slots or waits for some."""

    id: str
    """`place 3` if the caller may not know."""
    kind: str
    """experiment, or a TaskKind"""
    name: str = ""
    owner: str
    """`another user` if the caller may not know."""
    mine: bool = False
    pool: str = ""
    state: str
    """`running` if it holds a place, `queued` if all of it waits."""
    order: int
    """Its place in its pool, from 1: as the scheduler looks at the jobs."""
    priority: int
    weight: float = 1.0
    max_slots: int | None = None
    slots_held: int = 0
    slots_wanted: int = 0
    """What its tasks that wait ask for."""
    tasks_waiting: int = 0
    submitted_at: float = 0.0
    moved: bool = False
    """It is not where its submission would put it."""
    reason: str = ""
    """Why the first of its tasks waits."""
    estimated_start: float | None = None
    """When that is expected to start, in seconds since the epoch: by the maximum times of what runs, or where there are
    none by how long completed trials of the same experiment took. null: not known."""
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""


class JobList(Wire):
    """GET jobs: by pool, in the order of each."""

    items: list[JobView] = []
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class JobUpdate(PersonRequest):
    """POST jobs/{job_id}: what shall change. What is not named stays as it is."""

    priority: int | None = Field(None, ge=1, le=99)
    weight: float | None = Field(None, gt=0, le=1e6, allow_inf_nan=False)
    pool: str | None = Field(None, min_length=1, max_length=255)
    ahead_of: str | None = Field(None, min_length=1, max_length=255)
    """Directly ahead of this job of the same pool."""
    behind_of: str | None = Field(None, min_length=1, max_length=255)
    """Directly behind it."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.ahead_of is not None and self.behind_of is not None:
            raise ValueError("either ahead_of or behind_of, not both")
        if not self.model_dump(exclude_none=True):
            raise ValueError("nothing to change: name priority, weight, pool, ahead_of or behind_of")
        return self


class HintView(Wire):
    """A change with which a task that waits would start now."""

    change: str
    """slots, cpus, memory, max_slots or pool"""
    value: str = ""
    """The number of slots or CPUs, a size of memory, or the pool's name."""
    text: str


class WaitView(Wire):
    """Why one task waits."""

    trial_id: int | None = None
    task_id: str | None = None
    slots: int
    pool: str = ""
    place: int
    """In the pool's queue, from 1; 0: it waits in the queue of the pool's batch system."""
    ahead: int = 0
    """How many tasks of other jobs wait before it."""
    waiting_since: float = 0.0
    reason: str
    """Of the closed set of `det cluster simulate`; `starting` if the next pass starts it,
    `batch_system` if it waits in that system's queue, for what `detail` says."""
    detail: str
    hints: list[HintView] = []
    estimated_start: float | None = None
    """As of `JobView`."""


class JobWhy(Wire):
    """GET jobs/{job_id}/why."""

    job: JobView
    items: list[WaitView] = []
    """Its tasks that wait, in the order of the queue; at most the first ten."""
    waiting: int = 0
    """How many wait."""
    idle: list[IdleGpuView] = []
    """What of it runs with GPUs at 0 %, to who may know its owner's usage."""


QuotaKind = Literal["user", "group", "workspace", "project", "experiment"]


class QuotaTo(Wire):
    """A user of the Hub, one of its groups, or a workspace: `NAME` of one's own, anybody's `OWNER/NAME`, or an id.

    For caps of cost also a project or an experiment, by its id.
    """

    kind: QuotaKind
    name: str = Field(min_length=1, max_length=REFERENCE_CHARS)

    @model_validator(mode="after")
    def _short(self) -> Self:
        if self.kind != "workspace" and len(self.name) > NAME_CHARS:
            raise ValueError(f"name has more than {NAME_CHARS} characters")
        if self.kind in COST_ONLY and not (self.name.isascii() and self.name.isdecimal() and len(self.name) < 19):
            raise ValueError(f"name must be the id of the {self.kind}, a number")
        return self


class QuotaRequest(QuotaTo, PersonRequest):
    """PUT quotas [admin]: what they may have at a time; what is not named stays as it is."""

    slots: int | None = Field(None, ge=0, le=MOST_SLOTS)
    """Slots that they may hold."""
    storage: int | None = Field(None, ge=0, le=MOST_BYTES)
    """Bytes that their checkpoints, code and outputs may take."""
    cost: float | None = Field(None, ge=0, le=MOST_COST, allow_inf_nan=False)
    """What a user or a project may cost in a month (UTC), or an experiment in all, in the cluster's currency."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.slots is None and self.storage is None and self.cost is None:
            raise ValueError("name slots, storage, cost or several of them")
        if self.kind in COST_ONLY and (self.slots is not None or self.storage is not None):
            raise ValueError(f"a {self.kind} has a cap of cost alone")
        if self.kind in ("group", "workspace") and self.cost is not None:
            raise ValueError(f"a {self.kind} has no cap of cost; users, projects and experiments have")
        if self.kind == "workspace" and self.storage is not None:
            raise ValueError("a workspace has a quota of slots alone; those of storage are for users and groups")
        return self


class QuotaRemoval(QuotaTo):
    """DELETE quotas [admin]."""

    what: Literal["slots", "storage", "cost"] | None = None
    """Only this one; null: all that there are."""


class QuotaView(GrantTo):
    """A quota of slots that stands, and what is used of it."""

    slots: int
    held: int = 0
    """Slots that are held under it now; more than its limit if that was lowered."""
    waiting: int = 0
    """Slots that wait under it."""
    set_by: str = ""
    set_at: float = 0.0


class StorageQuotaView(GrantTo):
    """A quota of bytes that stands, and what is used of it."""

    storage: int
    used: int = 0
    """Bytes of checkpoints, code and outputs; the trash does not count."""
    set_by: str = ""
    set_at: float = 0.0


class WorkspaceQuotaView(Wire):
    """A quota of slots of all that lies in a workspace, and what is used of it."""

    workspace_id: int
    workspace: str
    """`OWNER/NAME`."""
    slots: int
    held: int = 0
    waiting: int = 0


class CostCapView(Wire):
    """A cap of cost that stands, and what is used of it."""

    kind: str
    """user, project or experiment"""
    name: str
    """The user's name, or the id."""
    cost: float
    used: float = 0.0
    """This month (UTC); of an experiment in all."""
    reached: bool = False
    set_by: str = ""
    set_at: float = 0.0


class UidView(Wire):
    """The uid under which a user's tasks run on all nodes."""

    user: str
    uid: int
    account: bool = False
    """Whether it is that of an account, by the operator's map."""
    since: float = 0.0


class UidList(Wire):
    """GET uids: of all users whose tasks ran, by uid."""

    items: list[UidView] = []


class QuotaList(Wire):
    """GET quotas: all to administrators, to others their own and those of their groups; users first."""

    items: list[QuotaView] = []
    """Of slots."""
    storage: list[StorageQuotaView] = []
    """Of bytes."""
    workspaces: list[WorkspaceQuotaView] = []
    """Of slots, of workspaces: to administrators all, to others those of which they are members."""
    costs: list[CostCapView] = []
    """Of cost: to administrators all, to others their own and those of experiments that they may read."""
    currency: str = ""
    """What costs are in, as the administrator calls it."""


# --- limits


class LimitUse(Wire):
    """A user who is at or near a limit, or has met it since the master started."""

    user: str
    used: float | None = None
    """How much of it, in the limit's unit; null where nothing is counted between refusals."""
    hits: int = 0
    """How often it refused or left out something."""
    last_hit: float | None = None
    """When it last did, in seconds since the epoch."""


class LimitView(Wire):
    """What one user may ask for."""

    name: str
    """As the code of a refusal has it: `limit.NAME`."""
    setting: str
    """The setting of `c.UserLimits` that changes it."""
    value: float | None = None
    """Null: without limit."""
    most: float | None = None
    """What `used` is a part of: of rates, what may come at once."""
    unit: str
    about: str
    users: list[LimitUse] = []
    """All users for administrators, otherwise only the caller."""


class LimitList(Wire):
    """The limits of one user."""

    items: list[LimitView]
    exempt_users: list[str] = []
    """Users whom none of these bind."""
