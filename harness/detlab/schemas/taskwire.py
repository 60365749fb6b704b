"""What the parts say to each other about tasks that users start outright, and what the faces show of the cluster.

A *user task* is a notebook, shell, command, TensorBoard, borrowed cell or notebook run. Like a trial it waits in the
one queue, runs under the launcher on an agent and logs; unlike a trial it is never restarted by itself. Notebooks,
shells and TensorBoards are named servers of the Hub, so that the Hub gives them their route and guards it: whoever
starts one, the Hub's spawner asks for the allocation (`SpawnRequest`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from detlab.schemas.wire import (
    AgentView,
    AllocationState,
    CheckpointFile,
    ClusterView,
    ExperimentView,
    FailureView,
    GivenView,
    PersonRequest,
    ProblemView,
    TrialState,
    UserView,
    Wire,
)


class TaskKind(StrEnum):
    """What a user task is."""

    NOTEBOOK = "notebook"
    SHELL = "shell"
    COMMAND = "command"
    TENSORBOARD = "tensorboard"
    CELL = "cell"
    """A notebook cell that borrows slots (`%%det_run`)."""
    NOTEBOOK_RUN = "notebook_run"
    """A whole notebook, run by papermill."""

    @property
    def served_by_hub(self) -> bool:
        """Whether it is a server of the Hub, with a route of its own."""
        return self in {TaskKind.NOTEBOOK, TaskKind.SHELL, TaskKind.TENSORBOARD}


DEFAULT_ENTRYPOINTS = {
    TaskKind.CELL: ["python3", "-m", "detlab.run.cell"],
    TaskKind.NOTEBOOK_RUN: ["python3", "-m", "detlab.run.notebook"],
}
"""What these kinds run; a command says what it runs, and servers of the Hub are started by its spawners."""


class TaskEnd(StrEnum):
    """Why a user task ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"
    IDLE = "idle"
    CANCELED = "canceled"
    """While it waited in the queue."""
    ABANDONED = "abandoned"
    """The Hub went away while it was being started, or does not know it."""
    LOST = "lost"
    """Its agent is gone."""
    MAX_TIME = "max_time"
    """It reached its maximum time (`resources.max_time`)."""


class TaskView(Wire):
    """A user task."""

    id: str
    kind: TaskKind
    name: str
    owner: str
    workspace: str = ""
    """Where it lies, as `OWNER/NAME` if another user than the task's owner has made it; empty: its owner's personal
    one."""
    workspace_id: int | None = None
    project: str = ""
    project_id: int | None = None
    may: Literal["read", "write", "own"] = "own"
    """What the caller may do: see its state; also end it; all of it. An `admin` of its workspace may end it."""
    opens: bool = True
    """Whether the caller may open it, and read its output and files. Else only its state is here: who sees it as a
    member of its workspace gets no address, no output, and of the config the resources and the image alone."""
    state: TrialState
    """ACTIVE, STOPPING_*, COMPLETED, CANCELED or ERROR."""
    allocation_state: AllocationState | None = None
    display_state: str = ""
    """QUEUED, PULLING, STARTING, RUNNING … or the state; for people."""
    end_reason: TaskEnd | None = None
    slots_needed: int = 0
    slots: list[str] = []
    agent_id: str | None = None
    resource_pool: str = "default"
    runtime: str = "process"
    image: str | None = None
    priority: int = 42
    server_name: str | None = None
    """Of the Hub's named server, for the kinds that are one."""
    url: str | None = None
    """Path at the Hub where it is opened, such as `/user/alice/nb-1a2b/lab`; None if it has none or is not up."""
    server_host: str = ""
    """Where the servers of its owner are, such as `https://alice.hub.example.org`; empty: at the Hub's own address."""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    stage_message: str = ""
    """What the agent is doing for it, such as `pulling pytorch:2.9, 41 %`."""
    place: int | None = None
    """In the queue, from 1."""
    pending_reason: str | None = None
    last_activity: float | None = None
    idle_timeout: float | None = None
    """Seconds without activity after which it is ended; None: never."""
    cull_at: float | None = None
    """When it will be ended for idleness, once its owner has been warned."""
    gpus_idle_since: float | None = None
    """Since when all of its GPUs are at 0 %, as its agents measure; None: they are not for long, or it is not known."""
    gpus_released_at: float | None = None
    """When it will be ended for that, by the policy of its pool."""
    experiment_ids: list[int] = []
    """Of a TensorBoard."""
    trial_ids: list[int] = []
    schedule_id: int | None = None
    """The schedule that has started it."""
    failure: FailureView | None = None
    config: dict[str, Any] | None = None
    """Resolved, secrets masked; only on a single task."""
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""


