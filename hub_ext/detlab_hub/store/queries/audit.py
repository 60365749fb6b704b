"""The audit log: rows that are appended in the transaction of the action, read newest first, and dropped when old."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import AuditRow, clean_text

TRIM_BATCH = 1000


def append(s: Session, now: float, actor: str, action: str, subject: str, detail: str = "") -> None:
    """Append one action."""
    s.add(AuditRow(time=now, actor=actor, action=action, subject=subject, detail=detail))


def page(
    s: Session,
    limit: int = 100,
    before: int | None = None,
    actor: str | None = None,
    action: str | None = None,
) -> list[AuditRow]:
    """Return actions, newest first.

    Args:
        s: A session.
        limit: Most rows; a full page's last id is the next page's `before`.
        before: Only ids smaller than this.
        actor: Only this user's.
        action: Only this one, such as `experiment.kill`, or all of a resource, such as `experiment`.
    """
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditRow.id < before)
    if actor is not None:
        query = query.where(AuditRow.actor == clean_text(actor))
    if action is not None:
        wanted = clean_text(action)
        whole = AuditRow.action.startswith(f"{wanted}.", autoescape=True)
        query = query.where(AuditRow.action == wanted if "." in wanted else whole)
    return list(s.scalars(query))


def of_subjects(s: Session, subjects: Sequence[str], limit: int) -> list[AuditRow]:
    """Return what was done to these subjects: the newest `limit` of each few hundred, in no particular order."""
    found: list[AuditRow] = []
    for part in chunks(subjects):
        query = select(AuditRow).where(AuditRow.subject.in_([clean_text(one) for one in part]))
        found += s.scalars(query.order_by(AuditRow.id.desc()).limit(limit))
    return found


def trim(s: Session, before: float) -> int:
    """Remove actions older than a time, oldest first, at most `TRIM_BATCH` in one call; return their number."""
    # By id, which grows with time: there is no index by time, and none is needed.
    oldest = s.execute(select(AuditRow.id, AuditRow.time).order_by(AuditRow.id).limit(TRIM_BATCH)).all()
    last = max((key for key, time in oldest if time < before), default=None)
    if last is None:
        return 0
    result = s.execute(delete(AuditRow).where(AuditRow.id <= last))
    return int(getattr(result, "rowcount", 0))


def newest_act(s: Session, subject: str, actions: Collection[str]) -> tuple[str, str] | None:
    """Return the newest of some actions on a subject, and who did it; None if that is not recorded (any more)."""
    query = select(AuditRow.action, AuditRow.actor).where(AuditRow.subject == subject, AuditRow.action.in_(actions))
    found = s.execute(query.order_by(AuditRow.id.desc()).limit(1)).first()
    return None if found is None else (found.action, found.actor)
