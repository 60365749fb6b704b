"""What a comparison of runs reads: experiments and trials by their ids, and the best point of a search with seeds."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from sqlalchemy import Text, func, select, type_coerce
from sqlalchemy.orm import Session

from detlab_hub.store import values as scalars
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import ExperimentRow, MetricName, MetricPoint, MetricSeries, TrialRow, clean_text

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


def series_counts(s: Session, trial_ids: Collection[int], names: Collection[str] | None) -> dict[int, int]:
    """Return how many series each trial has, or how many of some names."""
    found: dict[int, int] = {}
    for part in chunks(sorted(trial_ids)):
        query = select(MetricSeries.trial_id, func.count()).where(MetricSeries.trial_id.in_(part))
        if names is not None:
            named = [clean_text(name) for name in names]
            query = query.join(MetricName, MetricName.id == MetricSeries.name_id).where(MetricName.name.in_(named))
        found.update((key, count) for key, count in s.execute(query.group_by(MetricSeries.trial_id)))
    return found


def values_at_best(s: Session, trial_ids: Collection[int], limit: int) -> dict[int, dict[tuple[str, str], float]]:
    """Return trial -> (group, name) -> the value that was reported at the step of its best validation."""
    found: dict[int, dict[tuple[str, str], float]] = {}
    for part in chunks(sorted(trial_ids)):
        query = (
            select(MetricSeries.trial_id, MetricSeries.group_name, MetricName.name, MetricPoint.value, MetricPoint.flag)
            .join(TrialRow, TrialRow.id == MetricSeries.trial_id)
            .join(MetricPoint, (MetricPoint.series_id == MetricSeries.id) & (MetricPoint.step == TrialRow.best_step))
            .join(MetricName, MetricName.id == MetricSeries.name_id)
            .where(MetricSeries.trial_id.in_(part))
            .order_by(MetricSeries.trial_id, (MetricSeries.group_name == "validation").desc(), MetricName.name)
            .limit(limit)
        )
        for trial_id, group, name, value, flag in s.execute(query):
            found.setdefault(trial_id, {})[group, name] = scalars.join(value, flag)
    return found
