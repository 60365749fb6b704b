"""How far each consumer of the event log has come."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from detlab_hub.store.queries import events
from detlab_hub.store.tables import EventConsumerRow


def register(s: Session, name: str, now: float) -> EventConsumerRow:
    """Return a consumer's row; a new consumer starts behind the newest event."""
    row = s.get(EventConsumerRow, name)
    if row is None:
        row = EventConsumerRow(name=name, cursor=events.head(s), moved_at=now)
        s.add(row)
        s.flush()
    return row


def advance(s: Session, name: str, cursor: int, now: float) -> None:
    """Note that a consumer has processed all events up to `cursor`."""
    row = register(s, name, now)
    row.cursor, row.failures, row.error, row.moved_at = max(row.cursor, cursor), 0, "", now


def note_failure(s: Session, name: str, error: str, now: float) -> None:
    """Note that a consumer could not process its next events."""
    row = register(s, name, now)
    row.failures, row.error = row.failures + 1, error


def slowest(s: Session, names: Collection[str]) -> int | None:
    """Return the cursor of the consumer that is furthest behind, None if there are no consumers."""
    if not names:
        return None
    found: int | None = s.scalar(select(func.min(EventConsumerRow.cursor)).where(EventConsumerRow.name.in_(names)))
    return found


def forget(s: Session, name: str) -> None:
    """Forget a consumer: it begins anew with the newest event, if it comes back."""
    s.execute(delete(EventConsumerRow).where(EventConsumerRow.name == name))
