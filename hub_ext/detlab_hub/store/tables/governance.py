"""Tables of governed learning: what was signed, and the ledger. They survive the deletion of what they are about."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class SigningKeyRow(Base):
    """A public key of the cluster. The private one is a file of the master's, or a command's."""

    __tablename__ = "signing_keys"

    id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """SHA-256 of the 32 bytes, in hex."""
    public_key: Mapped[str] = mapped_column(CleanText)
    """The 32 bytes, in hex."""
    installation: Mapped[str] = mapped_column(CleanText, default="")
    """Which installation of the cluster has made it: a copy signs with one of its own."""
    state: Mapped[str] = mapped_column(CleanText, default="ACTIVE")
    """`ACTIVE`, `RETIRED` or `REVOKED`."""
    made_at: Mapped[float] = mapped_column(Double, default=0.0)
    ended_at: Mapped[float | None] = mapped_column(Double, default=None)


class MatrixRow(Base):
    """A matrix S, once for all checkpoints that name it."""

    __tablename__ = "governance_matrices"

    s_hash: Mapped[str] = mapped_column(CleanText, primary_key=True)
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    trial_id: Mapped[int] = mapped_column(BigInteger, index=True)
    """Who has recorded it first."""
    at: Mapped[float] = mapped_column(Double, default=0.0)


class LedgerRow(Base):
    """An entry of a trial's ledger. Entries are added, and never changed or removed."""

    __tablename__ = "governance_ledger"
    __table_args__ = (
        UniqueConstraint("trial_id", "index"),
        Index(None, "checkpoint_uuid"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    trial_id: Mapped[int] = mapped_column(BigInteger)
    index: Mapped[int]
    kind: Mapped[str] = mapped_column(CleanText)
    checkpoint_uuid: Mapped[str] = mapped_column(CleanText, default="")
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    previous: Mapped[str] = mapped_column(CleanText)
    at: Mapped[float] = mapped_column(Double)
    hash: Mapped[str] = mapped_column(CleanText)
    envelope: Mapped[dict[str, Any] | None] = mapped_column(Json, default=None)
    """Its own signature, of a fork or a transition; segments are signed with their checkpoints."""


class PreflightRow(Base):
    """What the newest attempt of a trial found before its first step, and whether it may train there."""

    __tablename__ = "governance_preflights"

    trial_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    allocation_id: Mapped[str] = mapped_column(CleanText)
    run: Mapped[int]
    passed: Mapped[bool]
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    """The matrix (`s_hash`), and once it is there the report, what each of its nodes attested, and the refusals."""
    at: Mapped[float] = mapped_column(Double, default=0.0)


class EvidenceRow(Base):
    """The signed statement about a checkpoint."""

    __tablename__ = "governance_evidence"
    __table_args__ = (Index(None, "trial_id"), Index(None, "experiment_id"))

    checkpoint_uuid: Mapped[str] = mapped_column(CleanText, primary_key=True)
    trial_id: Mapped[int] = mapped_column(BigInteger)
    experiment_id: Mapped[int] = mapped_column(BigInteger)
    steps_completed: Mapped[int] = mapped_column(BigInteger)
    manifest_digest: Mapped[str] = mapped_column(CleanText)
    envelope: Mapped[dict[str, Any]] = mapped_column(Json)
    at: Mapped[float] = mapped_column(Double, default=0.0)
