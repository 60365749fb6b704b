"""Tables of submissions and their runs: experiments, trials, allocations, checkpoints."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, ExactFloat, Json


class BundleRow(Base):
    """An uploaded code bundle; the bytes lie in the bundles directory under the digest."""

    __tablename__ = "bundles"

    digest: Mapped[str] = mapped_column(CleanText, primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    owner: Mapped[str] = mapped_column(CleanText, default="")
    """The user who uploaded it first."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    unused_since: Mapped[float | None] = mapped_column(Double, default=None)
    """Since when no experiment and no task names it, as far as was looked; NULL: one does, or it was sent since."""


class BundleUpload(Base):
    """A user who has uploaded a bundle, as others may have: this tells them nothing about each other (I9)."""

    __tablename__ = "bundle_uploads"

    digest: Mapped[str] = mapped_column(CleanText, ForeignKey("bundles.digest"), primary_key=True)
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class ExperimentRow(Base):
    """One experiment. `id` is never used again, not even after a delete."""

    __tablename__ = "experiments"
    __table_args__ = (
        Index(None, "owner", "id"),
        Index(None, "state", "id"),
        Index(None, "gc_at"),
        Index(None, "event_files_due"),
        Index(None, "bundle"),
        Index(None, "search_bundle"),
        Index(None, "workspace_id", "id"),
        Index(None, "project_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(CleanText)
    description: Mapped[str | None] = mapped_column(CleanText, default=None)
    notes: Mapped[str] = mapped_column(CleanText, default="")
    labels: Mapped[list[str]] = mapped_column(Json, default=list)
    owner: Mapped[str] = mapped_column(CleanText)
    workspace_id: Mapped[int | None] = mapped_column(ForeignKey("workspaces.id"), default=None)
    project_id: Mapped[int | None] = mapped_column(ForeignKey("projects.id"), default=None)
    state: Mapped[str] = mapped_column(CleanText)
    config: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    searcher_name: Mapped[str] = mapped_column(CleanText, default="")
    metric: Mapped[str] = mapped_column(CleanText, default="")
    smaller_is_better: Mapped[bool] = mapped_column(default=True)
    seed: Mapped[int] = mapped_column(BigInteger, default=0)
    progress: Mapped[float] = mapped_column(Double, default=0.0)
    priority: Mapped[int] = mapped_column(default=42)
    resource_pool: Mapped[str] = mapped_column(CleanText, default="default")
    weight: Mapped[float] = mapped_column(Double, default=1.0)
    max_slots: Mapped[int | None] = mapped_column(default=None)
    position: Mapped[float | None] = mapped_column(Double, default=None)
    """Where it was moved to in the queue, on the scale of `created_at`; NULL: it was not moved."""
    owner_groups: Mapped[list[str]] = mapped_column(Json, default=list)
    """Groups of the Hub that its owner was in when it was submitted, for quotas."""
    log_retention_days: Mapped[int | None] = mapped_column(default=None)
    """Days for which lines are kept, -1 for ever; NULL: the master's default."""
    bundle: Mapped[str | None] = mapped_column(CleanText, default=None)
    source: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    warnings: Mapped[list[str]] = mapped_column(Json, default=list)
    failure: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    best_trial_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    best_step: Mapped[int | None] = mapped_column(BigInteger, default=None)
    best_value: Mapped[float | None] = mapped_column(Double, default=None)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    started_at: Mapped[float | None] = mapped_column(Double, default=None)
    ended_at: Mapped[float | None] = mapped_column(Double, default=None)
    paused_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it was paused; NULL: it is not, or was before 0013."""
    paused_seconds: Mapped[float] = mapped_column(Double, default=0.0)
    """How long its pauses between start and end took together, without one that has not ended."""
    edited_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When its name, description, notes or labels were changed last; NULL: never."""
    archived_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it was archived; NULL: it is not."""
    budget: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """`searcher.budget`, and under `spent` which part of it is used up; NULL: it has none."""
    search_task: Mapped[str | None] = mapped_column(CleanText, default=None)
    """The user task that runs the class of a custom search, or ran it last; NULL: there was none."""
    search_bundle: Mapped[str | None] = mapped_column(CleanText, default=None)
    """Code of that class that was sent later; NULL: it is in `bundle`."""
    trials_planned: Mapped[int | None] = mapped_column(default=None)
    """How many trials the search makes at most since it was steered; NULL: as many as the config says."""
    units_added: Mapped[int] = mapped_column(BigInteger, default=0)
    """By how many units of the time metric users have extended its longest trials."""
    gc_policy: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """What it keeps of its checkpoints, as it was changed; NULL: what its config says."""
    gc_at: Mapped[float | None] = mapped_column(Double, default=None)
    """Since when its policy is to be applied; NULL: there is nothing to do."""
    gc_task: Mapped[str | None] = mapped_column(CleanText, default=None)
    """The user task that removes its collected checkpoints, or did last; NULL: there was none."""
    event_files_due: Mapped[float | None] = mapped_column(Double, default=None)
    """From when on a task is to remove its TensorBoard event files; NULL: they stay, or are gone."""
    event_files_failure: Mapped[str] = mapped_column(CleanText, default="")
    """Why the last attempt to remove them failed."""

    @property
    def max_time(self) -> int | None:
        """Units of the time metric of the longest trials, as far as users have extended them."""
        planned = (self.config.get("searcher") or {}).get("max_time")
        return None if planned is None else int(planned) + self.units_added


class GrantRow(Base):
    """A user or a Hub group that may read an experiment, or change it, by its owner's grant."""

    __tablename__ = "grants"
    __table_args__ = (Index(None, "kind", "name"),)

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`user` or `group`."""
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    write: Mapped[bool] = mapped_column(default=False)
    granted_by: Mapped[str] = mapped_column(CleanText, default="")
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class TrialRow(Base):
    """One trial of an experiment. `idx` is its place in creation order, from 0."""

    __tablename__ = "trials"
    __table_args__ = (
        UniqueConstraint("experiment_id", "request_id"),
        UniqueConstraint("experiment_id", "idx"),
        Index(None, "experiment_id", "state"),
        Index(None, "state", "id"),
        Index(None, "parent_checkpoint"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id"))
    idx: Mapped[int]
    request_id: Mapped[str] = mapped_column(CleanText)
    state: Mapped[str] = mapped_column(CleanText)
    hparams: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    point_due: Mapped[bool] = mapped_column(default=False)
    """Whether it has no hyperparameters yet: its search draws them when it is placed."""
    seed: Mapped[int] = mapped_column(BigInteger, default=0)
    restarts: Mapped[int] = mapped_column(default=0)
    run: Mapped[int] = mapped_column(default=0)
    progress: Mapped[float] = mapped_column(Double, default=0.0)
    status: Mapped[str] = mapped_column(CleanText, default="")
    steps_completed: Mapped[int] = mapped_column(BigInteger, default=0)
    best_validation: Mapped[float | None] = mapped_column(Double, default=None)
    best_step: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Where that was reported: the step at which filters and tables read its metrics."""
    latest_validation: Mapped[float | None] = mapped_column(ExactFloat, default=None)
    latest_checkpoint: Mapped[str | None] = mapped_column(CleanText, default=None)
    parent_checkpoint: Mapped[str | None] = mapped_column(CleanText, default=None)
    """Checkpoint of another trial of the search, from which its first attempt starts."""
    end_reason: Mapped[str | None] = mapped_column(CleanText, default=None)
    searcher_stopped: Mapped[bool] = mapped_column(default=False)
    hold: Mapped[str] = mapped_column(CleanText, default="none")
    """Whether its search keeps it off its slots: `core.lifecycle.trial.Hold`."""
    asked_by: Mapped[str] = mapped_column(CleanText, default="")
    """Who evaluates it by hand, or did; empty: nobody so far, or it is not evaluated by hand."""
    asked_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it was given to them; NULL: it waits, or its search has taken it back."""
    asked_key: Mapped[str] = mapped_column(CleanText, default="")
    """Idempotency key of the request that it was given to."""
    enqueued_by: Mapped[str] = mapped_column(CleanText, default="")
    """Who added its point to a search by hand, whose next trial it then is."""
    stop_evidence: Mapped[str] = mapped_column(CleanText, default="")
    """Why it was stopped early, for people."""
    would_stop: Mapped[list[str]] = mapped_column(Json, default=list)
    """What stopping policies that only record would have stopped it for."""
    early_exit: Mapped[str | None] = mapped_column(CleanText, default=None)
    searcher_metric_seen: Mapped[bool] = mapped_column(default=False)
    warnings: Mapped[list[str]] = mapped_column(Json, default=list)
    failure: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    policy_matches: Mapped[list[Any]] = mapped_column(Json, default=list)
    """The matches of its log policies, in order: mappings of `wire.PolicyMatch`."""
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", Json, default=dict)
    first_run: Mapped[int] = mapped_column(default=0)
    """Its first attempt since it began anew; it resumes from checkpoints of this one and later ones only."""
    metrics_run: Mapped[int] = mapped_column(default=0)
    """Newest run that has reported metrics; `queries.metrics` supersedes earlier runs when it grows."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    started_at: Mapped[float | None] = mapped_column(Double, default=None)
    ended_at: Mapped[float | None] = mapped_column(Double, default=None)


class AllocationRow(Base):
    """One attempt to run a trial or a user task; `run` fences its writes.

    Either `trial_id` and `experiment_id` are set, or `task_id`. Deadlines are columns so that a restart keeps them.
    """

    __tablename__ = "allocations"
    __table_args__ = (
        UniqueConstraint("trial_id", "run"),
        UniqueConstraint("task_id", "run"),
        Index(None, "state", "id"),
        Index(None, "experiment_id"),
        Index(None, "ended_at"),
    )

    id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("trials.id"), default=None)
    experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiments.id"), default=None)
    task_id: Mapped[str | None] = mapped_column(ForeignKey("tasks.id"), default=None)
    owner: Mapped[str] = mapped_column(CleanText, default="")
    """The user to whom its slot time is attributed, even after the experiment is deleted."""
    runtime: Mapped[str] = mapped_column(CleanText, default="process")
    stage_message: Mapped[str] = mapped_column(CleanText, default="")
    address: Mapped[str | None] = mapped_column(CleanText, default=None)
    port: Mapped[int | None] = mapped_column(default=None)
    run: Mapped[int]
    state: Mapped[str] = mapped_column(CleanText)
    agent_id: Mapped[str | None] = mapped_column(CleanText, default=None)
    slots: Mapped[list[str]] = mapped_column(Json, default=list)
    nodes: Mapped[int] = mapped_column(default=1)
    """Number of its agents, with a `PartRow` for each; `agent_id` is the chief's. With several agents `slots` are those
    of all, as AGENT/SLOT."""
    slots_needed: Mapped[int] = mapped_column(default=1)
    priority: Mapped[int] = mapped_column(default=42)
    constraints: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """The constraints on its agents; NULL: none."""
    millicpus: Mapped[int] = mapped_column(BigInteger, default=0)
    """Thousandths of a CPU that it requests on each of its agents."""
    memory: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes of memory that it requests on each of its agents."""
    max_time: Mapped[float | None] = mapped_column(Double, default=None)
    """Seconds from its start after which it is asked to leave for good; NULL: no limit."""
    requested_at: Mapped[float] = mapped_column(Double, default=0.0)
    assigned_at: Mapped[float | None] = mapped_column(Double, default=None)
    started_at: Mapped[float | None] = mapped_column(Double, default=None)
    ended_at: Mapped[float | None] = mapped_column(Double, default=None)
    preempt_reason: Mapped[str | None] = mapped_column(CleanText, default=None)
    preempt_at: Mapped[float | None] = mapped_column(Double, default=None)
    preempt_acked_at: Mapped[float | None] = mapped_column(Double, default=None)
    term_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When SIGTERM is due."""
    kill_sent_at: Mapped[float | None] = mapped_column(Double, default=None)
    exit_code: Mapped[int | None] = mapped_column(default=None)
    exit_reason: Mapped[str | None] = mapped_column(CleanText, default=None)
    metrics_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    logs_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    resume_step: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """steps_completed of the checkpoint it resumed from; None = from scratch."""
    superseded_applied: Mapped[bool] = mapped_column(default=False)
    pool: Mapped[str] = mapped_column(CleanText, default="")
    """In which it got its slots; empty: it waits, or an earlier version gave them."""
    price: Mapped[float] = mapped_column(Double, default=0.0)
    """Of a slot for an hour, when it got its slots: it stands until they are released."""


class SearcherJournal(Base):
    """Every event the searcher saw and what it decided; replayed after a crash."""

    __tablename__ = "searcher_journal"

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    event: Mapped[dict[str, Any]] = mapped_column(Json)
    decisions: Mapped[list[Any]] = mapped_column(Json, default=list)
    at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it was written; None if an earlier version wrote it."""


class CheckpointRow(Base):
    """A committed checkpoint: its manifest was complete when the row was written.

    That of a model which a run has logged has neither trial nor experiment, but that run, and its files are the
    master's own: nothing that looks through the checkpoints of trials or experiments comes across it.
    """

    __tablename__ = "checkpoints"
    __table_args__ = (
        Index(None, "trial_id", "steps_completed"),
        Index(None, "experiment_id", "created_at"),
        Index(None, "experiment_id", "state", "size"),
        Index(None, "run_id"),
    )

    uuid: Mapped[str] = mapped_column(CleanText, primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id"), nullable=True, default=None)
    """NULL, as is the experiment, where `run_id` is set."""
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id"), nullable=True, default=None)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("tracked_runs.id"), default=None)
    run: Mapped[int] = mapped_column(default=0)
    steps_completed: Mapped[int] = mapped_column(BigInteger, default=0)
    state: Mapped[str] = mapped_column(CleanText, default="COMPLETED")
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    files: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", Json, default=dict)
    storage: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    manifest_digest: Mapped[str] = mapped_column(CleanText, default="")
    environment: Mapped[str | None] = mapped_column(CleanText, default=None)
    """Digest of the `EnvironmentRow` of the task that saved it; NULL: it did not report it."""


class RemovalRow(Base):
    """Files of a checkpoint that are to be removed from its storage; the row goes when they are gone."""

    __tablename__ = "checkpoint_removals"
    __table_args__ = (Index(None, "due_at"),)

    uuid: Mapped[str] = mapped_column(CleanText, ForeignKey("checkpoints.uuid"), primary_key=True)
    paths: Mapped[list[str] | None] = mapped_column(Json, default=None)
    """Paths in the checkpoint; None: all of it."""
    requested_at: Mapped[float] = mapped_column(Double, default=0.0)
    due_at: Mapped[float] = mapped_column(Double, default=0.0)
    """When its time in the trash is over, or when a removal that failed is tried again."""
    begun_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When somebody was first told to remove the files; from then on it cannot be undone."""
    was: Mapped[str] = mapped_column(CleanText, default="")
    """The state that an undelete restores."""
    bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Committed size of what goes."""
    by_task: Mapped[bool] = mapped_column(default=False)
    """A task with its owner's rights removes it; otherwise the master, on a file system that it sees."""
    failure: Mapped[str] = mapped_column(CleanText, default="")
    """Why the last attempt to remove it failed."""


class Idempotency(Base):
    """Which experiment a submit with this key made."""

    __tablename__ = "idempotency"

    owner: Mapped[str] = mapped_column(CleanText, primary_key=True)
    key: Mapped[str] = mapped_column(CleanText, primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id"), index=True)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
