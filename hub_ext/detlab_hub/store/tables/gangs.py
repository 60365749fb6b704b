"""The nodes of an attempt."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, Index
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, CleanText, Json


class PartRow(Base):
    """The part of an allocation on one of its agents, the chief's (`rank` 0) included.

    An allocation on one node is a gang of one; the agent of a batch system has the parts of all nodes. It has no part
    before it is placed, and none if it ended before 0012. The statements that delete an allocation delete its parts as
    well (no foreign key: SQLite drops rows that refer to a table when a migration rebuilds it).
    """

    __tablename__ = "allocation_parts"
    __table_args__ = (Index(None, "agent_id"),)

    allocation_id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Its place in the order of nodes."""
    agent_id: Mapped[str] = mapped_column(CleanText)
    slots: Mapped[list[str]] = mapped_column(Json, default=list)
    started: Mapped[bool] = mapped_column(default=False)
    """Its launcher has reported."""
    ended_at: Mapped[float | None] = mapped_column(Double, default=None)
    end: Mapped[str | None] = mapped_column(CleanText, default=None)
    """How it ended (`EndKind`); NULL: it has not ended."""
    heard: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """Its agent's report of its end (`TaskExited`)."""
    meeting: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """Its launcher's message at the rendezvous (`Arrival`); NULL again when the attempt is over."""
    metrics_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    logs_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    """Sequence numbers of its launcher, which counts its own records; those of rank 0 are in the allocation's row."""
