"""What people and their programs are shown of the cluster, experiments, trials and checkpoints, and how they submit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from detlab.schemas.wire.base import (
    PROTOCOL,
    AllocationState,
    EndReason,
    ExperimentState,
    PersonRequest,
    TrialState,
    Wire,
)
from detlab.schemas.wire.cluster.master import ClusterMessageView
from detlab.schemas.wire.storage import DeletionView

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
    """Whether tasks may start on it: an administrator may close it; an agent says so of devices that others use."""
    note: str = ""
    """Why the agent offers it to nobody, for people, such as "used by others on the cluster"; empty: it does."""
    memory: int = 0
    """Bytes of the GPU's own memory, of a share its part; 0: none, or not known."""
    device: str = ""
    """The device that it is a share of; empty: it is a whole device."""
    shares: int = 1
    """Number of shares that its device is divided into."""


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
    """False: nothing new starts."""
    mode: Literal["enabled", "disabled", "draining", "drained"] = "enabled"
    """What an administrator decided: disabled, and what runs continues; draining, until nothing runs there: drained."""
    drain_until: float | None = None
    """When what is still there is ended, of an agent that is drained by then."""
    runtimes: list[str] = ["process"]
    """How it can run tasks: process, docker."""
    pool: str = "default"
    labels: dict[str, str] = {}
    enrolled_at: float = 0.0
    cpus: float | None = None
    """CPUs that its tasks may ask for together; None: they are not counted."""
    cpus_asked: float = 0.0
    """Those that tasks asked for which are there now."""
    memory: int | None = None
    """Bytes of memory, likewise."""
    memory_asked: int = 0
    refused: str | None = None
    """Why the master did not accept its last connection, for administrators."""
    note: str = ""
    """What its cluster says of it, for people: why nothing new starts there, that it does not answer, or will come."""
    enforces: list[str] = []
    """What it enforces of policies now, such as gov.direct@1."""
    attestation: str = ""
    """`fresh`, `stale`, or why it does not count, for people."""


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
    tasks_running: int = 0
    """Trials, notebooks and others that have a place, with or without slots."""
    experiments_active: int = 0
    draining: bool = False
    is_copy: bool = False
    """It is a copy of a cluster, whose checkpoints it leaves alone until it is told to take over."""
    message: ClusterMessageView | None = None
    """What administrators tell everybody now."""


# --- experiments ------------------------------------------------------------------------------------------


class ProblemView(Wire):
    """One mistake or warning, with where it is."""

    path: str
    message: str
    hint: str | None = None
    level: Literal["error", "warning"] = "error"


FAILURE_KINDS = (
    *("oom", "nan", "import", "hang", "lost", "preempted", "user_stop", "no_metrics", "max_time"),
    *("disk_full", "checkpoint", "config", "exception", "killed", "searcher", "unknown"),
)
"""Out of memory, a NaN, a missing module, a rank that does not arrive, a lost node, preemption, a user's stop, no
searcher metric, an exceeded maximum time; a full disk, a checkpoint whose files are gone, a command
or setup that cannot work, an error of the code, a signal, a report that the search cannot use, and an exit code that
says nothing."""


class FailureView(Wire):
    """A failure card: what, where, likely cause, last lines, next command."""

    kind: str
    """One of FAILURE_KINDS; a newer master may know others."""
    message: str
    trial_id: int | None = None
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    where: str | None = None
    """`cell 14, line 3` or `train.py, line 12`."""
    node: str | None = None
    """Where it ran: a node's own name, or that of the agent whose batch system chose one."""
    log_tail: list[str] = []
    """At most 20 lines of the first failing rank, secrets of the config masked."""
    hint: str | None = None
    command: str | None = None
    """The command to run next, if there is one; the hint may name it, too."""


class BestView(Wire):
    """The best validation so far."""

    trial_id: int
    trial_index: int
    steps_completed: int
    value: float
    checkpoint: str | None = None
    failed: bool = False
    """Whether that trial has failed since."""

    @property
    def told(self) -> str:
        """Where it is from, for people: `trial 47`, or `trial 47, which failed`."""
        return f"trial {self.trial_id}" + (", which failed" if self.failed else "")


