"""The table of what trials and runs log beyond numbers: images, sound, tables. Their bytes are the master's files."""

from __future__ import annotations

from sqlalchemy import BigInteger, Double, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText


class MediaRow(Base):
    """An object that a trial has logged, or a run that no cluster started: one of `trial_id` and `run_id` is set."""

    __tablename__ = "media"
    __table_args__ = (
        UniqueConstraint("trial_id", "key", "step", "place"),
        UniqueConstraint("run_id", "key", "step", "place"),
        Index(None, "run_id", "step", "id"),
        Index(None, "run_id", "digest"),
        Index(None, "trial_id", "step", "id"),
        Index(None, "experiment_id", "digest"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiments.id"), default=None)
    """Of the trial."""
    trial_id: Mapped[int | None] = mapped_column(ForeignKey("trials.id"), default=None)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("tracked_runs.id"), default=None)
    attempt: Mapped[int] = mapped_column(default=0)
    step: Mapped[int] = mapped_column(BigInteger)
    key: Mapped[str] = mapped_column(CleanText)
    place: Mapped[int] = mapped_column(default=0)
    """Among those of its key at its step."""
    kind: Mapped[str] = mapped_column(CleanText)
    media_type: Mapped[str] = mapped_column(CleanText)
    caption: Mapped[str] = mapped_column(CleanText, default="")
    digest: Mapped[str] = mapped_column(CleanText)
    """SHA-256 of the bytes, in hex: the file's name within the experiment, or the run."""
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    width: Mapped[int] = mapped_column(default=0)
    """Pixels of an image; 0: it has none, or says none."""
    height: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
