"""Tables of what people keep for finding things: saved views."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class SavedViewRow(Base):
    """A filter, an order and columns of a table, under a name."""

    __tablename__ = "saved_views"
    __table_args__ = (UniqueConstraint("owner", "table_name", "name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    owner: Mapped[str] = mapped_column(CleanText)
    project_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """The project whose members have it, too; NULL: it is its owner's alone."""
    table_name: Mapped[str] = mapped_column(CleanText)
    """`core.filters.fields.FilterTable`."""
    name: Mapped[str] = mapped_column(CleanText)
    content: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    """`wire.finding.ViewContent`."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)
