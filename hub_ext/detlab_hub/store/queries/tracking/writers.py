"""The processes that send the records of runs: what of theirs is stored, and when they were heard from."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import LogChunk, TrackedWriterRow


def of_run(s: Session, run_id: str) -> list[TrackedWriterRow]:
    """Return the processes of a run."""
    query = select(TrackedWriterRow).where(TrackedWriterRow.run_id == run_id).order_by(TrackedWriterRow.name)
    return list(s.scalars(query))


def locked(s: Session, run_id: str, name: str) -> TrackedWriterRow | None:
    """Return a process of a run, which no other transaction changes until the end of this one."""
    return s.get(TrackedWriterRow, (run_id, name), with_for_update=True)


def count(s: Session, run_id: str) -> int:
    """Return how many processes a run has had."""
    query = select(func.count()).select_from(TrackedWriterRow).where(TrackedWriterRow.run_id == run_id)
    return s.scalar(query) or 0


def silent(s: Session, state: str, before: float, limit: int) -> list[tuple[str, str]]:
    """Return (run, process) of those in a state that were last heard from before a time, the longest ago first."""
    row = TrackedWriterRow
    query = select(row.run_id, row.name).where(row.state == state, row.heard_at < before)
    return [(run_id, name) for run_id, name in s.execute(query.order_by(row.heard_at).limit(limit))]


def heard(s: Session, run_ids: Collection[str]) -> Mapping[str, float]:
    """Return run -> when one of its processes was last heard from, of those that have some."""
    found: dict[str, float] = {}
    for part in chunks(sorted(run_ids)):
        newest = func.max(TrackedWriterRow.heard_at)
        query = select(TrackedWriterRow.run_id, newest).where(TrackedWriterRow.run_id.in_(part))
        found.update((run_id, time) for run_id, time in s.execute(query.group_by(TrackedWriterRow.run_id)))
    return found


def lines_of(s: Session, holder: str) -> int:
    """Return how many lines of output a run has."""
    return s.scalar(select(func.max(LogChunk.last)).where(LogChunk.task_id == holder)) or 0
