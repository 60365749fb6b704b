"""What the parts of detlab say to each other: REST bodies, task records, agent messages.

Additive by rule: readers ignore keys they do not know, so a newer writer never breaks an older reader, and
every peer sends `PROTOCOL`. Ids: experiments and trials are integers; an allocation is one attempt to run a
trial, named `<experiment>.<request uuid>.<run>`; `run` is the attempt number that fences writes.

Times are seconds since the epoch (float, UTC). Non-finite floats travel as the strings "NaN", "Infinity" and
"-Infinity" (strict JSON); `encode_floats` and `decode_float` convert.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL = 1
SERVICE_PREFIX = "/services/detlab/"
API_PREFIX = "api/v1/"

_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode_floats(value: Any) -> Any:
    """Replace non-finite floats, at any depth, by their names, so that strict JSON can carry them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: encode_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_floats(item) for item in value]
    return value


def decode_float(value: Any) -> float | None:
    """Return the float that a JSON scalar stands for, or None if it is not a number (bool counts as 0/1)."""
    if isinstance(value, str):
        return _NONFINITE.get(value)
    if isinstance(value, int | float):
        return float(value)
    return None


class Wire(BaseModel):
    """Base of all wire models: unknown keys are ignored (additive protocol)."""

    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="strings")


# --- states ---------------------------------------------------------------------------------------------


class ExperimentState(StrEnum):
    """Where an experiment stands (Determined's names)."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETED = "DELETED"

    @property
    def terminal(self) -> bool:
        """Whether no more work will be done."""
        return self in _TERMINAL


class TrialState(StrEnum):
    """Where a trial stands; what its allocation does is in `AllocationState`."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"

    @property
    def terminal(self) -> bool:
        """Whether the trial will not run again."""
        return self.value in {"COMPLETED", "CANCELED", "ERROR"}


_TERMINAL = {
    ExperimentState.COMPLETED,
    ExperimentState.CANCELED,
    ExperimentState.ERROR,
    ExperimentState.DELETED,
}


class AllocationState(StrEnum):
    """Progress of one attempt, in order; it never goes back."""

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    PULLING = "PULLING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


class EndReason(StrEnum):
    """Why a trial ended, for people; shown in views beside its state."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    CANCELED = "canceled"
    KILLED = "killed"
    INVALID_HP = "invalid_hp"
    ERROR = "error"
    NO_METRICS = "no_metrics"


# --- users, cluster ---------------------------------------------------------------------------------------


class UserView(Wire):
    """Who the caller is and what the token may do."""

    name: str
    scopes: list[str] = []
    admin: bool = False


class SlotView(Wire):
    """One slot of an agent."""

    id: str
    kind: Literal["cpu", "cuda", "rocm"] = "cpu"
    name: str = ""
    uuid: str | None = None
    allocation_id: str | None = None
    enabled: bool = True


class AgentView(Wire):
    """An agent as the master sees it."""

    id: str
    state: Literal["connected", "suspect", "lost"] = "connected"
    version: str = ""
    address: str = ""
    serves_user: str | None = None
    slots: list[SlotView] = []
    running: int = 0
    last_seen: float = 0.0
    enabled: bool = True
    """False: what runs goes on, nothing new starts."""
    runtimes: list[str] = ["process"]
    """How it can run tasks: process, docker."""
    enrolled_at: float = 0.0


class ClusterView(Wire):
    """One look at the cluster."""

    cluster_id: str
    version: str
    protocol: int = PROTOCOL
    url: str = ""
    started_at: float = 0.0
    agents: int = 0
    slots_total: int = 0
    slots_used: int = 0
    experiments_active: int = 0
    draining: bool = False


# --- experiments ------------------------------------------------------------------------------------------


class ProblemView(Wire):
    """One mistake or warning, with where it is."""

    path: str
    message: str
    hint: str | None = None
    level: Literal["error", "warning"] = "error"


class CreateExperiment(Wire):
    """POST experiments. `config` is the raw config (a mapping) or `config_yaml` its text."""

    config: dict[str, Any] | None = None
    config_yaml: str | None = None
    bundle: str | None = None
    """Digest `sha256:<hex>` of an uploaded bundle; None means an empty context directory."""
    idempotency_key: str | None = None
    """The same key by the same user returns the experiment made first (an acknowledged submit is never doubled)."""
    activate: bool = True
    dry_run: bool = False
    source: dict[str, Any] = {}
    """Provenance for people: notebook path, cell id, line maps of captured cells, client version."""


class CreateExperimentReply(Wire):
    """What became of a submit. `experiment` is None for a dry run."""

    experiment: ExperimentView | None = None
    created: bool = True
    warnings: list[ProblemView] = []
    config: dict[str, Any] = {}


class ExperimentView(Wire):
    """An experiment with the numbers its progress line needs."""

    id: int
    name: str
    description: str | None = None
    labels: list[str] = []
    owner: str
    workspace: str = ""
    project: str = ""
    state: ExperimentState
    searcher: str = ""
    metric: str = ""
    smaller_is_better: bool = True
    time_metric: str | None = None
    max_time: int | None = None
    progress: float = 0.0
    """0..1, the searcher's own estimate."""
    trials_total: int | None = None
    """How many trials the search will make if it can know, else None."""
    trials: dict[str, int] = {}
    """Count per TrialState; RUNNING counts active trials with a running allocation."""
    best: BestView | None = None
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    pending_reason: str | None = None
    """The dominant reason why nothing more runs now."""
    warnings: list[str] = []
    """For example: trial 3 never reported 'val_loss'."""
    bundle: str | None = None
    config: dict[str, Any] | None = None
    """Resolved; only on a single experiment, secrets masked."""
    failure: FailureView | None = None
    source: dict[str, Any] = {}


