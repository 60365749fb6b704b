"""Committed checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Row, bindparam, func, or_, select, tuple_
from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab_hub.core.rights import Person
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries import rights
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import AllocationRow, CheckpointRow, ExperimentRow, RemovalRow, TrialRow

_SINCE_ANEW = CheckpointRow.run >= (
    select(TrialRow.first_run).where(TrialRow.id == CheckpointRow.trial_id).correlate(CheckpointRow).scalar_subquery()
)
"""Made since the trial began anew; most have not."""
_LATEST = PreparedStatement(
    select(CheckpointRow.uuid)
    .where(CheckpointRow.trial_id == bindparam("trial"), CheckpointRow.state == "COMPLETED", _SINCE_ANEW)
    .order_by(CheckpointRow.steps_completed.desc(), CheckpointRow.created_at.desc(), CheckpointRow.uuid.desc())
    .limit(1)
)
_HOLDING = ("ASSIGNED", "PULLING", "STARTING", "RUNNING", "TERMINATING")
_SAVED = PreparedStatement(
    select(CheckpointRow.trial_id, func.max(CheckpointRow.created_at))
    .where(
        CheckpointRow.trial_id.in_(
            select(AllocationRow.trial_id).where(
                or_(*(AllocationRow.state == state for state in _HOLDING)), AllocationRow.trial_id.is_not(None)
            )
        )
    )
    .group_by(CheckpointRow.trial_id)
)


def last_saved(s: Session) -> dict[int, float]:
    """Return when each trial that holds slots committed its last checkpoint, in seconds since the epoch."""
    return {row[0]: row[1] for row in _SAVED.all(s, {})}


def beginning(s: Session, viewer: Person, start: str, limit: int) -> list[str]:
    """Return checkpoints whose uuid begins so, of the experiments that a user may see."""
    query = select(CheckpointRow.uuid).join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
    mine = CheckpointRow.uuid.startswith(start, autoescape=True), rights.visible_experiments(viewer)
    return list(s.scalars(query.where(*mine).order_by(CheckpointRow.uuid).limit(limit)))


def of_trial(s: Session, trial_id: int, limit: int = 1000, after: str | None = None) -> list[str]:
    """Return the newest checkpoints of a trial, by steps, newest first; `after` is the last one seen.

    Raises:
        NotFound: `after` is no checkpoint of this trial.
    """
    query = select(CheckpointRow.uuid).where(CheckpointRow.trial_id == trial_id)
    if after is not None:
        last = _seen(s, CheckpointRow.trial_id == trial_id, after)
        place = tuple_(CheckpointRow.steps_completed, CheckpointRow.created_at)
        same = place == tuple_(last.steps_completed, last.created_at)
        query = query.where((place < (last.steps_completed, last.created_at)) | (same & (CheckpointRow.uuid > after)))
    order = (CheckpointRow.steps_completed.desc(), CheckpointRow.created_at.desc(), CheckpointRow.uuid)
    return list(s.scalars(query.order_by(*order).limit(limit)))


def of_experiment(s: Session, experiment_id: int, limit: int = 1000, after: str | None = None) -> list[str]:
    """Return the checkpoints of an experiment, newest first; `after` is the last one seen.

    Raises:
        NotFound: `after` is no checkpoint of this experiment.
    """
    query = select(CheckpointRow.uuid).where(CheckpointRow.experiment_id == experiment_id)
    if after is not None:
        last = _seen(s, CheckpointRow.experiment_id == experiment_id, after)
        query = query.where(tuple_(CheckpointRow.created_at, CheckpointRow.uuid) < (last.created_at, after))
    order = (CheckpointRow.created_at.desc(), CheckpointRow.uuid.desc())
    return list(s.scalars(query.order_by(*order).limit(limit)))


def _seen(s: Session, here: ColumnElement[bool], uuid: str) -> Row[int, float]:
    """Return the steps and the time of the checkpoint before which a page begins."""
    query = select(CheckpointRow.steps_completed, CheckpointRow.created_at)
    found = s.execute(query.where(here, CheckpointRow.uuid == uuid)).first()
    if found is None:
        raise NotFound(
            f"there is no checkpoint {uuid[:80]} after which a page could begin",
            hint="`after` is the id of the last one of the page before (its `next`); leave it out for the first page",
        )
    return found


def owners(s: Session, uuids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return uuid -> (trial, step) of checkpoints, also of those whose files were removed."""
    found: dict[str, tuple[int, int]] = {}
    for part in chunks(uuids):
        query = select(CheckpointRow.uuid, CheckpointRow.trial_id, CheckpointRow.steps_completed)
        rows = s.execute(query.where(CheckpointRow.uuid.in_(part)))
        found.update((row.uuid, (row.trial_id, row.steps_completed)) for row in rows)
    return found


