"""Tables of what is laid under and over configs: templates and config policies."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json

CLUSTER = 0
"""In place of the id of a workspace: the whole cluster."""


class TemplateRow(Base):
    """A named part of a config."""

    __tablename__ = "templates"
    __table_args__ = (
        UniqueConstraint("workspace_id", "key", name="uq_templates_workspace_id_key"),
        Index(None, "base_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    workspace_id: Mapped[int] = mapped_column(BigInteger)
    """Where it lies; `CLUSTER`: it is for everybody."""
    key: Mapped[str] = mapped_column(CleanText)
    """Its name as `queries.workspaces.key_of` has it."""
    name: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str] = mapped_column(CleanText)
    """Who made it."""
    base_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """The template that it stands on."""
    description: Mapped[str] = mapped_column(CleanText, default="")
    config: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    version: Mapped[int] = mapped_column(default=1)
    set_by: Mapped[str] = mapped_column(CleanText, default="")
    set_at: Mapped[float] = mapped_column(Double, default=0.0)


class ConfigPolicyRow(Base):
    """What a cluster or a workspace holds configs of a kind to."""

    __tablename__ = "config_policies"

    workspace_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Of which workspace; `CLUSTER`: of all."""
    workload: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`experiment` or `tasks`."""
    invariant_config: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    constraints: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    set_by: Mapped[str] = mapped_column(CleanText, default="")
    set_at: Mapped[float] = mapped_column(Double, default=0.0)