class TaskSource(PersonRequest):
    """Where a task comes from, as the client that asks for it says: for people, and for the cards of failures.

    Nothing depends on it. What the master itself notes of a task, such as that it only holds slots, has names of its
    own (`TaskNote` in the master's tables), none of which is here.
    """

    client: str = Field("", max_length=200)
    """Of whatever program asks, such as `det notebook run`."""
    notebook: str | None = Field(None, max_length=4096)
    """Path of the notebook."""
    cell_id: str | None = Field(None, max_length=200)
    where: str = Field("", max_length=1000)
    """Name of the cell, as its traceback has it."""
    parameters: dict[str, Any] = {}
    """What a notebook is run with."""
    cells: dict[str, Any] = {}
    """File of the code -> the cell that wrote it."""


READING_REPORT = "report.json"
"""Output of a task that reads a checkpoint: which of its files are not as committed."""
MOST_READ = 500


class ReadCheckpoint(PersonRequest):
    """Of POST tasks: the checkpoint that a command of the master's reads with the rights of its owner."""

    uuid: str = Field(max_length=200)
    paths: list[str] = Field([], max_length=MOST_READ)
    """Files that it hands over as outputs, each named by the hex digits of its digest; none: it verifies all files."""


class ReadingView(Wire):
    """GET task/checkpoint: what the calling task reads."""

    uuid: str
    files: dict[str, CheckpointFile]
    hands_over: bool
    """Whether it uploads the files, or verifies them only."""
    storage: dict[str, Any]


STORAGE_REPORT = "storage-check.json"
"""Output of a task that compares storages with what the master knows: a `StorageReport`."""
MOST_ASKED = 500


class CheckStorage(PersonRequest):
    """Of POST tasks: a command of the master's compares the caller's storages with what the master knows."""

    experiment_id: int | None = Field(None, ge=1, lt=2**63)
    """That of one experiment; None: of the caller's newest experiments."""
    repair: bool = False
    """Whether what never came to be a checkpoint of the caller's is removed."""


class StorageCheckView(Wire):
    """GET task/storage-check: what the calling task compares."""

    storages: list[dict[str, Any]]
    repair: bool


class StoredMark(Wire):
    """Who has begun a checkpoint."""

    owner: str = Field(max_length=200)
    run: int = Field(ge=0, lt=2**63)


class StoredItem(Wire):
    """A checkpoint, or a part of one, that lies in a storage."""

    uuid: str = Field(max_length=200)
    marks: list[StoredMark] = Field([], max_length=100)


class StoredPage(Wire):
    """POST task/storage-check: what of this does the master know?"""

    items: list[StoredItem] = Field(max_length=MOST_ASKED)
    place: int | None = Field(None, ge=0, lt=10_000)
    """Index in `StorageCheckView.storages` of where they lie; None: where the calling trial stores its own."""


class StoredVerdicts(Wire):
    """By uuid: kept, trash, busy (it is being written), another, never (it is no checkpoint), unknown.

    `another` is a user's, or the owner's own of another storage: a copy, of which the master knows nothing.
    """

    verdicts: dict[str, str]


class ExpectedQuery(Wire):
    """GET task/storage-check/expected: which page."""

    place: int = Field(0, ge=0, lt=10_000)
    """Index in `StorageCheckView.storages`."""
    after: str = Field("", max_length=200)


class ExpectedPage(Wire):
    """Checkpoints that are to be in a storage, by uuid."""

    items: list[str] = []
    sizes: list[int] = []
    """Bytes of the files of each, without its manifest; none from a master of before."""
    more: bool = False


class FoundItem(Wire):
    """What a check has found."""

    uuid: str
    bytes: int = 0
    published: bool = False


class StorageFound(Wire):
    """What a check has found in one storage; lists have the first 1,000, sums are of all."""

    where: str
    failure: str = ""
    """Why it could not be looked at."""
    kept: int = 0
    kept_bytes: int = 0
    others: int = 0
    """Of others, in the trash, or being written: what is left alone."""
    others_bytes: int = 0
    never: list[FoundItem] = []
    """Begun, perhaps published, and never committed; or deleted, and still there."""
    never_count: int = 0
    never_bytes: int = 0
    events: int = 0
    """Folders of event files, of trials of any cluster: `det experiment delete-tb-files` removes those of one's own."""
    events_bytes: int = 0
    unknown: list[FoundItem] = []
    """Nothing says whose these are: they are left alone."""
    unknown_count: int = 0
    unknown_bytes: int = 0
    missing: list[str] = []
    """Committed, and not there."""
    missing_count: int = 0
    damaged: list[str] = []
    """Committed, and without all of their files: they have fewer bytes than were committed."""
    damaged_count: int = 0
    uploads: int = 0
    """Uploads of large files that never ended, of what is in `never`."""
    uploads_bytes: int = 0
    uploads_unknown: int = 0
    uploads_own: int = 0
    """Of what a cluster keeps beside the checkpoints, such as event files: they are left alone."""
    uploads_note: str = ""
    """Why they could not be listed."""
    repaired: int = 0
    repaired_bytes: int = 0
    not_repaired: str = ""


