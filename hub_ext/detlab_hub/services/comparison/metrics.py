"""The table of metrics of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from detlab.schemas.wire.comparison import RunMetric, RunSummary
from detlab_hub.services.comparison.sides import Measured, MetricKey, Side, deviation_of, mean_of
from detlab_hub.store.queries.finding import comparison
from detlab_hub.store.queries.metrics import curves

MOST_METRICS = 2000
"""Rows of the table of metrics."""
MOST_SUMMARIES = 20_000
"""Summaries that one comparison reads, of all its trials."""


def metric_rows(s: Session, sides: Sequence[Side], names: Sequence[str]) -> tuple[list[RunMetric], int]:
    """Return the rows of metrics, those of the searches first, and how many are left out."""
    ids = list(dict.fromkeys(row.id for side in sides for row in side.trials))
    counts = comparison.series_counts(s, ids, names or None)
    found = _of_trials(s, ids, names or None, few=sum(counts.values()) <= MOST_SUMMARIES)
    measured = [_measured(side, found) for side in sides]
    keys = {
        (group, name) for some in measured for one in some for group, those in one.summaries.items() for name in those
    }
    searched = {side.view.metric for side in sides}
    order = {"validation": 0, "training": 1}

    def rank(key: MetricKey) -> tuple[bool, int, MetricKey]:
        return not (key[0] == "validation" and key[1] in searched), order.get(key[0], 2), key

    shown = sorted(keys, key=rank)[:MOST_METRICS]
    left_out = max([len(keys), *counts.values()]) - len(shown)
    return [_metric(sides, measured, key) for key in shown], left_out


def _measured(side: Side, found: Mapping[int, Measured]) -> list[Measured]:
    return [side.measured] if side.measured is not None else [found[row.id] for row in side.trials]


def _of_trials(s: Session, ids: Sequence[int], names: Sequence[str] | None, *, few: bool) -> dict[int, Measured]:
    """Return the metrics of trials; of each as many as fit, if they are not few."""
    if few:
        whole = curves.summaries_of(s, ids, None, names)
        best = comparison.values_at_best(s, ids, MOST_SUMMARIES)
        return {key: Measured(whole.get(key, {}), best.get(key, {})) for key in ids}
    most = max(20, MOST_SUMMARIES // len(ids))
    found = {}
    for key in ids:
        # Those of the validation first: a trial may have thousands of others.
        first = curves.summaries_of(s, [key], "validation", names, most).get(key, {})
        others = curves.summaries_of(s, [key], None, names, most).get(key, {})
        found[key] = Measured({**others, **first}, comparison.values_at_best(s, [key], most).get(key, {}))
    return found


def _metric(sides: Sequence[Side], measured: Sequence[Sequence[Measured]], key: MetricKey) -> RunMetric:
    group, name = key
    ways = {side.view.smaller_is_better for side in sides if side.view.metric == name and group == "validation"}
    values = [_summary(some, side, key) for side, some in zip(sides, measured, strict=True)]
    return RunMetric(group=group, name=name, values=values, smaller_is_better=ways.pop() if len(ways) == 1 else None)


def _summary(found: Sequence[Measured], side: Side, key: MetricKey) -> RunSummary | None:
    group, name = key
    summaries = [one.summaries[group][name] for one in found if name in one.summaries.get(group, {})]
    if not summaries:
        return None
    searched = group == "validation" and name == side.view.metric
    bests = (
        [row.best_validation for row in side.trials if row.best_validation is not None]
        if searched
        else [one.at_best[key] for one in found if key in one.at_best]
    )
    return RunSummary(
        best=mean_of(bests),
        last=mean_of([one.last for one in summaries if one.last is not None]),
        min=mean_of([one.min for one in summaries if one.min is not None]),
        max=mean_of([one.max for one in summaries if one.max is not None]),
        deviation=deviation_of(bests),
    )
