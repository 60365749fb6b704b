"""A resource pool at one moment, and what a scheduling pass over it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from detlab_hub.core.scheduling.labels import LabelRule, Preference

DEFAULT_PRIORITY = 42
"""The default priority, of 1 to 99; lower goes first."""
MAX_ZERO_SLOT_TASKS = 100
"""Tasks without slots that one agent runs at a time."""
UNBOUNDED = 2**62
"""CPUs or memory of an agent that does not report them."""
NO_LABELS: Mapping[str, str] = {}
NO_NUMBERS: Mapping[str, float] = {}


class Scheduler(StrEnum):
    """In which order, and at whose cost, the tasks of a pool start."""

    PRIORITY = "priority"
    FAIR_SHARE = "fair_share"
    ROUND_ROBIN = "round_robin"


class ShareBy(StrEnum):
    """Who has a share of a pool under fair share."""

    JOB = "job"
    USER = "user"


HALF_LIFE = 7 * 86_400.0
"""Seconds after which use counts half for the shares of users."""


class Fitting(StrEnum):
    """Which of the agents that have room a task gets: the fullest, or the emptiest."""

    BEST = "best"
    WORST = "worst"


class AgentState(StrEnum):
    """Whether an agent takes new work."""

    ENABLED = "enabled"
    DRAINING = "draining"
    DISABLED = "disabled"
    SUSPECT = "suspect"
    """Contact is lost, but not yet for long enough to give it up."""


class TaskState(StrEnum):
    """Whether a task has slots."""

    PENDING = "pending"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Pool:
    """How a pool is scheduled.

    Attributes:
        scheduler: See `Scheduler`.
        preemption: Whether the priority scheduler may take slots from running tasks. Fair share always may, round
            robin never.
        fitting: See `Fitting`.
        heterogeneous: Whether a task on several agents may have more slots on one than on another.
        share_by: Whose shares the fair share scheduler goes by.
        half_life: For shares of users: seconds after which use counts half; 0: use does not count.
        weights: For shares of users: those of users whose weight is not 1.
        groups: For shares of users: the weights of groups of the Hub whose members divide one share among them.
    """

    scheduler: Scheduler = Scheduler.PRIORITY
    preemption: bool = False
    fitting: Fitting = Fitting.BEST
    heterogeneous: bool = False
    share_by: ShareBy = ShareBy.JOB
    half_life: float = HALF_LIFE
    weights: Mapping[str, float] = field(default_factory=lambda: NO_NUMBERS, hash=False)
    groups: Mapping[str, float] = field(default_factory=lambda: NO_NUMBERS, hash=False)


@dataclass(frozen=True, slots=True)
class Agent:
    """A node of the pool.

    Attributes:
        id: Its name.
        slots: How many enabled slots it has.
        max_zero_slot_tasks: How many tasks without slots it runs at a time.
        state: Only an enabled one gets new work; tasks on the others still hold their slots.
        labels: Of the operator, for `Constraints.labels` and its rules.
        slot_type: What a slot is: cuda, rocm, cpu.
        gpu: Model of its GPUs, as NVML names it; "" for none.
        memory: Bytes of memory of each GPU; 0 for none.
        millicpus: Thousandths of a CPU that its tasks may request together.
        host_memory: Bytes of main memory that they may request together.
        runtimes: How it can run tasks: process, docker.
        serves_user: The one user whose tasks it runs; None for any user.
        enforces: What it can enforce of a policy, as its pool declares and it has attested.
    """

    id: str
    slots: int
    max_zero_slot_tasks: int = MAX_ZERO_SLOT_TASKS
    state: AgentState = AgentState.ENABLED
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS, hash=False)
    slot_type: str = ""
    gpu: str = ""
    memory: int = 0
    millicpus: int = UNBOUNDED
    host_memory: int = UNBOUNDED
    runtimes: frozenset[str] = frozenset({"process", "docker"})
    serves_user: str | None = None
    enforces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Job:
    """An experiment, or a task outside experiments: what users put into the queue.

    Attributes:
        id: Its name.
        priority: 1 to 99, lower first.
        weight: Its share beside other jobs; see each scheduler.
        max_slots: Slots that it may hold at a time; None for no limit.
        submitted: When it was submitted, in seconds.
        position: Where it was moved to in the queue, on the scale of `submitted`; None: it was not moved.
        elsewhere: Slots that it holds in other pools.
    """

    id: str
    priority: int = DEFAULT_PRIORITY
    weight: float = 1.0
    max_slots: int | None = None
    submitted: float = 0.0
    position: float | None = None
    elsewhere: int = 0


class Constraints(NamedTuple):
    """The constraints of a task on its agents; of the agents that meet them it gets those that it prefers.

    Attributes:
        slot_type: Required type of slot; "" for any.
        gpu: Words of the GPU's model name, whatever their case; "" for any.
        memory: Least bytes of memory of each GPU.
        labels: (name, value) of labels that all agents must have.
        required: Rules that must hold for their labels.
        preferred: Rules that should hold for them, but no task waits for that.
        requires: What they must be able to enforce of a policy.
    """

    slot_type: str = ""
    gpu: str = ""
    memory: int = 0
    labels: frozenset[tuple[str, str]] = frozenset()
    required: frozenset[LabelRule] = frozenset()
    preferred: frozenset[Preference] = frozenset()
    requires: frozenset[str] = frozenset()


ANYWHERE = Constraints()


@dataclass(frozen=True, slots=True)
class SchedulerTask:
    """A task that waits for slots or holds some.

    Attributes:
        id: Its name.
        job: That of its `Job`.
        slots: How many it needs, all at once; 0 for none.
        state: See `TaskState`.
        requested: Its place among the tasks of its job: when it was requested, in seconds, or a number in their order.
        on: While it runs: slots by agent.
        preemptible: Whether its slots may be taken while it runs (it comes again later).
        leaving: It runs, but was told to release its slots: they count as held until it has left, and no other task is
            preempted for what they will serve.
        single_node: All slots must be of one agent.
        blocked_nodes: Agents where it must not start.
        user: Its owner, for quotas and for agents that serve one user.
        groups: Groups of its owner, for quotas and shares.
        workspace: The workspace that it lies in, for quotas; None: none that has one.
        constraints: What its agents must be like.
        millicpus: Thousandths of a CPU that it needs on each of its agents; 0: no request.
        memory: Bytes of memory that it needs on each of its agents; 0: no request.
        max_time: Most seconds that it will still run; None if that is not known.
        runtime: How it must be run; "" for any way.
        aged: It has waited so long that later tasks of its priority may no longer overtake it. For a running task: it
            had waited that long, and has had its slots for less time than that.
        came: When it was requested, in seconds, if `requested` is not a time.
        began: Since when it runs, in seconds; None while it waits, or has only just got its slots.
        evicts: For shares of users: it has waited long enough to take slots from running tasks.
        protected: For shares of users: it runs, and its minimum run has not ended.
        saved: For shares of users: when its last checkpoint was committed, in seconds; None: it has none.
    """

    id: str
    job: str
    slots: int = 1
    state: TaskState = TaskState.PENDING
    requested: float = 0.0
    on: Mapping[str, int] = field(default_factory=dict, hash=False)
    preemptible: bool = True
    single_node: bool = False
    blocked_nodes: frozenset[str] = frozenset()
    user: str = ""
    groups: frozenset[str] = frozenset()
    workspace: int | None = None
    constraints: Constraints = ANYWHERE
    max_time: float | None = None
    runtime: str = ""
    aged: bool = False
    leaving: bool = False
    millicpus: int = 0
    memory: int = 0
    came: float | None = None
    began: float | None = None
    evicts: bool = True
    protected: bool = False
    saved: float | None = None

    @property
    def since(self) -> float:
        """When it was requested: what tasks of different jobs are compared by."""
        return self.requested if self.came is None else self.came

    @property
    def aside(self) -> bool:
        """Whether it needs nothing that another task may need."""
        return self.slots == 0 and not self.millicpus and not self.memory


@dataclass(frozen=True, slots=True)
class Quota:
    """Slots that a user, all users of a group, or all that lies in a workspace, may hold at a time.

    One of the three is given.

    Attributes:
        slots: Number of slots.
        user: Name of the user.
        group: Name of the group.
        elsewhere: Those of them that are held in other pools.
        workspace: Number of the workspace.
        named: What the workspace is called, for people.
    """

    slots: int
    user: str | None = None
    group: str | None = None
    elsewhere: int = 0
    workspace: int | None = None
    named: str = ""

    @property
    def whose(self) -> str:
        """For people: `user ada`, `group vision`, `workspace ada/digits`."""
        if self.workspace is not None:
            return f"workspace {self.named or self.workspace}"
        return f"group {self.group}" if self.user is None else f"user {self.user}"

    def binds(self, task: SchedulerTask) -> bool:
        """Whether the slots of a task count under it."""
        if self.workspace is not None:
            return self.workspace == task.workspace
        return self.group in task.groups if self.user is None else self.user == task.user


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A pool at one moment. Every task's job is among the jobs.

    Attributes:
        pool: How it is scheduled.
        agents: Its nodes.
        jobs: By name.
        tasks: Pending tasks of the pool, and those that hold slots.
        quotas: Of users, groups and workspaces.
        zero_slot_tasks: Tasks without slots that one user may run at a time in this pool; None: any number.
        private: Whether reasons, which owners of tasks read, must not name another user's task.
    """

    pool: Pool
    agents: tuple[Agent, ...]
    jobs: Mapping[str, Job]
    tasks: tuple[SchedulerTask, ...]
    quotas: tuple[Quota, ...] = ()
    private: bool = False
    zero_slot_tasks: int | None = None
    unbound: frozenset[str] = frozenset()
    """Users who may run any number of tasks without slots."""
    usage: Mapping[str, float] = field(default_factory=lambda: NO_NUMBERS, hash=False)
    """For shares of users: slot-seconds that each user has used in the pool, faded to now."""


