"""The journals of searches."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from detlab_hub.store.tables import SearcherJournal


def page(s: Session, experiment_id: int, after: int, limit: int) -> list[Row[tuple[int, float | None, Any, Any]]]:
    """Return (seq, at, event, decisions) of the events after one, in order."""
    query = (
        select(SearcherJournal.seq, SearcherJournal.at, SearcherJournal.event, SearcherJournal.decisions)
        .where(SearcherJournal.experiment_id == experiment_id, SearcherJournal.seq > after)
        .order_by(SearcherJournal.seq)
        .limit(limit)
    )
    return list(s.execute(query))


def length(s: Session, experiment_id: int) -> int:
    """Return the number of the newest event, 0 if there is none."""
    return s.scalar(select(func.max(SearcherJournal.seq)).where(SearcherJournal.experiment_id == experiment_id)) or 0