class BudgetView(Wire):
    """A budget of a search."""

    name: str
    """`slot_hours`, or `wall_clock` in seconds."""
    limit: float
    used: float


class ExperimentView(Wire):
    """An experiment with the numbers its progress line needs."""

    id: int
    name: str
    description: str | None = None
    labels: list[str] = []
    notes: str | None = None
    """Only on a single experiment."""
    owner: str
    may: Literal["read", "write", "own"] = "read"
    """What the caller may do: look at it; also pause, activate, cancel, kill, edit and archive it; also share and
    delete it."""
    workspace: str = ""
    """Its name, as `OWNER/NAME` if another user than the experiment's owner has made it."""
    workspace_id: int | None = None
    project: str = ""
    project_id: int | None = None
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
    paused_at: float | None = None
    """When the present pause began."""
    paused_seconds: float = 0.0
    """How long the pauses that are over took, between start and end."""
    edited_at: float | None = None
    """When its name, description, notes or labels were changed last."""
    archived_at: float | None = None
    pending_reason: str | None = None
    """The dominant reason why nothing more runs now, or why it is not deleted yet."""
    deletion: DeletionView | None = None
    """Files of it that are still to be removed, if it is being deleted; on a single experiment also what collection
    could not remove."""
    budgets: list[BudgetView] = []
    """What its search may use, and has used; not in lists."""
    cost: float | None = None
    """What its trials have cost so far, at the prices that stood when they got their slots; not in lists. null: no
    price."""
    currency: str = ""
    """What `cost` is in, as the administrator has named it."""
    search_task: str | None = None
    """The task that runs the class of a custom search, or ran it last."""
    warnings: list[str] = []
    """For example: trial 3 never reported 'val_loss'."""
    bundle: str | None = None
    config: dict[str, Any] | None = None
    """Resolved; only on a single experiment, secrets masked."""
    failure: FailureView | None = None
    card: FailureView | None = None
    """`failure`, or who stopped it, or why the first of its failed trials did; only on a single experiment."""
    log_retention_days: int | None = None
    """Days that output is kept after the end of each trial; -1: forever; null: the master's default."""
    source: dict[str, Any] = {}
    forked_from: int | None = None
    """The experiment that it is a fork of, if the reader may see that one; only on a single experiment."""
    unmanaged: bool = False
    """Whether users evaluate its trials by hand: the cluster runs none of them."""
    governed: bool = False
    """Whether its config has a policy of what may be learnt from what."""
    values: list[Any] = []
    """In a list, one for each column that was asked for, null where it has none: those of its best trial."""
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""

    @property
    def took(self) -> float | None:
        """Seconds from its start to its end without pauses; None: it has not ended, or never started."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, self.ended_at - self.started_at - self.paused_seconds)

    @property
    def held(self) -> str:
        """How many trials hold slots, and what they do: `2 running`, or once it is paused `1 pausing`; empty: none."""
        count = self.trials.get("RUNNING", 0)
        word = {ExperimentState.ACTIVE: "running", ExperimentState.PAUSED: "pausing"}.get(self.state, "stopping")
        return f"{count} {word}" if count else ""


class CreateExperiment(PersonRequest):
    """POST experiments. `config` is the raw config (a mapping) or `config_yaml` its text."""

    config: dict[str, Any] | None = None
    config_yaml: str | None = None
    bundle: str | None = None
    """Digest `tree:<hex>` or `sha256:<hex>` of an uploaded bundle; None means an empty context directory."""
    idempotency_key: str | None = None
    """The same key by the same user returns the experiment made first (an acknowledged submit is never doubled)."""
    activate: bool = True
    dry_run: bool = False
    source: dict[str, Any] = {}
    """Provenance for people: notebook path, cell id, line maps of captured cells, client version."""
    forked_from: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """The experiment as whose copy the config began: where it still has a mask, the owner's own secret is put back."""
    template: Annotated[str, Field(max_length=1000)] | None = None
    """A template of the master that is laid under the config: `NAME` or `WORKSPACE:NAME`; null: the default one of its
    workspace; empty: none."""


