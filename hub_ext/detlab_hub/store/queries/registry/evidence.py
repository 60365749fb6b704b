"""Queries of governed learning: keys, matrices, the ledger and evidence."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import EvidenceRow, LedgerRow, MatrixRow, SigningKeyRow


def keys(s: Session) -> list[SigningKeyRow]:
    """Return all keys, newest first."""
    return list(s.scalars(select(SigningKeyRow).order_by(SigningKeyRow.made_at.desc(), SigningKeyRow.id)))


def active_keys(s: Session) -> list[SigningKeyRow]:
    """Return the keys that sign, newest first."""
    return [row for row in keys(s) if row.state == "ACTIVE"]


def ledger(s: Session, trial_id: int) -> list[LedgerRow]:
    """Return the whole ledger of a trial, in order."""
    return list(s.scalars(select(LedgerRow).where(LedgerRow.trial_id == trial_id).order_by(LedgerRow.index)))


def ledger_page(s: Session, trial_id: int, after: int, limit: int) -> list[LedgerRow]:
    """Return entries with an index over `after`, in order."""
    wanted = select(LedgerRow).where(LedgerRow.trial_id == trial_id, LedgerRow.index > after)
    return list(s.scalars(wanted.order_by(LedgerRow.index).limit(limit)))


def last_index(s: Session, trial_id: int) -> int:
    """Return the index of a trial's last entry, -1 if it has none."""
    found = s.scalar(select(func.max(LedgerRow.index)).where(LedgerRow.trial_id == trial_id))
    return -1 if found is None else int(found)


def evidence(s: Session, uuid: str) -> EvidenceRow | None:
    """Return the signed statement about a checkpoint."""
    return s.get(EvidenceRow, uuid)


def matrices(s: Session, hashes: Iterable[str]) -> list[MatrixRow]:
    """Return the matrices with these hashes."""
    found: list[MatrixRow] = []
    for part in chunks(sorted(set(hashes))):
        found += s.scalars(select(MatrixRow).where(MatrixRow.s_hash.in_(part)))
    return found


def matrices_of(s: Session, trial_id: int) -> int:
    """Return how many matrices a trial has recorded."""
    return s.scalar(select(func.count()).where(MatrixRow.trial_id == trial_id)) or 0