class StorageReport(Wire):
    """The result of `det storage check`."""

    storages: list[StorageFound] = []


class CreateTask(PersonRequest):
    """POST tasks. `config` is a mapping, or `config_yaml` its text (taskconf.TaskConfig)."""

    kind: TaskKind
    name: str | None = None
    config: dict[str, Any] | None = None
    config_yaml: str | None = None
    bundle: str | None = None
    idempotency_key: str | None = None
    dry_run: bool = False
    experiment_ids: list[int] = Field([], fail_fast=True)
    trial_ids: list[int] = Field([], fail_fast=True)
    source: TaskSource = TaskSource()
    reads: ReadCheckpoint | None = None
    """A `command` that the master writes itself, without a config: it reads a checkpoint of the caller's own."""
    checks: CheckStorage | None = None
    """Likewise: it compares the caller's storages with what the master knows."""
    template: str | None = Field(None, max_length=1000)
    """A template of the master that is laid under the config: `NAME` or `WORKSPACE:NAME`; null or empty: none."""


class CreateTaskReply(Wire):
    """What became of it. `task` is None for a dry run."""

    task: TaskView | None = None
    created: bool = True
    warnings: list[ProblemView] = []
    config: dict[str, Any] = {}
    given: list[GivenView] = []
    """What its submitter has not said: of its template, workspace, pool, cluster and config policies."""


class TaskPage(Wire):
    """GET tasks: newest first."""

    items: list[TaskView] = []
    next: str | None = None


class OutputView(Wire):
    """A file that a task handed over (an executed notebook, the variables of a cell)."""

    name: str
    size: int
    digest: str
    """sha256:<hex>"""
    updated_at: float = 0.0


class OutputList(Wire):
    """GET tasks/{task_id}/outputs."""

    items: list[OutputView] = []
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class ActivityReport(Wire):
    """POST task/activity: when the task was last used, as its own watcher saw it."""

    last_activity: float
    busy: bool = False
    """In use right now (a kernel runs, a connection is open)."""
    detail: str = ""


class ActivityReply(Wire):
    """When the task will be ended for idleness; None: not soon."""

    idle_timeout: float | None = None
    cull_at: float | None = None


# --- the Hub's spawner -----------------------------------------------------------------------------------


class SpawnRequest(Wire):
    """POST spawns [hub]: a server of the Hub wants to run. The same `key` returns the task made first."""

    owner: str
    groups: list[str] = Field([], fail_fast=True)
    """The owner's groups of the Hub: what is shared with them, a TensorBoard may show."""
    server_name: str = ""
    """"" is the user's default server."""
    key: str
    """Drawn by the spawner for each start."""
    kind: TaskKind = TaskKind.NOTEBOOK
    name: str = ""
    config: dict[str, Any] = {}
    """taskconf.TaskConfig, from the options form."""
    experiment_ids: list[int] = Field([], fail_fast=True)
    trial_ids: list[int] = Field([], fail_fast=True)
    base_url: str = ""
    """`/user/alice/nb-1/`"""
    server_host: str = ""
    """`https://alice.hub.example.org` where each user's servers have a host name of their own."""
    environment: dict[str, str] = {}
    """With the server's Hub token: kept in memory until the task has started, never stored."""
    bundle: str | None = None
    """Code that goes with it."""
    hold: bool = False
    """Only keep the slots: the Hub's own spawner runs the server."""
    template: str | None = Field(None, max_length=1000)
    """A template of the master that is laid under the config."""


class SpawnView(Wire):
    """How a spawn stands; one line of `GET spawns/{task_id}/stream`."""

    task_id: str
    state: TrialState
    allocation_state: AllocationState | None = None
    place: int | None = None
    reason: str | None = None
    """Why it waits, or why it ended."""
    stage_message: str = ""
    agent_id: str | None = None
    slots: list[str] = []
    gpu_uuids: list[str] = []
    """Of the slots that are GPUs."""
    address: str | None = None
    port: int | None = None
    secure: bool = False
    """The address is reached by TLS, with a certificate that the cluster's authority for servers has signed."""
    exit_code: int | None = None
    end_reason: TaskEnd | None = None
    log_tail: list[str] = []
    """When it ended by itself: its last lines."""


class SpawnOffers(Wire):
    """GET spawns/offers: what the form of the Hub's spawn page cannot offer now."""

    closed: dict[str, str] = {}
    """Runtime -> why it cannot be chosen: no agent that is there for this user has it."""


# --- what the faces show -------------------------------------------------------------------------------------


