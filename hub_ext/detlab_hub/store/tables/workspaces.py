"""Tables of what teams order their work by: workspaces with their members, and projects in them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class WorkspaceRow(Base):
    """A workspace. Names are unique for an owner: nobody learns from a refusal what others have (I9)."""

    __tablename__ = "workspaces"
    __table_args__ = (
        UniqueConstraint("path", name="uq_workspaces_name"),
        Index(None, "quota"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    path: Mapped[str] = mapped_column(CleanText)
    """`OWNER/KEY`, with its name as `queries.workspaces.key_of` has it: one key for all ways to write a name."""
    name: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str] = mapped_column(CleanText)
    """Who made it, as a part of its full name; rights come by roles, but to a personal one its owner has all."""
    kind: Mapped[str] = mapped_column(CleanText, default="shared")
    """`shared`, or `personal`: the one where an owner's things lie that name no other. It has no members."""
    description: Mapped[str] = mapped_column(CleanText, default="")
    defaults: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    """What it gives to what is submitted into it: keys of a config."""
    quota: Mapped[int | None] = mapped_column(default=None)
    """Slots that what lies in it may hold at a time, set by administrators of the cluster; NULL: any number."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    archived_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it was archived; NULL: it is not."""


class MemberRow(Base):
    """A user or a Hub group with a role in a workspace."""

    __tablename__ = "workspace_members"
    __table_args__ = (Index(None, "kind", "name"),)

    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`user` or `group`."""
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    role: Mapped[str] = mapped_column(CleanText)
    """`viewer`, `editor` or `admin`."""
    added_by: Mapped[str] = mapped_column(CleanText, default="")
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class ProjectRow(Base):
    """A project of a workspace, a folder for what belongs together."""

    __tablename__ = "projects"
    __table_args__ = (
        UniqueConstraint("workspace_id", "key", name="uq_projects_workspace_id_name"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id"))
    key: Mapped[str] = mapped_column(CleanText)
    """Its name as `queries.workspaces.key_of` has it."""
    name: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str] = mapped_column(CleanText)
    """Who made it."""
    description: Mapped[str] = mapped_column(CleanText, default="")
    notes: Mapped[str] = mapped_column(CleanText, default="")
    tags: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    """As clients of MLflow set them, for which a project is an experiment."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    archived_at: Mapped[float | None] = mapped_column(Double, default=None)
