"""Tables of user tasks: notebooks, shells, commands, TensorBoards, borrowed cells, notebook runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, CleanText, Json


class TaskNote(StrEnum):
    """Keys of `TaskRow.source` that the master writes, and acts on. A client's `TaskSource` has none of these names."""

    HOLD = "hold"
    """It only keeps the slots of a server that the Hub's own spawner runs."""
    SERVER_HOST = "server_host"
    """Where the servers of its owner are, if each user's have a host name of their own."""
    BY_RUN = "by_run"
    """The allocation of the notebook run that started it. Such a task gets no token for its owner: else each run could
    start the next one, and a stolen token would work for ever."""
    CERTIFIED_RUN = "certified_run"
    """The attempt that was launched with a certificate."""
    GC = "gc"
    """The experiment whose checkpoints it removes."""
    READS = "reads"
    """The checkpoint of its owner that it reads, and which files it hands over."""
    CHECKS = "checks"
    """Which storages of its owner it compares with what the master knows, and whether it repairs them."""
    SEARCH = "search"
    """The experiment whose search it is."""
    SCHEDULE = "schedule"
    """The schedule that has started it."""
    TOLD = "told"
    """The search was told of its end."""
    IDLE_GPUS = "idle_gpus"
    """Since when its GPUs are at 0 %, and when they are released (null: they are not), in seconds since the epoch."""


class TaskRow(Base):
    """One user task. `id` is drawn, such as `notebook-3f9a1c20b7d4`, and never used again."""

    __tablename__ = "tasks"
    __table_args__ = (
        UniqueConstraint("owner", "key"),
        Index(None, "owner", "created_at"),
        Index(None, "state", "created_at"),
        Index(None, "bundle"),
        Index(None, "workspace_id", "created_at"),
        Index(None, "project_id", "created_at"),
    )

    id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText)
    name: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str] = mapped_column(CleanText)
    key: Mapped[str | None] = mapped_column(CleanText, default=None)
    """Idempotency key of its submit, or of the start by the Hub."""
    workspace_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Where it lies, whose members see its state; NULL: its owner's personal one."""
    project_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """NULL: the one for what names none."""
    state: Mapped[str] = mapped_column(CleanText)
    end_reason: Mapped[str | None] = mapped_column(CleanText, default=None)
    config: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    bundle: Mapped[str | None] = mapped_column(CleanText, default=None)
    source: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    """What the client said (`TaskSource`), and the master's own notes (`TaskNote`)."""
    priority: Mapped[int] = mapped_column(default=42)
    resource_pool: Mapped[str] = mapped_column(CleanText, default="default")
    weight: Mapped[float] = mapped_column(Double, default=1.0)
    max_slots: Mapped[int | None] = mapped_column(default=None)
    position: Mapped[float | None] = mapped_column(Double, default=None)
    """Where it was moved to in the queue, on the scale of `created_at`; NULL: it was not moved."""
    owner_groups: Mapped[list[str]] = mapped_column(Json, default=list)
    """Groups of the Hub that its owner was in when it was submitted, for quotas."""
    run: Mapped[int] = mapped_column(default=0)
    experiment_ids: Mapped[list[int]] = mapped_column(Json, default=list)
    trial_ids: Mapped[list[int]] = mapped_column(Json, default=list)
    server_name: Mapped[str | None] = mapped_column(CleanText, default=None)
    base_url: Mapped[str] = mapped_column(CleanText, default="")
    claimed: Mapped[bool] = mapped_column(default=False)
    """The Hub has the server's address; until then its spawner's stream is the task's lease."""
    last_activity: Mapped[float | None] = mapped_column(Double, default=None)
    idle_timeout: Mapped[float | None] = mapped_column(Double, default=None)
    cull_at: Mapped[float | None] = mapped_column(Double, default=None)
    exit_code: Mapped[int | None] = mapped_column(default=None)
    failure: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    started_at: Mapped[float | None] = mapped_column(Double, default=None)
    ended_at: Mapped[float | None] = mapped_column(Double, default=None)


class OutputRow(Base):
    """A file that a user task uploaded; the bytes are in the outputs directory under the digest."""

    __tablename__ = "task_outputs"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    digest: Mapped[str] = mapped_column(CleanText)
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)
