"""Statements that remove a run from elsewhere, with all that it has logged."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from detlab_hub.store.queries.logs import lines
from detlab_hub.store.queries.tracking.runs import mark_key
from detlab_hub.store.tables import (
    AlertMarkRow,
    ArtifactLinkRow,
    BookmarkRow,
    CheckpointRow,
    DeletedArtifactLinkRow,
    MediaRow,
    ReferenceRow,
    RemovalRow,
    TrackedFileRow,
    TrackedModelRow,
    TrackedPoint,
    TrackedRunRow,
    TrackedSeries,
    TrackedValue,
    TrackedWriterRow,
)


def remove_bulk(s: Session, run_id: str, limit: int) -> bool:
    """Remove points and lines of output of a run, about `limit` of them; return whether none is left."""
    left = limit
    for series in s.scalars(select(TrackedSeries.id).where(TrackedSeries.run_id == run_id)).all():
        mine = TrackedPoint.series_id == series
        last = s.scalar(select(TrackedPoint.step).where(mine).order_by(TrackedPoint.step).offset(left).limit(1))
        which = mine if last is None else mine & (TrackedPoint.step <= last)
        gone = s.execute(delete(TrackedPoint).where(which))
        left -= int(getattr(gone, "rowcount", 0))
        if left <= 0:
            return False
    return lines.remove(s, run_id, left) < left


def remove_run(s: Session, row: TrackedRunRow) -> list[str]:
    """Remove the rows of a run without points and output; return what of it, and of its models, has files."""
    mine = TrackedFileRow.run_id == row.id
    saved = select(CheckpointRow.uuid).where(CheckpointRow.run_id == row.id)
    roots = [*s.scalars(select(TrackedFileRow.root).where(mine).distinct()), *s.scalars(saved)]
    for noted in (RemovalRow, BookmarkRow, ReferenceRow):
        s.execute(delete(noted).where(noted.uuid.in_(saved)))
    for table in (
        CheckpointRow,
        MediaRow,
        ArtifactLinkRow,
        DeletedArtifactLinkRow,
        TrackedSeries,
        TrackedValue,
        TrackedFileRow,
        TrackedModelRow,
        TrackedWriterRow,
    ):
        s.execute(delete(table).where(table.run_id == row.id))
    s.execute(delete(AlertMarkRow).where(AlertMarkRow.experiment_id == mark_key(row.id)))
    s.delete(row)
    s.flush()
    return roots
