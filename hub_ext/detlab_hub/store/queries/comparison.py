"""What a comparison of runs reads: experiments and trials by their ids, and the best point of a search with seeds."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from sqlalchemy import Text, func, select, type_coerce
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import ExperimentRow, TrialRow

MOST_SEEDS = 20
"""Trials that stand for a point."""
_LARGEST = sys.float_info.max


def trials_by_id(s: Session, ids: Collection[int]) -> dict[int, TrialRow]:
    """Return those of some trials that exist, by id."""
    found = (row for part in chunks(sorted(ids)) for row in s.scalars(select(TrialRow).where(TrialRow.id.in_(part))))
    return {row.id: row for row in found}


def experiments_by_id(s: Session, ids: Collection[int]) -> dict[int, ExperimentRow]:
    """Return those of some experiments that exist, by id."""
    parts = chunks(sorted(ids))
    found = (row for part in parts for row in s.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(part))))
    return {row.id: row for row in found}


def first_trial(s: Session, experiment_id: int) -> TrialRow | None:
    """Return the trial that was made first."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.idx).limit(1)
    return s.scalars(query).one_or_none()


def best_point(s: Session, experiment_id: int, *, smaller_is_better: bool) -> Sequence[TrialRow]:
    """Return the trials of the point with the best mean, in creation order; empty: no point has two values yet.

    One value says nothing of other seeds. The database groups them: a search may have made ten thousand trials.
    """
    hparams = type_coerce(TrialRow.hparams, Text)
    mean = func.avg(TrialRow.best_validation)
    finite = TrialRow.best_validation.between(-_LARGEST, _LARGEST)
    here = TrialRow.experiment_id == experiment_id, TrialRow.point_due.is_(False)
    found = s.execute(
        select(hparams)
        .where(*here, finite)
        .group_by(hparams)
        .having(func.count() > 1)
        .order_by(mean.asc() if smaller_is_better else mean.desc(), func.min(TrialRow.idx))
        .limit(1)
    ).first()
    if found is None:
        return []
    return s.scalars(select(TrialRow).where(*here, hparams == found[0]).order_by(TrialRow.idx).limit(MOST_SEEDS)).all()