class BestView(Wire):
    """The best validation so far."""

    trial_id: int
    trial_index: int
    steps_completed: int
    value: float
    checkpoint: str | None = None


class FailureView(Wire):
    """A failure card: what, where, likely cause, last lines, next command."""

    kind: str
    """oom | import | config | exception | killed | lost | no_metrics | searcher | unknown"""
    message: str
    trial_id: int | None = None
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    where: str | None = None
    """`cell 14, line 3` or `train.py, line 12`."""
    log_tail: list[str] = []
    """At most 20 lines."""
    hint: str | None = None


class TrialView(Wire):
    """A trial."""

    id: int
    index: int
    """Position in creation order within its experiment, from 0."""
    experiment_id: int
    request_id: str
    state: TrialState
    allocation_state: AllocationState | None = None
    display_state: str = ""
    """RUNNING, QUEUED, STARTING … or the trial state; for people."""
    end_reason: EndReason | None = None
    hparams: dict[str, Any] = {}
    seed: int = 0
    restarts: int = 0
    run: int = 0
    progress: float = 0.0
    status: str = ""
    """What the code said with set_status."""
    steps_completed: int = 0
    best_validation: float | None = None
    latest_validation: float | None = None
    latest_checkpoint: str | None = None
    agent_id: str | None = None
    slots: list[str] = []
    started_at: float | None = None
    ended_at: float | None = None
    pending_reason: str | None = None
    warnings: list[str] = []
    failure: FailureView | None = None
    summary: dict[str, dict[str, SummaryView]] = {}
    """group -> metric name -> summary; only on a single trial."""
    metadata: dict[str, Any] = {}


class SummaryView(Wire):
    """Summary of one scalar series; min, max and mean skip NaN."""

    count: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    last: float | None = None
    last_step: int | None = None
    nan_count: int = 0


class SeriesView(Wire):
    """One curve, possibly down-sampled: extremes and the last point are exact."""

    trial_id: int
    group: str
    name: str
    steps: list[int] = []
    values: list[float] = []
    times: list[float] = []
    total: int = 0
    """Points stored; more than len(steps) if down-sampled."""


class CurvesView(Wire):
    """Snapshot for a live view: experiment, trials and curves as of `cursor`; follow the stream from there."""

    cursor: int
    experiment: ExperimentView
    trials: list[TrialView] = []
    curves: list[SeriesView] = []


