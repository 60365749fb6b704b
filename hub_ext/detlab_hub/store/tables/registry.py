"""Tables of the model registry: models, their versions, labels that move; and the outbox of webhooks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class ModelRow(Base):
    """A registered model. Names are unique for an owner: nobody learns from a refusal what others have (I9)."""

    __tablename__ = "models"
    __table_args__ = (
        UniqueConstraint("owner", "name"),
        Index(None, "name"),
        Index(None, "workspace_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(CleanText)
    owner: Mapped[str] = mapped_column(CleanText)
    workspace_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """NULL: its owner's personal one."""
    description: Mapped[str] = mapped_column(CleanText, default="")
    notes: Mapped[str] = mapped_column(CleanText, default="")
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", Json, default=dict)
    labels: Mapped[list[str]] = mapped_column(Json, default=list)
    last_version: Mapped[int] = mapped_column(default=0)
    """The number that was given last, also if that version is deleted: none is given again."""
    last_semver: Mapped[str | None] = mapped_column(CleanText, default=None)
    """The highest semantic version that was ever given."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)
    archived_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it was archived; NULL: it is not."""


class ModelGrantRow(Base):
    """A user or a Hub group that may read a model, or change it, by its owner's grant."""

    __tablename__ = "model_grants"
    __table_args__ = (Index(None, "kind", "name"),)

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`user` or `group`."""
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    write: Mapped[bool] = mapped_column(default=False)
    granted_by: Mapped[str] = mapped_column(CleanText, default="")
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class VersionRow(Base):
    """A version of a model: a checkpoint with its lineage. The checkpoint cannot be deleted as long as it is there."""

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model_id", "version"),
        UniqueConstraint("model_id", "checkpoint_uuid"),
        Index(None, "checkpoint_uuid"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    version: Mapped[int]
    """Its number, from 1."""
    semver: Mapped[str | None] = mapped_column(CleanText, default=None)
    checkpoint_uuid: Mapped[str] = mapped_column(CleanText, ForeignKey("checkpoints.uuid"))
    name: Mapped[str] = mapped_column(CleanText, default="")
    comment: Mapped[str] = mapped_column(CleanText, default="")
    notes: Mapped[str] = mapped_column(CleanText, default="")
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", Json, default=dict)
    owner: Mapped[str] = mapped_column(CleanText, default="")
    """Who registered it."""
    format: Mapped[str] = mapped_column(CleanText, default="")
    lineage: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    """`wire.registry.Lineage`, as recorded at registration."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)
    updated_at: Mapped[float] = mapped_column(Double, default=0.0)


class VersionMetric(Base):
    """A metric at the step of a version's checkpoint, for queries; only finite numbers."""

    __tablename__ = "version_metrics"
    __table_args__ = (Index(None, "name", "value", "version_id"), {"sqlite_with_rowid": False})

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    value: Mapped[float] = mapped_column(Double)


class ModelFact(Base):
    """A label or an entry of the metadata or hyperparameters, for queries: of a model, or of one version of it."""

    __tablename__ = "model_facts"
    __table_args__ = (
        Index(None, "name", "text", "version_id", "model_id"),
        Index(None, "name", "number", "version_id", "model_id"),
        Index(None, "version_id", "name", "number"),
        Index(None, "model_id", "version_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    version_id: Mapped[int | None] = mapped_column(ForeignKey("model_versions.id"), default=None)
    """NULL: of the model, and so of all its versions."""
    name: Mapped[str] = mapped_column(CleanText)
    """`label`, `hp.NAME`, or a key of the metadata."""
    text: Mapped[str] = mapped_column(CleanText)
    number: Mapped[float | None] = mapped_column(Double, default=None)
    """The same, if it is one."""


class VersionLabelRow(Base):
    """The version that has a label of a model now: one, by the key."""

    __tablename__ = "version_labels"
    __table_args__ = (Index(None, "version_id"), Index(None, "label"))

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    label: Mapped[str] = mapped_column(CleanText, primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"))
    version: Mapped[int]


class LabelMoveRow(Base):
    """A move of a label: who, when and why. Never changed; it goes with its model."""

    __tablename__ = "label_moves"
    __table_args__ = (Index(None, "model_id", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    label: Mapped[str] = mapped_column(CleanText)
    from_version: Mapped[int | None] = mapped_column(default=None)
    to_version: Mapped[int | None] = mapped_column(default=None)
    """NULL: it was taken away."""
    by: Mapped[str] = mapped_column(CleanText)
    at: Mapped[float] = mapped_column(Double)
    reason: Mapped[str] = mapped_column(CleanText, default="")


class EnvironmentRow(Base):
    """The packages that a task has found installed, once for all checkpoints that were saved with them."""

    __tablename__ = "environments"

    digest: Mapped[str] = mapped_column(CleanText, primary_key=True)
    packages: Mapped[dict[str, str]] = mapped_column(Json)
    """Name -> version, with `python` and `platform`."""


class WebhookRow(Base):
    """A call of a webhook, or an e-mail; it goes when it was delivered. One that is given up is kept for a while."""

    __tablename__ = "webhook_calls"
    __table_args__ = (Index(None, "due_at"), Index(None, "url", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    url: Mapped[str] = mapped_column(CleanText)
    """Of the operator's settings, which hold the secret, too; or `hook:ID`, a webhook of a user; `mail:USER`, their
    alerts by e-mail; `code:USER`, the code that confirms their address."""
    event: Mapped[str] = mapped_column(CleanText)
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[float] = mapped_column(Double)
    due_at: Mapped[float] = mapped_column(Double)
    attempts: Mapped[int] = mapped_column(default=0)
    error: Mapped[str] = mapped_column(CleanText, default="")
    """Of the last attempt."""
    owner: Mapped[str] = mapped_column(CleanText, default="")
    """Whose webhook or address it is; empty: the operator's."""
    experiment_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """What it tells of: it is sent while its owner may read that."""
    failed_at: Mapped[float | None] = mapped_column(Double, default=None)
    """When it was given up; NULL: it was not."""
