"""Tables of runs that no cluster started, of what clients of MLflow log into trials, and of the files of both."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Index, SmallInteger, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class TrackedRunRow(Base):
    """A run from elsewhere, in a project; or what a trial has logged by such a client, and the children of a trial.

    One of `project_id` and `experiment_id` is set. The row whose `is_trial` is set stands for its trial itself, and
    has no metrics of its own: those are the trial's.
    """

    __tablename__ = "tracked_runs"
    __table_args__ = (
        Index(None, "project_id", "started_ms"),
        Index(None, "experiment_id", "started_ms"),
        Index(None, "trial_id"),
        Index(None, "owner"),
    )

    id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """32 hex digits: drawn, or made of its owner and the key by which their scripts know it."""
    owner: Mapped[str] = mapped_column(CleanText)
    project_id: Mapped[int | None] = mapped_column(ForeignKey("projects.id"), default=None)
    workspace_id: Mapped[int | None] = mapped_column(ForeignKey("workspaces.id"), default=None)
    """That of its project."""
    experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiments.id"), default=None)
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("trials.id"), default=None)
    is_trial: Mapped[bool] = mapped_column(default=False)
    attempt: Mapped[int] = mapped_column(default=0)
    """Of a trial: its attempt that has made or resumed this run last."""
    owner_groups: Mapped[list[str]] = mapped_column(Json, default=list)
    """Groups of the Hub that its owner was in when it was made, for quotas."""
    name: Mapped[str] = mapped_column(CleanText, default="")
    said_user: Mapped[str] = mapped_column(CleanText, default="")
    """Whom the client named; `owner` is who it was."""
    status: Mapped[str] = mapped_column(CleanText, default="RUNNING")
    end_reason: Mapped[str] = mapped_column(CleanText, default="")
    """Why it failed, if it is known."""
    started_ms: Mapped[int] = mapped_column(BigInteger, default=0)
    ended_ms: Mapped[int | None] = mapped_column(BigInteger, default=None)
    datasets: Mapped[list[Any]] = mapped_column(Json, default=list)
    models_in: Mapped[list[Any]] = mapped_column(Json, default=list)
    models_out: Mapped[list[Any]] = mapped_column(Json, default=list)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)
    deleted_at: Mapped[float | None] = mapped_column(Double, default=None)


class TrackedWriterRow(Base):
    """A process that sends the records of a run, each with a number of its own sequence."""

    __tablename__ = "tracked_writers"
    __table_args__ = (Index(None, "state", "heard_at"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    acked: Mapped[int] = mapped_column(BigInteger, default=0)
    """The number of its last record that is stored."""
    state: Mapped[str] = mapped_column(CleanText, default="OPEN")
    """A `core.tracking.writers.WriterState`."""
    reason: Mapped[str] = mapped_column(CleanText, default="")
    begun_ms: Mapped[int] = mapped_column(BigInteger, default=0)
    ended_ms: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Both by its own clock."""
    heard_at: Mapped[float] = mapped_column(Double, default=0.0)
    """By the master's clock."""


class TrackedValue(Base):
    """A parameter, a tag or a result of a run."""

    __tablename__ = "tracked_values"
    __table_args__ = (Index(None, "kind", "key"), {"sqlite_with_rowid": False})

    run_id: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`param`, `tag` or `summary`, whose values are JSON."""
    key: Mapped[str] = mapped_column(CleanText, primary_key=True)
    value: Mapped[str] = mapped_column(CleanText, default="")


class TrackedSeries(Base):
    """A metric of a run, with its newest point: that of the greatest step, then time, then value."""

    __tablename__ = "tracked_series"
    __table_args__ = (UniqueConstraint("run_id", "name_id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"))
    name_id: Mapped[int] = mapped_column(ForeignKey("metric_names.id"))
    last: Mapped[float | None] = mapped_column(Double, default=None)
    last_flag: Mapped[int] = mapped_column(SmallInteger, default=0)
    last_step: Mapped[int] = mapped_column(BigInteger, default=0)
    last_ms: Mapped[int] = mapped_column(BigInteger, default=0)


class TrackedPoint(Base):
    """One value of a metric; several may have the same step. `value` is 0 where `flag` says that it is not finite."""

    __tablename__ = "tracked_points"
    __table_args__ = ({"sqlite_with_rowid": False},)

    series_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    time_ms: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    flag: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    value: Mapped[float] = mapped_column(Double, primary_key=True, autoincrement=False)


class TrackedModelRow(Base):
    """A model that a run has logged."""

    __tablename__ = "tracked_models"
    __table_args__ = (Index(None, "run_id"),)

    id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`m-` and 32 hex digits."""
    run_id: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"))
    name: Mapped[str] = mapped_column(CleanText)
    model_type: Mapped[str] = mapped_column(CleanText, default="")
    status: Mapped[str] = mapped_column(CleanText, default="LOGGED_MODEL_PENDING")
    params: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    tags: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    metrics: Mapped[list[Any]] = mapped_column(Json, default=list)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)


class TrackedFileRow(Base):
    """A file of a run, or of a model that it has logged; the bytes are in the artifacts directory."""

    __tablename__ = "tracked_files"
    __table_args__ = (Index(None, "run_id"),)

    root: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """The run, or the model."""
    path: Mapped[str] = mapped_column(CleanText, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("tracked_runs.id"))
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    digest: Mapped[str] = mapped_column(CleanText, default="")
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)
