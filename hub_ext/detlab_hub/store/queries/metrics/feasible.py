"""The best reports of a search with constraints: those whose other metrics, at the same step, are within bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session, aliased

from detlab_hub.store import values as scalars
from detlab_hub.store.tables import MetricName, MetricPoint, MetricSeries, TrialRow, clean_text


@dataclass(frozen=True)
class Goal:
    """What is best.

    Attributes:
        group: Of metrics.
        metric: The one that is compared.
        smaller_is_better: Whether a smaller one is better.
        bounds: Smallest and largest value of other metrics, by name.
    """

    group: str
    metric: str
    smaller_is_better: bool
    bounds: Mapping[str, tuple[float, float]]


def trial_best(s: Session, trial_id: int, goal: Goal) -> tuple[int, float] | None:
    """Return (first step, value) of a trial's best report that keeps the bounds."""
    by_name = _reports(s, trial_id, goal)
    sign = 1.0 if goal.smaller_is_better else -1.0
    kept = [
        (sign * value, step)
        for step, value in by_name.get(goal.metric, {}).items()
        if not math.isnan(value)
        and sign * value != -math.inf
        and all(low <= by_name.get(name, {}).get(step, math.nan) <= high for name, (low, high) in goal.bounds.items())
    ]
    if not kept:
        return None
    loss, step = min(kept)
    return step, sign * loss


def experiment_best(s: Session, experiment_id: int, goal: Goal) -> tuple[int, int, float] | None:
    """Return (trial id, first step, value) of the best report of an experiment that keeps the bounds."""
    order = TrialRow.best_validation if goal.smaller_is_better else TrialRow.best_validation.desc()
    query = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, TrialRow.best_validation.is_not(None))
    trial_id = s.scalar(query.order_by(order, TrialRow.id).limit(1))
    best = None if trial_id is None else trial_best(s, trial_id, goal)
    return None if trial_id is None or best is None else (trial_id, *best)


def best_until(s: Session, experiment_id: int, goal: Goal, time: float) -> tuple[int, int, float] | None:
    """Return (trial id, first step, value) of the best report until a time that is finite and keeps the bounds."""
    own, point = aliased(MetricSeries), aliased(MetricPoint)
    query = (
        select(own.trial_id, point.step, point.value)
        .join(point, point.series_id == own.id)
        .join(TrialRow, TrialRow.id == own.trial_id)
        .where(TrialRow.experiment_id == experiment_id, *_named(own, goal.group, goal.metric))
        .where(point.time <= time, point.flag == scalars.FINITE)
    )
    for name, (low, high) in goal.bounds.items():
        other, value = aliased(MetricSeries), aliased(MetricPoint)
        query = query.join(other, (other.trial_id == own.trial_id) & and_(*_named(other, goal.group, name)))
        query = query.join(value, (value.series_id == other.id) & (value.step == point.step))
        kept = [value.flag == scalars.FINITE]
        kept += [value.value >= low] if low > -math.inf else []
        kept += [value.value <= high] if high < math.inf else []
        query = query.where(*kept)
    order = point.value if goal.smaller_is_better else point.value.desc()
    found = s.execute(query.order_by(order, own.trial_id, point.step).limit(1)).one_or_none()
    return None if found is None or found.value is None else (found.trial_id, found.step, found.value)


def _named(series: type[MetricSeries], group: str, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    named = select(MetricName.id).where(MetricName.name == clean_text(name)).scalar_subquery()
    return series.group_name == clean_text(group), series.name_id == named


def _reports(s: Session, trial_id: int, goal: Goal) -> dict[str, dict[int, float]]:
    """Return name -> step -> value of the metrics that matter."""
    names = {clean_text(name): name for name in (goal.metric, *goal.bounds)}
    query = (
        select(MetricName.name, MetricPoint.step, MetricPoint.value, MetricPoint.flag)
        .join(MetricSeries, MetricSeries.name_id == MetricName.id)
        .join(MetricPoint, MetricPoint.series_id == MetricSeries.id)
        .where(
            MetricSeries.trial_id == trial_id,
            MetricSeries.group_name == clean_text(goal.group),
            MetricName.name.in_(list(names)),
        )
    )
    found: dict[str, dict[int, float]] = {}
    for name, step, value, flag in s.execute(query):
        found.setdefault(names[name], {})[step] = scalars.join(value, flag)
    return found