class LogLine(Wire):
    """One line of a task's output."""

    id: int = 0
    trial_id: int = 0
    task_id: str | None = None
    """Of a notebook, shell, command …; then trial_id is 0."""
    run: int = 0
    rank: int | None = None
    stdtype: Literal["stdout", "stderr", "launcher"] = "stdout"
    level: str | None = None
    time: float = 0.0
    text: str


class CheckpointView(Wire):
    """A committed checkpoint."""

    uuid: str
    trial_id: int
    experiment_id: int
    run: int = 0
    steps_completed: int = 0
    state: Literal["COMPLETED", "DELETED"] = "COMPLETED"
    created_at: float = 0.0
    size: int = 0
    """Bytes over all files."""
    files: dict[str, CheckpointFile] = {}
    metadata: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    """The checkpoint_storage block in use, secrets masked."""
    validation: float | None = None
    """The searcher metric reported at the same step, if any."""
    manifest_digest: str = ""


class CheckpointFile(Wire):
    """One file of a manifest, keyed by its relative POSIX path."""

    size: int
    digest: str
    """sha256:<hex>"""
    mode: int = 0o644


class Event(Wire):
    """One line of the event stream (newline-delimited JSON). `id` is the cursor to resume after.

    kinds: experiment (data: ExperimentView without config) | trial (data: TrialView) |
    task (data: taskwire.TaskView without config) | cluster (agents or the queue changed: ask for them again) |
    metrics (data: {group, steps_completed, run, metrics{name: number}}) | checkpoint (data: CheckpointView) |
    resync (the cursor is older than what is kept, or the reader lagged: fetch the snapshot again) |
    cursor (nothing new for you, but the cursor moved) . An empty line is a keep-alive.
    """

    id: int
    kind: Literal["experiment", "trial", "task", "cluster", "metrics", "checkpoint", "resync", "cursor"]
    time: float = 0.0
    experiment_id: int | None = None
    trial_id: int | None = None
    task_id: str | None = None
    data: dict[str, Any] = {}


class ErrorView(Wire):
    """Body of every non-2xx reply."""

    code: str
    message: str
    hint: str | None = None
    problems: list[ProblemView] = []


# --- task API: what a trial (by its launcher or the Core API) says -------------------------------------------


class ClusterInfoWire(Wire):
    """Written to `$DET_TASK_DIR/info.json` by the launcher; the source of `det.get_cluster_info()`."""

    master_url: str
    """Base of the service, ends with `/services/detlab/`."""
    cluster_id: str
    agent_id: str
    slot_ids: list[int]
    """Container-local slot numbers 0..n-1, as Determined gives them."""
    gpu_uuids: list[str] = []
    task_id: str
    allocation_id: str
    task_type: str = "TRIAL"
    """TRIAL, or a taskwire.TaskKind in capitals: NOTEBOOK, SHELL, COMMAND, TENSORBOARD, CELL, NOTEBOOK_RUN."""
    run: int
    latest_checkpoint: str | None = None
    trial_id: int = 0
    """0 unless the task is a trial, as the three below."""
    trial_index: int = 0
    experiment_id: int = 0
    trial_seed: int = 0
    hparams: dict[str, Any] = {}
    config: dict[str, Any] = {}
    """The resolved config of the experiment or task."""
    container_addrs: list[str] = ["127.0.0.1"]
    container_rank: int = 0
    container_slot_counts: list[int] = []
    owner: str = ""


class MetricsRecord(Wire):
    """One report. Scalars go to series; other values (dict, list, str) are kept as structured JSON."""

    kind: Literal["metrics"] = "metrics"
    seq: int
    """1, 2, 3, … per allocation, over all records of the `metrics` stream; a seq seen before is skipped."""
    time: float
    group: str
    steps_completed: int
    metrics: dict[str, Any]
    batch_metrics: list[dict[str, Any]] | None = None


class ProgressRecord(Wire):
    """report_progress."""

    kind: Literal["progress"] = "progress"
    seq: int
    time: float
    progress: float


