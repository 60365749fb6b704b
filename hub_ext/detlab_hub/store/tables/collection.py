"""Tables of collection: bookmarks of checkpoints, and the bytes that removals have freed."""

from __future__ import annotations

from sqlalchemy import BigInteger, Double, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, CleanText


class BookmarkRow(Base):
    """A user's wish that a checkpoint is not collected."""

    __tablename__ = "checkpoint_bookmarks"

    uuid: Mapped[str] = mapped_column(CleanText, ForeignKey("checkpoints.uuid"), primary_key=True)
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """The user."""
    note: Mapped[str] = mapped_column(CleanText, default="")
    at: Mapped[float] = mapped_column(Double, default=0.0)


class FreedRow(Base):
    """Bytes of an experiment's checkpoints that were removed and seen to be gone; it outlives the experiment."""

    __tablename__ = "storage_freed"
    __table_args__ = (Index(None, "owner"),)

    experiment_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    owner: Mapped[str] = mapped_column(CleanText, primary_key=True)
    bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    count: Mapped[int] = mapped_column(BigInteger, default=0)
    """Checkpoints of which files went."""
    at: Mapped[float] = mapped_column(Double, default=0.0)
    """The last time."""