def before(s: Session, row: CheckpointRow, limit: int = 20) -> list[str]:
    """Return the existing checkpoints of a trial that have fewer steps than one of them, newest first."""
    query = select(CheckpointRow.uuid).where(
        CheckpointRow.trial_id == row.trial_id,
        CheckpointRow.state == "COMPLETED",
        CheckpointRow.steps_completed < row.steps_completed,
        _SINCE_ANEW,
    )
    order = (CheckpointRow.steps_completed.desc(), CheckpointRow.created_at.desc(), CheckpointRow.uuid.desc())
    return list(s.scalars(query.order_by(*order).limit(limit)))


def latest(s: Session, trial_id: int) -> CheckpointRow | None:
    """Return the checkpoint a trial resumes from: COMPLETED, most steps, then youngest."""
    s.flush()  # as before any query of the session's own
    newest = _LATEST.scalar(s, {"trial": trial_id})
    return None if newest is None else s.get(CheckpointRow, newest)


def newest_of_each(s: Session, trial_ids: Sequence[int]) -> dict[int, CheckpointRow]:
    """Return the checkpoint of the most steps of each trial since it began anew, there or not."""
    found: dict[int, CheckpointRow] = {}
    order = (CheckpointRow.steps_completed, CheckpointRow.created_at, CheckpointRow.uuid)
    for part in chunks(list(trial_ids)):
        query = select(CheckpointRow).join(TrialRow, TrialRow.id == CheckpointRow.trial_id)
        query = query.where(CheckpointRow.trial_id.in_(part), CheckpointRow.run >= TrialRow.first_run)
        for one in s.scalars(query.order_by(*order)):
            found[one.trial_id] = one
    return found


def in_trash(s: Session, uuid: str) -> bool:
    """Whether a checkpoint is deleted and can still be restored."""
    removal = s.get(RemovalRow, uuid)
    return removal is not None and removal.begun_at is None


def removals(s: Session) -> list[tuple[RemovalRow, CheckpointRow]]:
    """Return the removals that are not done, oldest first, each with its checkpoint."""
    query = select(RemovalRow, CheckpointRow).join(CheckpointRow, CheckpointRow.uuid == RemovalRow.uuid)
    return [(removal, row) for removal, row in s.execute(query.order_by(RemovalRow.requested_at, RemovalRow.uuid))]


def removals_due(s: Session, now: float) -> dict[str, list[str]]:
    """Return the checkpoints whose removal is due and the master's own to do, oldest first, by their owner."""
    query = select(ExperimentRow.owner, RemovalRow.uuid).where(RemovalRow.due_at <= now, RemovalRow.by_task.is_(False))
    query = query.join(CheckpointRow, CheckpointRow.uuid == RemovalRow.uuid)
    query = query.join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
    found: dict[str, list[str]] = {}
    for owner, uuid in s.execute(query.order_by(RemovalRow.due_at, RemovalRow.uuid)):
        found.setdefault(owner, []).append(uuid)
    return found