class StatusRecord(Wire):
    """set_status."""

    kind: Literal["status"] = "status"
    seq: int
    time: float
    status: str


class EarlyExitRecord(Wire):
    """report_early_exit: the code says that it ends on purpose."""

    kind: Literal["early_exit"] = "early_exit"
    seq: int
    time: float
    reason: str
    """INVALID_HP | USER_REQUESTED_STOP | ERRORED"""


class ResumedRecord(Wire):
    """The attempt begins at an earlier step than the checkpoint it was given: that one's files are altered.

    Counts before the first metrics of the attempt: what earlier ones reported beyond this step is superseded then.
    """

    kind: Literal["resumed"] = "resumed"
    seq: int
    time: float
    steps_completed: int


class LogRecord(Wire):
    """One output line; `seq` counts the `logs` stream of the allocation."""

    kind: Literal["log"] = "log"
    seq: int
    time: float
    rank: int | None = None
    stdtype: Literal["stdout", "stderr", "launcher"] = "stdout"
    level: str | None = None
    text: str


Record = Annotated[
    MetricsRecord | ProgressRecord | StatusRecord | EarlyExitRecord | ResumedRecord | LogRecord,
    Field(discriminator="kind"),
]


class RecordBatch(Wire):
    """POST task/records: in order, at most 1,000 records or 4 MB; all of one stream."""

    stream: Literal["metrics", "logs"]
    records: list[Record]


class RecordAck(Wire):
    """Committed up to `acked`. Records that can never be taken are named, once, in `refused`."""

    acked: int
    refused: list[RefusedRecord] = []


class RefusedRecord(Wire):
    """A record the master will not take (bad group name, too large …): raised in the trial's next call."""

    seq: int
    code: str
    message: str


class PreemptReply(Wire):
    """GET task/preempt?timeout_seconds=N (long poll; returns at once when the signal is on)."""

    preempt: bool
    reason: Literal["", "stop", "pause", "preempt", "cancel", "drain"] = ""


class CommitCheckpoint(Wire):
    """POST task/checkpoints: the files are uploaded and their manifest is written; make it a checkpoint."""

    uuid: str
    steps_completed: int
    metadata: dict[str, Any] = {}
    files: dict[str, CheckpointFile]
    manifest_digest: str


class BestValidationReply(Wire):
    """GET task/best-validation: the best searcher metric of the experiment so far, or None."""

    value: float | None = None


class TokenReply(Wire):
    """POST task/token: a fresh task token; the old one works until it expires."""

    token: str
    expires_at: float


# --- agents -------------------------------------------------------------------------------------------------


class EnrolRequest(Wire):
    """POST agents/enrol, authorised by an enrolment token."""

    agent_id: str
    protocol: int = PROTOCOL


class EnrolReply(Wire):
    """The agent's own key; the master keeps only its hash."""

    agent_id: str
    token: str


class RunningTask(Wire):
    """A task the agent still has: alive, or ended with the exit not yet acknowledged."""

    allocation_id: str
    run: int
    exited: bool = False
    exit_code: int | None = None


class Hello(Wire):
    """First message of the agent, on every connection."""

    type: Literal["hello"] = "hello"
    protocol: int = PROTOCOL
    version: str = ""
    agent_id: str
    serves_user: str | None = None
    """None: any user (root agent); else tasks of others are refused."""
    slots: list[SlotView]
    tasks: list[RunningTask] = []
    runtimes: list[str] = ["process"]
    address: str = "127.0.0.1"
    """Where the ports of its tasks are reached from the Hub's proxy."""


class Heartbeat(Wire):
    """Every 5 s both ways."""

    type: Literal["heartbeat"] = "heartbeat"
    time: float = 0.0


class TaskStarted(Wire):
    """The task's process group exists."""

    type: Literal["task_started"] = "task_started"
    allocation_id: str
    run: int
    pid: int | None = None
    address: str | None = None
    """Where its service is reached, for a launch with one."""
    port: int | None = None