class QueueItem(Wire):
    """One allocation that waits, in the order in which the scheduler looks at them."""

    allocation_id: str
    place: int
    kind: str
    """trial or a TaskKind"""
    owner: str
    """`another user` if the caller may not know."""
    mine: bool = False
    name: str = ""
    experiment_id: int | None = None
    trial_id: int | None = None
    task_id: str | None = None
    pool: str = ""
    slots: int = 0
    priority: int = 42
    weight: float = 1.0
    requested_at: float = 0.0
    reason: str = ""
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""


class QueueView(Wire):
    """GET queue."""

    items: list[QueueItem] = []
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class OverviewView(Wire):
    """GET overview: what a panel starts from; `GET stream?after=cursor` continues from there."""

    cursor: int
    me: UserView
    cluster: ClusterView
    experiments: list[ExperimentView] = []
    """The newest 200 that the caller owns (`?all=true`: may see), without configs; fewer if they are large."""
    tasks: list[TaskView] = []
    """All that are not over, and the newest 50 that are; the newest of them if they are many."""
    queue: list[QueueItem] = []
    agents: list[AgentView] = []


class CodeFile(Wire):
    """One file of an experiment's bundle; its text is at experiments/{id}/code/{digest}."""

    path: str
    size: int
    digest: str


class CodeList(Wire):
    """GET experiments/{experiment_id}/code."""

    items: list[CodeFile] = []
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class TimelineItem(Wire):
    """One thing that happened to an experiment, for its events tab."""

    time: float
    what: str
    """created, started, paused, trial created, attempt started, attempt ended, checkpoint, trial ended, ended …"""
    trial_id: int | None = None
    run: int | None = None
    detail: str = ""


class TimelineView(Wire):
    """GET experiments/{experiment_id}/timeline: oldest first."""

    items: list[TimelineItem] = []


class UsageRow(Wire):
    """Slot time of one user on one day (UTC)."""

    day: str
    user: str
    kind: str
    """trial or a TaskKind"""
    slot_hours: float
    cost: float = 0.0
    """At the prices that stood when the slots were assigned."""


class UserShareView(Wire):
    """A user's share of a pool now."""

    pool: str
    user: str
    group: str = ""
    """The group whose share the user's is a part of; empty: none."""
    held: int = 0
    """Slots."""
    waiting: int = 0
    """Slots that the user's pending tasks ask for."""
    share: float = 0.0
    """Slots that are the user's now: nobody takes them, and tasks within it take slots from users beyond theirs."""
    of: int = 0
    """Slots of the pool."""
    used: float = 0.0
    """Slot-hours used of late: they count half after each half-life."""
    half_life: float = 0.0
    """Seconds."""


class IdleGpuView(Wire):
    """A running trial or user task whose GPUs are at 0 %, as its agents measure or its profiler reports."""

    user: str
    experiment_id: int | None = None
    """Of a trial."""
    trial_id: int | None = None
    task_id: str | None = None
    """Of a user task."""
    slots: int
    since: float
    """Since when, in seconds since the epoch."""


class UsageView(Wire):
    """GET usage?first=DAY&last=DAY (also as CSV by `Accept: text/csv`): admins see all, others themselves."""

    first: str
    last: str
    items: list[UsageRow] = []
    next: int | None = None
    """`skip` of the next part, or null on the last one."""
    shares: list[UserShareView] = []
    """Of users who hold or want slots in pools with shares of users: to administrators all, to others their own."""
    idle: list[IdleGpuView] = []
    """What has held GPUs at 0 % for half an hour, or the `idle_gpu_warning` of the pool: of administrators all, of
    others their own. What nobody measures is not there."""
    currency: str = ""
    """What costs are in; empty: the administrator gives it no name."""


class AuditItem(Wire):
    """Who did what."""

    id: int
    time: float
    actor: str
    action: str
    """experiment.kill, task.create, agent.disable, token.revoke …"""
    subject: str
    """`experiment 12`, `agent node-1` …"""
    detail: str = ""


class AuditPage(Wire):
    """GET audit?before=&limit=&actor=&action= [admin]: newest first."""

    items: list[AuditItem] = []
    next: int | None = None


class TokenView(Wire):
    """A token of detlab's own; its text is known to its holder alone."""

    id: str
    """First 12 hex digits of its SHA-256; what `DELETE tokens/{id}` takes."""
    kind: str
    subject: str
    created_at: float = 0.0
    expires_at: float | None = None


class TokenList(Wire):
    """GET tokens [admin]."""

    items: list[TokenView] = []
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class HealthItem(Wire):
    """One part of the service."""

    name: str
    ok: bool
    detail: str = ""


class HealthView(Wire):
    """GET service [admin]: how the service is."""

    ok: bool
    version: str
    started_at: float
    items: list[HealthItem] = []