class ForecastView(Wire):
    """What would happen to the first trial if a dry run had been a submit, by the code that schedules."""

    pool: str
    agent_id: str | None = None
    """Where it would start at once; None: it would wait."""
    reason: str = ""
    """Why it would wait, of the scheduler's closed set."""
    detail: str = ""


class GivenView(Wire):
    """A value of a config that its submitter has not given."""

    path: str
    value: Any = None
    """Credentials masked."""
    source: str
    """Where it comes from, such as `workspace ada/vision`."""


class CostView(Wire):
    """What an experiment will cost, by its config and the price of its pool."""

    pool: str
    price: float
    """Of a slot for an hour."""
    per_hour: float | None = None
    """While as many trials run as may at a time, by config, pool and quotas of their owner; null: any number may."""
    at_most: float | None = None
    """In all, by `searcher.budget.slot_hours` or `resources.max_time`; null: there is no limit."""
    currency: str = ""


class CreateExperimentReply(Wire):
    """What became of a submit. `experiment` is None for a dry run."""

    experiment: ExperimentView | None = None
    created: bool = True
    warnings: list[ProblemView] = []
    config: dict[str, Any] = {}
    forecast: ForecastView | None = None
    """Of a dry run."""
    given: list[GivenView] = []
    """What its submitter has not said: of its template, workspace, pool, cluster and config policies."""
    cost: CostView | None = None
    """null: its pool has no price."""


# --- trials, checkpoints ----------------------------------------------------------------------------------


class SummaryView(Wire):
    """Summary of one scalar series; min, max and mean skip NaN."""

    count: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    last: float | None = None
    last_step: int | None = None
    nan_count: int = 0


class PolicyMatch(Wire):
    """A line of a trial that a log policy was looking for; the first of each policy and agent."""

    name: str | None = None
    """The label."""
    pattern: str
    action: str | None = None
    """exclude_node | cancel_retries; null: only the label"""
    agent_id: str | None = None
    run: int = 0
    time: float = 0.0
    line: str = ""
    """Its beginning, secrets masked."""


class AttemptView(Wire):
    """One attempt to run a trial: the first, one after a restart, or one after a pause or a preemption."""

    run: int
    agent_id: str | None = None
    resume_step: int | None = None
    """The step that it continued from; null: it began anew. Curves of earlier attempts end there."""
    started_at: float | None = None
    ended_at: float | None = None
    reason: str | None = None
    """Why it ended."""


class ParentView(Wire):
    """From which trial's checkpoint a trial started."""

    trial_id: int
    parent_id: int
    """The trial whose checkpoint it was."""
    steps_completed: int
    """The step of the checkpoint."""


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
    point_due: bool = False
    """Whether it has no hyperparameters yet: its search draws them when it starts."""
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
    asked_by: str = ""
    """Who evaluates it by hand, or did; empty: nobody so far, or its experiment is not unmanaged."""
    asked_at: float | None = None
    """Since when they do; null: it waits to be asked for, or is paused."""
    started_at: float | None = None
    ended_at: float | None = None
    worked: float | None = None
    """Seconds that its attempts which are over ran: without pauses and the queue; null: none has started."""
    works_since: float | None = None
    """When the attempt began that runs now."""
    pending_reason: str | None = None
    parent: ParentView | None = None
    """The trial from whose checkpoint it started, if the search made it as a clone."""
    stop_evidence: str = ""
    """Why a stopping policy, a budget or a user stopped it, for people; empty where the search method did."""
    would_stop: list[str] = []
    """What stopping policies with `dry_run` would have stopped it for."""
    warnings: list[str] = []
    policy_matches: list[PolicyMatch] = []
    attempts: list[AttemptView] = []
    """The newest hundred that have started, oldest first; only on a single trial."""
    failure: FailureView | None = None
    card: FailureView | None = None
    """`failure`, or why it ended or waits without having failed: `lost`, `preempted`, `user_stop`, `nan`, `no_metrics`;
    only on a single trial."""
    summary: dict[str, dict[str, SummaryView]] = {}
    """group -> metric name -> summary; only on a single trial."""
    summary_left_out: int = 0
    """Number of metrics missing from `summary` because there are too many: request their curves by name."""
    metadata: dict[str, Any] = {}
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""

    @property
    def why_stopped(self) -> str:
        """Why it was stopped, or what policies with `dry_run` would have stopped it for, in one line; else empty."""
        return "; ".join(
            [self.stop_evidence] if self.stop_evidence else [f"not stopped: {one}" for one in self.would_stop]
        )


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