class ReasonCode(StrEnum):
    """Why a task waits: the closed set."""

    NO_AGENT = "no_agent"
    """The pool has no agent."""
    NO_SUITABLE_AGENT = "no_suitable_agent"
    """No agent of the pool meets its constraints, runtime, user or blocked nodes."""
    TOO_LARGE = "too_large"
    """It would not fit on the suitable agents if they were empty."""
    OVER_MAX_SLOTS = "over_max_slots"
    """It needs more slots than its job may ever hold."""
    OVER_QUOTA = "over_quota"
    """It needs more slots than a quota ever gives."""
    AT_MAX_SLOTS = "at_max_slots"
    """Its job holds as many slots as it may."""
    AT_QUOTA = "at_quota"
    """Its owner, a group of theirs, or its workspace, holds as many slots as the quota gives."""
    AT_ZERO_SLOT_TASKS = "at_zero_slot_tasks"
    """Its owner runs as many tasks without slots as one user may."""
    AGENTS_UNAVAILABLE = "agents_unavailable"
    """All suitable agents are disabled, draining or out of contact."""
    RELEASING = "releasing"
    """Slots are being taken from other tasks for it."""
    BEHIND = "behind"
    """There is room, but another task comes first."""
    FAIR_SHARE = "fair_share"
    """Its job holds its full share."""
    FRAGMENTED = "fragmented"
    """Enough slots are free, but not as it needs them."""
    NO_FREE_RESOURCES = "no_free_resources"
    """Enough slots are free, but not the CPUs or the memory that it requests."""
    NO_FREE_SLOTS = "no_free_slots"
    """Too few slots are free."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The dominant reason why a task waits.

    Attributes:
        code: Of the closed set.
        detail: The evidence, for people.
        behind: For BEHIND: the task that comes first, which may be another user's.
    """

    code: ReasonCode
    detail: str
    behind: str | None = None


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The decision of a pass. Each pending task is in exactly one of `allocate` and `waiting`.

    Attributes:
        allocate: Slots by agent, for each task that starts now; for a task without slots {agent: 0}.
        release: Running tasks that are to release their slots; no task gets them in this pass.
        waiting: Why each other pending task waits.
        gathered: By pending task, the running tasks whose released slots it will get, including those that were leaving
            already.
    """

    allocate: Mapping[str, Mapping[str, int]]
    release: tuple[str, ...]
    waiting: Mapping[str, Reason]
    gathered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
