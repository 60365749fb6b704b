"""The table of schedules: notebook runs that start later."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class ScheduleRow(Base):
    """A notebook run that starts by the clock, or once after something has completed."""

    __tablename__ = "schedules"
    __table_args__ = (
        UniqueConstraint("owner", "key"),
        Index(None, "owner", "id"),
        Index(None, "state", "next_at"),
        Index(None, "bundle"),
        Index(None, "last_task"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    owner: Mapped[str] = mapped_column(CleanText)
    owner_groups: Mapped[list[str]] = mapped_column(Json, default=list)
    """Groups of the Hub that its owner was in when the Hub was asked last."""
    key: Mapped[str | None] = mapped_column(CleanText, default=None)
    """Idempotency key of the request that made it."""
    name: Mapped[str] = mapped_column(CleanText)
    workspace_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Where its runs lie; NULL: its owner's personal one."""
    project_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    config: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    """Of the task, as it was submitted: what is laid under and over it is that of the time when it fires."""
    template: Mapped[str | None] = mapped_column(CleanText, default=None)
    bundle: Mapped[str | None] = mapped_column(CleanText, default=None)
    notebook: Mapped[str | None] = mapped_column(CleanText, default=None)
    parameters: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    cron: Mapped[str] = mapped_column(CleanText, default="")
    time_zone: Mapped[str] = mapped_column(CleanText, default="UTC")
    after_experiment: Mapped[int | None] = mapped_column(BigInteger, default=None)
    after_task: Mapped[str | None] = mapped_column(CleanText, default=None)
    state: Mapped[str] = mapped_column(CleanText, default="active")
    """`wire.notebooks.schedules.ScheduleState`."""
    reason: Mapped[str] = mapped_column(CleanText, default="")
    next_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it is due next; NULL: when what it waits for has ended."""
    runs: Mapped[int] = mapped_column(default=0)
    skipped: Mapped[int] = mapped_column(default=0)
    last_task: Mapped[str | None] = mapped_column(CleanText, default=None)
    last_due_at: Mapped[float | None] = mapped_column(Double, default=None)
    last_started_at: Mapped[float | None] = mapped_column(Double, default=None)
    note: Mapped[str] = mapped_column(CleanText, default="")
    """Why what was due last was not started."""
    noted_at: Mapped[float | None] = mapped_column(Double, default=None)
    told_task: Mapped[str | None] = mapped_column(CleanText, default=None)
    """The run of whose failure its owner was told last."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