class TaskStage(Wire):
    """How far a launch is; for people, and so that a long pull does not look like a hang."""

    type: Literal["task_stage"] = "task_stage"
    allocation_id: str
    run: int
    stage: Literal["pulling", "starting"]
    message: str = ""


class TaskExited(Wire):
    """The task's process group is gone and its records are delivered. Repeated until `exit_ack`."""

    type: Literal["task_exited"] = "task_exited"
    allocation_id: str
    run: int
    exit_code: int | None = None
    """Of the entrypoint; negative = killed by that signal; None = unknown (the launcher died)."""
    rank: int | None = None
    """First failing rank, when known."""
    reason: str = ""
    """"" | refused (the agent would not start it) | setup (bundle, image or directory failed) | oom (ended for its
    container's memory limit) | launcher_lost | machine_restarted (it went down with its node, which is never its own
    failure)"""
    message: str = ""


AgentMessage = Annotated[Hello | Heartbeat | TaskStarted | TaskStage | TaskExited, Field(discriminator="type")]


class Welcome(Wire):
    """Answer to Hello: which tasks to keep, which to kill (fenced or unknown)."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL
    cluster_id: str
    keep: list[str] = []
    kill: list[str] = []


class Mount(Wire):
    """A host directory inside a container."""

    host_path: str
    container_path: str
    read_only: bool = False
    propagation: str = "rprivate"


class DeviceMount(Wire):
    """A host device inside a container."""

    host_path: str
    container_path: str
    mode: str = "mrw"


class ContainerSpec(Wire):
    """How the docker runtime makes the task's container."""

    image: str
    force_pull: bool = False
    registry_auth: dict[str, str] | None = None
    """Secret: in memory and in this message only, never in the task's directory."""
    mounts: list[Mount] = []
    devices: list[DeviceMount] = []
    add_capabilities: list[str] = []
    drop_capabilities: list[str] = []
    shm_size: int | None = None
    """Bytes; None: 4 GiB."""
    memory: int | None = None
    """Bytes; None: no limit."""
    cpus: float | None = None
    network: str | None = None
    """bridge, host, or the name of a network; None: host if the master listens on loopback only, else bridge."""


class ServiceSpec(Wire):
    """The task serves HTTP on a port that the agent chooses: DET_SERVICE_ADDRESS and DET_SERVICE_PORT in its
    environment, `TaskStarted.address` and `.port` for the master.
    """


class Launch(Wire):
    """Start a task. Idempotent by (allocation_id, run)."""

    type: Literal["launch"] = "launch"
    allocation_id: str
    run: int
    owner: str
    """Hub user whose uid the task gets."""
    slots: list[str]
    entrypoint: list[str] | str
    """argv, or a line for `sh -c`."""
    environment: dict[str, str] = {}
    """From environment.environment_variables."""
    bundle: str | None = None
    info: ClusterInfoWire
    task_token: str
    token_expires_at: float
    kind: str = "trial"
    """trial, or a taskwire.TaskKind."""
    runtime: Literal["process", "docker"] = "process"
    container: ContainerSpec | None = None
    """For the docker runtime."""
    service: ServiceSpec | None = None
    user_home: bool = False
    """HOME is the user's own persistent home on the node (notebooks, shells), not the task's."""
    reach: list[str] = []
    """The operator's own directories that the task gets into, whatever closed ones are above them; never a path of
    the experiment's: a root agent would open other people's directories for its author."""


class Kill(Wire):
    """SIGTERM to the task's process group now, SIGKILL after `grace` seconds. Idempotent."""

    type: Literal["kill"] = "kill"
    allocation_id: str
    run: int
    grace: float = 5.0


class ExitAck(Wire):
    """The exit is committed: forget the task, remove its directory when `clean`."""

    type: Literal["exit_ack"] = "exit_ack"
    allocation_id: str
    run: int
    clean: bool = True


MasterMessage = Annotated[Welcome | Heartbeat | Launch | Kill | ExitAck, Field(discriminator="type")]


for _model in (CreateExperimentReply, ExperimentView, TrialView, CheckpointView, RecordAck):
    _model.model_rebuild()