class AttemptSpan(Wire):
    """The slots that one attempt of a trial held, and from when to when."""

    trial_id: int
    run: int
    agent_id: str | None = None
    slots: list[str] = []
    """Names of slots at the agent; of several agents as AGENT/SLOT."""
    started_at: float
    ended_at: float | None = None
    """Null: it has not ended."""


class CurvesView(Wire):
    """Snapshot for a live view: experiment, trials and curves as of `cursor`; follow the stream from there."""

    cursor: int
    experiment: ExperimentView
    trials: list[TrialView] = []
    curves: list[SeriesView] = []
    attempts: list[AttemptSpan] = []
    """The newest attempts of these trials that have started, oldest first; only if they were asked for."""
    parents: list[ParentView] = []
    """Of the trials that started from another's checkpoint; only if they were asked for."""
    next: int | None = None
    """`skip` of the part with the next curves, which has nothing else; null: these are all."""


class LogLine(Wire):
    """One line of a task's output."""

    id: int = 0
    trial_id: int = 0
    task_id: str | None = None
    """Of a notebook, shell, command …; then trial_id is 0."""
    run: int = 0
    rank: int | None = None
    node: str | None = None
    """The agent on which it was written, where that is known."""
    stdtype: Literal["stdout", "stderr", "launcher"] = "stdout"
    level: str | None = None
    time: float = 0.0
    text: str


class CheckpointFile(Wire):
    """One file of a manifest, keyed by its relative POSIX path."""

    size: int
    digest: str
    """sha256:<hex>"""
    mode: int = 0o644


class CheckpointView(Wire):
    """A committed checkpoint."""

    uuid: str
    trial_id: int
    """0, as is the experiment: it is a model that `tracked_run` has logged."""
    experiment_id: int
    tracked_run: str = ""
    """The run that has logged it, by a client of MLflow."""
    run: int = 0
    steps_completed: int = 0
    state: Literal["COMPLETED", "PARTIALLY_DELETED", "DELETED"] = "COMPLETED"
    """Only from a COMPLETED one a trial can start; one that is PARTIALLY_DELETED has the files that it lists."""
    created_at: float = 0.0
    size: int = 0
    """Bytes over all files."""
    files: dict[str, CheckpointFile] = {}
    metadata: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    """The checkpoint_storage block in use, secrets masked."""
    validation: float | None = None
    """The searcher metric reported at the same step, if any."""
    metrics: dict[str, float] = {}
    """The value at the same step of the metric that a list was asked to have."""
    manifest_digest: str = ""
    trash_until: float | None = None
    """Until when a DELETED one can be restored; null: it is not in the trash."""
    removing: bool = False
    """Whether its files, or some of them, are being removed."""
    removal_failure: str = ""
    """Why the last attempt left some of them; it is tried again."""
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""


# --- events, errors ---------------------------------------------------------------------------------------


class Event(Wire):
    """One line of the event stream (newline-delimited JSON). `id` is the cursor to resume after.

    kinds: experiment (data: ExperimentView without config) | trial (data: TrialView) |
    task (data: taskwire.TaskView without config) | cluster (agents or the queue changed: ask for them again) |
    metrics (data: {group, steps_completed, run, metrics{name: number}}) | checkpoint (data: CheckpointView) |
    model (data: {id, name, owner, did, …}: a model has changed, ask for it again) |
    resync (the cursor is older than what is kept, or the reader lagged: fetch the snapshot again) |
    cursor (nothing new for you, but the cursor moved; with `rights` in its data, yours to something may have changed:
    ask again for what you show) . An empty line is a keep-alive.
    """

    id: int
    kind: Literal["experiment", "trial", "task", "cluster", "metrics", "checkpoint", "model", "resync", "cursor"]
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
