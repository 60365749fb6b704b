"""detlab's own tokens: 256 random bits, of which the database holds only the SHA-256."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from sqlalchemy import Table, delete, insert, select, update
from sqlalchemy.orm import Session

from detlab_hub.store.tables import TokenRow

_TOKENS: Table = TokenRow.__table__
_ISSUE = insert(_TOKENS)
PREFIXES = {"enrol": "dtenrol_", "agent": "dtagent_", "task": "dttask_", "run": "dtrun_"}


def digest(token: str) -> str:
    """Return the SHA-256 of a token in hex. The token is random, so it needs no salt and no slow hash."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def issue(s: Session, kind: str, subject: str, expires_at: float | None, now: float) -> str:
    """Make a token of a kind of `PREFIXES` and return its text, which cannot be read again."""
    token = PREFIXES[kind] + secrets.token_urlsafe(32)
    row = {"hash": digest(token), "kind": kind, "subject": subject, "expires_at": expires_at, "created_at": now}
    s.connection().execute(_ISSUE, row)
    return token


def lookup(s: Session, token: str, now: float) -> TokenRow | None:
    """Return the row of a token that has not expired."""
    row = s.get(TokenRow, digest(token))
    if row is None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return row


def extend_runs(s: Session, allocation_ids: Any, expires_at: float) -> None:
    """Let the tokens of notebook runs live until then.

    Args:
        s: The session.
        allocation_ids: Ids of their allocations, or a query of them.
        expires_at: When they expire.
    """
    s.execute(
        update(TokenRow)
        .where(TokenRow.kind == "run", TokenRow.subject.in_(allocation_ids))
        .values(expires_at=expires_at)
        .execution_options(synchronize_session=False)
    )


def exists(s: Session, kind: str, subject: str) -> bool:
    """Return whether somebody or something has a token of a kind."""
    found = select(TokenRow.hash).where(TokenRow.kind == kind, TokenRow.subject == subject)
    return s.scalar(found.limit(1)) is not None


def revoke(s: Session, kind: str, subject: str) -> int:
    """Remove all tokens of a subject; return how many."""
    result = s.execute(delete(TokenRow).where(TokenRow.kind == kind, TokenRow.subject == subject))
    return int(getattr(result, "rowcount", 0))


def purge(s: Session, now: float) -> int:
    """Remove expired tokens; return how many."""
    result = s.execute(delete(TokenRow).where(TokenRow.expires_at <= now))
    return int(getattr(result, "rowcount", 0))
