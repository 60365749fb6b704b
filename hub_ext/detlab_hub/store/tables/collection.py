"""Tables of collection: bookmarks of and references to checkpoints, and the bytes that removals have freed."""

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


class ReferenceRow(Base):
    """A checkpoint that an experiment or a user task names in a key that refers, as resolved at its submission.

    Made in the transaction in which what refers is made, only of checkpoints that its owner could read then; gone in
    the one in which that ends. What pins a checkpoint is asked here and found by no search of configs.
    """

    __tablename__ = "checkpoint_references"
    __table_args__ = (Index(None, "referrer", "referrer_id"),)

    uuid: Mapped[str] = mapped_column(CleanText, ForeignKey("checkpoints.uuid"), primary_key=True)
    referrer: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`experiment` or `task`."""
    referrer_id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    purpose: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """A kind of `wire.storage.Pin`: `warm_start`, `evaluation`."""


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
