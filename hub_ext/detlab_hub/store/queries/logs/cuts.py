"""Removal of trials' output by retention, chunk by chunk, and the notes that it leaves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from detlab.schemas.wire import ExperimentState, TrialState
from detlab_hub.store.queries.logs.lines import Holder, holder_key
from detlab_hub.store.tables import ExperimentRow, LogChunk, LogCut, TrialRow

FOR_EVER = -1
DAY = 86400.0
_ENDED = tuple(state.value for state in TrialState if state.terminal)


@dataclass(frozen=True)
class Cut:
    """The output of a trial that retention has removed."""

    lines: int
    at: float
    """When it last did so, in seconds since the epoch."""


def of(s: Session, holder: Holder) -> Cut | None:
    """Return what was removed of a holder's lines; None if nothing was."""
    row = s.execute(select(LogCut.lines, LogCut.cut_at).where(LogCut.holder == holder_key(holder))).first()
    return None if row is None else Cut(row.lines, row.cut_at)


def window(s: Session, after: int, length: int, now: float, days: int) -> tuple[list[int], int | None]:
    """Return which of some trials have lines to be removed.

    Args:
        s: A session.
        after: Only trials of greater ids …
        length: … and at most this many of them.
        now: The time.
        days: Days for which lines are kept if an experiment does not set it; -1: for ever.

    Returns:
        Those trials, and the id after which to continue; None: that was the last.
    """
    inside = (TrialRow.id > after,)
    end = s.scalar(select(TrialRow.id).where(*inside).order_by(TrialRow.id).offset(length - 1).limit(1))
    upto = () if end is None else (TrialRow.id <= end,)
    lines = select(LogChunk.id).where(LogChunk.trial_id == TrialRow.id).exists()
    query = (
        select(TrialRow.id)
        .join(ExperimentRow, ExperimentRow.id == TrialRow.experiment_id)
        .where(*inside, *upto, *_over(now, days), lines)
        .order_by(TrialRow.id)
    )
    return list(s.scalars(query)), end


def cut(s: Session, trial_id: int, chunks: int, now: float, days: int) -> int:
    """Remove the oldest chunks of a trial, at most `chunks`, if its lines are still due; note what was removed.

    Returns:
        How many; fewer than `chunks` means that nothing more is due.
    """
    due = (
        select(TrialRow.id)
        .join(ExperimentRow, ExperimentRow.id == TrialRow.experiment_id)
        .where(TrialRow.id == trial_id, *_over(now, days))
    )
    if s.scalar(due) is None:
        return 0
    oldest = (
        select(LogChunk.id, LogChunk.last, LogChunk.lines)
        .where(LogChunk.trial_id == trial_id)
        .order_by(LogChunk.last)
        .limit(chunks)
    )
    found = s.execute(oldest).all()
    if found:
        s.execute(delete(LogChunk).where(LogChunk.id.in_([row.id for row in found])))
        _note(s, trial_id, found[-1].last, sum(row.lines for row in found), now)
    return len(found)


def keep(s: Session, days: int | None, experiment_ids: Collection[int] | None, owner: str) -> list[int]:
    """Set for how long the lines of experiments are kept; return those for which that changed.

    Args:
        s: A session.
        days: Days after the end of a trial, -1 for ever; None: the master's default.
        experiment_ids: The experiments; None: all of `owner`.
        owner: The owner, for `experiment_ids` None.
    """
    whose = ExperimentRow.owner == owner if experiment_ids is None else ExperimentRow.id.in_(experiment_ids)
    changed = ExperimentRow.log_retention_days.is_distinct_from(days)
    living = ExperimentRow.state.not_in([ExperimentState.DELETING.value, ExperimentState.DELETED.value])
    ids = list(s.scalars(select(ExperimentRow.id).where(whose, changed, living).order_by(ExperimentRow.id)))
    for start in range(0, len(ids), 500):  # databases take so many values of a list, and not many more
        part = ids[start : start + 500]
        s.execute(update(ExperimentRow).where(ExperimentRow.id.in_(part)).values(log_retention_days=days))
    return ids


def _over(now: float, days: int) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on a trial and its experiment whose lines are due: it has ended long enough ago."""
    kept = func.coalesce(ExperimentRow.log_retention_days, days)
    return (
        TrialRow.state.in_(_ENDED),
        ExperimentRow.state != ExperimentState.DELETING.value,  # then they go with it
        kept != FOR_EVER,
        TrialRow.ended_at <= now - kept * DAY,
    )


def _note(s: Session, trial_id: int, through: int, lines: int, now: float) -> None:
    row = s.get(LogCut, holder_key(trial_id))
    if row is None:
        s.add(LogCut(holder=holder_key(trial_id), through=through, lines=lines, cut_at=now))
    else:
        row.through, row.lines, row.cut_at = through, row.lines + lines, now
    s.flush()
