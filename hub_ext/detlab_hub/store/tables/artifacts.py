"""Tables of artifacts: names, versions, the files of these, and the runs that use and make them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class ArtifactRow(Base):
    """A name under which versions are kept. It is unique for an owner: nobody learns what others have (I9)."""

    __tablename__ = "artifacts"
    __table_args__ = (
        UniqueConstraint("owner", "name"),
        Index(None, "name"),
        Index(None, "workspace_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(CleanText)
    kind: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str] = mapped_column(CleanText)
    owner_groups: Mapped[list[str]] = mapped_column(Json, default=list)
    """Groups of the Hub that its owner was in when it was made, for quotas."""
    workspace_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """NULL: its owner's personal one."""
    description: Mapped[str] = mapped_column(CleanText, default="")
    last_version: Mapped[int] = mapped_column(default=0)
    """The number that was given last, also if that version is deleted: none is given again."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)


class ArtifactVersionRow(Base):
    """A version of an artifact. Its files never change."""

    __tablename__ = "artifact_versions"
    __table_args__ = (UniqueConstraint("artifact_id", "version"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    artifact_id: Mapped[int] = mapped_column(ForeignKey("artifacts.id"))
    version: Mapped[int]
    """Its number, from 1."""
    digest: Mapped[str] = mapped_column(CleanText)
    """Of its list of files."""
    files: Mapped[int] = mapped_column(default=0)
    references_count: Mapped[int] = mapped_column(default=0)
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    comment: Mapped[str] = mapped_column(CleanText, default="")
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", Json, default=dict)
    owner: Mapped[str] = mapped_column(CleanText, default="")
    """Who has logged it."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class ArtifactAliasRow(Base):
    """The version that has an alias of an artifact now: one, by the key."""

    __tablename__ = "artifact_aliases"
    __table_args__ = (Index(None, "version_id"),)

    artifact_id: Mapped[int] = mapped_column(ForeignKey("artifacts.id"), primary_key=True)
    alias: Mapped[str] = mapped_column(CleanText, primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("artifact_versions.id"))


class ArtifactEntryRow(Base):
    """A file of a version, or a reference."""

    __tablename__ = "artifact_entries"
    __table_args__ = (Index(None, "artifact_id", "digest"), {"sqlite_with_rowid": False})

    version_id: Mapped[int] = mapped_column(ForeignKey("artifact_versions.id"), primary_key=True)
    path: Mapped[str] = mapped_column(CleanText, primary_key=True)
    artifact_id: Mapped[int] = mapped_column(ForeignKey("artifacts.id"))
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    digest: Mapped[str] = mapped_column(CleanText)
    uri: Mapped[str] = mapped_column(CleanText, default="")
    """Empty: it is a file, whose bytes are here."""


class ArtifactFileRow(Base):
    """Bytes that lie in the master's own directory, once for all versions of an artifact."""

    __tablename__ = "artifact_files"
    __table_args__ = ({"sqlite_with_rowid": False},)

    artifact_id: Mapped[int] = mapped_column(ForeignKey("artifacts.id"), primary_key=True)
    digest: Mapped[str] = mapped_column(CleanText, primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger, default=0)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class ArtifactLinkRow(Base):
    """A run that has made a version, or uses it."""

    __tablename__ = "artifact_links"
    __table_args__ = (
        UniqueConstraint("version_id", "run_id", "role"),
        Index(None, "run_id"),
        Index(None, "experiment_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("artifact_versions.id"))
    run_id: Mapped[str] = mapped_column(CleanText)
    """32 hex digits; that of a trial is made of its number."""
    role: Mapped[str] = mapped_column(CleanText)
    """`logged` or `used`."""
    experiment_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    at: Mapped[float] = mapped_column(Double, default=0.0)


class DeletedArtifactLinkRow(Base):
    """What a run has made or used and is deleted: lineage goes on saying so, with the name that it had then."""

    __tablename__ = "deleted_artifact_links"
    __table_args__ = (
        Index(None, "artifact_id", "version"),
        Index(None, "run_id"),
        Index(None, "experiment_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    artifact_id: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str] = mapped_column(CleanText)
    kind: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str] = mapped_column(CleanText)
    workspace_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    version: Mapped[int]
    digest: Mapped[str] = mapped_column(CleanText)
    run_id: Mapped[str] = mapped_column(CleanText)
    role: Mapped[str] = mapped_column(CleanText)
    experiment_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    at: Mapped[float] = mapped_column(Double, default=0.0)
    deleted_at: Mapped[float] = mapped_column(Double, default=0.0)
