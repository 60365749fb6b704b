"""Reading metrics: curves, summaries, names, structured values. `reports` writes them, and is exported here, too.

Cost, for `n` stored points of one series and `m` requested points: up to `32 m` points are read directly (an
index range, many series per statement) and thinned; a longer series is read through its rollups, `n / 128` rows.
Lists, tables and searches for the best use the summaries in `series` and never read points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import from_json
from sqlalchemy import Select, Text, bindparam, func, literal_column, or_, select, tuple_, type_coerce
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from detlab.schemas.wire import SeriesView, SummaryView
from detlab.schemas.wire.logged_names import SYSTEM
from detlab_hub.store import downsample
from detlab_hub.store import values as scalars
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.metrics.reports import (
    ReportedMetrics,
    check_report,
    insert_report,
    insert_reports,
    supersede,
)
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    ExperimentMetric,
    MetricName,
    MetricPoint,
    MetricSeries,
    Rollup,
    StructuredValue,
    TrialRow,
    clean_text,
)

__all__ = [
    "ReportedMetrics",
    "at_step",
    "check_report",
    "experiment_best",
    "insert_report",
    "insert_reports",
    "names",
    "newest_step",
    "series",
    "series_part",
    "summaries",
    "summaries_of",
    "supersede",
    "trial_best",
    "value_at",
    "values",
    "values_at",
]

RAW_FACTOR = 32
"""Up to this many stored points per requested point are read directly."""
POINTS_PER_STATEMENT = 50_000
HEAD_BYTES, POINT_BYTES = 120, 64
"""Of a curve without its names and points, and of a point, as JSON at most."""
_TOTALS = [getattr(MetricSeries, column.name) for column in fields(scalars.Totals)]


def series(
    s: Session,
    trial_ids: Sequence[int],
    group: str | None = None,
    names: Sequence[str] | None = None,
    max_points: int | None = 1000,
    limit: int | None = None,
) -> list[SeriesView]:
    """Return the curves of trials, by (trial, group, name).

    Args:
        s: A session.
        trial_ids: The trials.
        group: One group, or None for all.
        names: Some names, or None for all.
        max_points: Most points per curve; raised to `downsample.MIN_POINTS` if less. None for all of them: only for
            series that are known to be short.
        limit: Most curves; None: all.
    """
    heads = [head for part in chunks(trial_ids) for head in s.execute(_heads(part, group, names).limit(limit))]
    wanted = None if max_points is None else max(max_points, downsample.MIN_POINTS)
    short = [head for head in heads if wanted is None or head.total <= RAW_FACTOR * wanted]
    raw = dict(_raw_points(s, short))
    return [_thin(head, _turned(raw[head.id]) if head.id in raw else _rolled(s, head), wanted) for head in heads]


def series_part(
    s: Session,
    trial_ids: Sequence[int],
    group: str | None = None,
    names: Sequence[str] | None = None,
    max_points: int = 1000,
    *,
    skip: int = 0,
    most_bytes: int,
) -> tuple[list[SeriesView], int | None]:
    """Return as many of the curves of trials as fit, one at least, and where the next part begins; see `series`.

    Args:
        s: A session.
        trial_ids: The trials.
        group: One group, or None for all.
        names: Some names, or None for all.
        max_points: Most points per curve; a part holds one whole curve in any case.
        skip: Curves of the parts before.
        most_bytes: Of the part as JSON, about.
    """
    wanted = max(min(max_points, most_bytes // POINT_BYTES), downsample.MIN_POINTS)
    heads = _heads_from(s, trial_ids, group, names, skip, most_bytes // (POINT_BYTES * downsample.MIN_POINTS) + 1)
    left, fitting = most_bytes, 0
    for head in heads:
        left -= HEAD_BYTES + 6 * (len(head.name) + len(head.group_name)) + POINT_BYTES * min(head.total, wanted)
        if left < 0 and fitting:
            break
        fitting += 1
    shown = heads[:fitting]
    raw = dict(_raw_points(s, [head for head in shown if head.total <= RAW_FACTOR * wanted]))
    views = [_thin(head, _turned(raw[head.id]) if head.id in raw else _rolled(s, head), wanted) for head in shown]
    return views, skip + fitting if fitting < len(heads) else None


def series_total(s: Session, trial_ids: Sequence[int], group: str | None, names: Sequence[str] | None) -> int:
    """Return of how many curves `series_part` returns the parts."""
    queries = (_heads(part, group, names).order_by(None).subquery() for part in chunks(trial_ids))
    return sum(s.scalar(select(func.count()).select_from(one)) or 0 for one in queries)


def _heads_from(
    s: Session, trial_ids: Sequence[int], group: str | None, names: Sequence[str] | None, skip: int, most: int
) -> list[Any]:
    """Return the heads of series after so many."""
    found: list[Any] = []
    for part in chunks(trial_ids):
        query = _heads(part, group, names)
        if skip:
            total = s.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0
            if total <= skip:
                skip -= total
                continue
        found += s.execute(query.offset(skip).limit(most - len(found)))
        skip = 0
        if len(found) >= most:
            break
    return found


def _heads(trial_ids: Sequence[int], group: str | None, names: Sequence[str] | None) -> Select[*tuple[Any, ...]]:
    query = (
        select(
            MetricSeries.id,
            MetricSeries.trial_id,
            MetricSeries.group_name,
            MetricName.name,
            MetricSeries.count.label("total"),
            MetricSeries.rolled_step,
        )
        .join(MetricName, MetricName.id == MetricSeries.name_id)
        .where(MetricSeries.trial_id.in_(trial_ids))
        .order_by(MetricSeries.trial_id, MetricSeries.group_name, MetricName.name)
    )
    if group is not None:
        query = query.where(MetricSeries.group_name == clean_text(group))
    if names is not None:
        query = query.where(MetricName.name.in_([clean_text(name) for name in names]))
    return query


def _raw_points(s: Session, heads: Sequence[Any]) -> Iterator[tuple[int, list[Sequence[Any]]]]:
    """Read short series whole, many in one statement."""
    for part in _packed(heads):
        found: dict[int, list[Sequence[Any]]] = {head.id: [] for head in part}
        query = (
            select(MetricPoint.series_id, MetricPoint.step, MetricPoint.value, MetricPoint.flag, MetricPoint.time)
            .where(MetricPoint.series_id.in_(list(found)))
            .order_by(MetricPoint.series_id, MetricPoint.step)
        )
        for series_id, *row in s.connection().execute(query):
            found[series_id].append(row)
        yield from found.items()


def _packed(heads: Iterable[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    points = 0
    for head in heads:
        if part and (points + head.total > POINTS_PER_STATEMENT or len(part) >= 500):
            yield part
            part, points = [], 0
        part.append(head)
        points += head.total
    if part:
        yield part


class _Points(NamedTuple):
    """Points of a series in step order, as they are stored."""

    steps: Sequence[int]
    values: Sequence[Any]
    flags: Sequence[int]
    times: Sequence[float]


_KEPT = type_coerce(Rollup.kept, Text)
_KEPT_TEXTS = PreparedStatement(
    select(_KEPT).where(Rollup.series_id == bindparam("series")).order_by(Rollup.first_step)
)
_KEPT_TEXT = PreparedStatement(
    select(func.string_agg(_KEPT, aggregate_order_by(literal_column("','"), Rollup.first_step))).where(
        Rollup.series_id == bindparam("series")
    )
)
_TAIL = PreparedStatement(
    select(MetricPoint.step, MetricPoint.value, MetricPoint.flag, MetricPoint.time)
    .where(MetricPoint.series_id == bindparam("series"), MetricPoint.step > bindparam("beyond"))
    .order_by(MetricPoint.step)
)


def _turned(rows: Sequence[Sequence[Any]]) -> _Points:
    """Return what (step, value, flag, time) of each point are, as columns."""
    steps, values, flags, times = zip(*rows, strict=True) if rows else ((), (), (), ())
    return _Points(steps, values, flags, times)


def _rolled(s: Session, head: Any) -> _Points:
    """Read a long series: the extremes of its rollups, then the points after them."""
    if s.get_bind().dialect.name == "postgresql":  # thousands of rows cost its driver more than what is in them
        text = _KEPT_TEXT.scalar(s, {"series": head.id}) or ""
    else:
        text = ",".join([row[0] for row in _KEPT_TEXTS.all(s, {"series": head.id})])
    # Small JSON lists, of numbers only, are decoded as one, without a list for each point: those take twice the time,
    # and the garbage collector's beside it.
    flat = from_json(f"[{text.replace('[', '').replace(']', '')}]")
    tail = _turned(_TAIL.all(s, {"series": head.id, "beyond": -1 if head.rolled_step is None else head.rolled_step}))
    return _Points(*([*flat[place::4], *column] for place, column in enumerate(tail)))


def _thin(head: Any, points: _Points, max_points: int | None) -> SeriesView:
    steps, values, times = points.steps, points.values, points.times
    if None in values:
        values = list(map(scalars.join, values, points.flags))
    curve = np.array(values, dtype=np.float64)
    if max_points is not None:
        kept = downsample.choose(curve, max_points)
        curve = curve[kept]
        places = kept.tolist()
        steps, times = [steps[place] for place in places], [times[place] for place in places]
    return SeriesView.model_construct(
        trial_id=head.trial_id,
        group=head.group_name,
        name=head.name,
        steps=list(steps),
        values=curve.tolist(),
        times=list(times),
        total=head.total,
    )


# --- summaries ----------------------------------------------------------------------------------------------


def summaries(s: Session, trial_id: int, limit: int | None = None) -> dict[str, dict[str, SummaryView]]:
    """Return group -> name -> summary of one trial, of all its metrics or of the first `limit`."""
    return summaries_of(s, [trial_id], limit=limit).get(trial_id, {})


def last_without_number(s: Session, trial_id: int, limit: int) -> list[tuple[str, str]]:
    """Return the group and name of metrics that code reported and whose last value is NaN or infinite, some first."""
    query = select(MetricSeries.group_name, MetricName.name).join(MetricName, MetricName.id == MetricSeries.name_id)
    query = query.where(
        MetricSeries.trial_id == trial_id, MetricSeries.last_flag != 0, MetricSeries.group_name != SYSTEM
    )
    rows = s.execute(query.order_by(MetricSeries.group_name.desc(), MetricName.name).limit(limit))
    return [(group, name) for group, name in rows]


def count_series(s: Session, trial_id: int, group: str | None = None, names: Sequence[str] | None = None) -> int:
    """Return how many series a trial has, or how many of one group or some names."""
    heads = _heads([trial_id], group, names).order_by(None).subquery()
    return s.scalar(select(func.count()).select_from(heads)) or 0


def summaries_of(
    s: Session,
    trial_ids: Sequence[int],
    group: str | None = None,
    names: Sequence[str] | None = None,
    limit: int | None = None,
) -> dict[int, dict[str, dict[str, SummaryView]]]:
    """Return trial -> group -> name -> summary, of all metrics or of one group or some names; at most `limit`."""
    found: dict[int, dict[str, dict[str, SummaryView]]] = {}
    for part in chunks(trial_ids):
        query = (
            select(MetricSeries.trial_id, MetricSeries.group_name, MetricName.name, *_TOTALS)
            .join(MetricName, MetricName.id == MetricSeries.name_id)
            .where(MetricSeries.trial_id.in_(part))
            .order_by(MetricSeries.trial_id, MetricSeries.group_name, MetricName.name)
        )
        if group is not None:
            query = query.where(MetricSeries.group_name == clean_text(group))
        if names is not None:
            query = query.where(MetricName.name.in_([clean_text(name) for name in names]))
        for trial_id, group_name, name, *totals in s.execute(query.limit(limit)):
            groups = found.setdefault(trial_id, {})
            groups.setdefault(group_name, {})[name] = scalars.view(scalars.Totals(*totals))
    return found


def names(
    s: Session,
    experiment_id: int,
    *,
    group: str | None = None,
    contains: str | None = None,
    after: tuple[str, str] | None = None,
    limit: int = 1000,
) -> list[tuple[str, str]]:
    """Return (group, name) of the scalar metrics of an experiment, sorted; page with `after`."""
    query = (
        select(ExperimentMetric.group_name, MetricName.name)
        .join(MetricName, MetricName.id == ExperimentMetric.name_id)
        .where(ExperimentMetric.experiment_id == experiment_id)
        .order_by(ExperimentMetric.group_name, MetricName.name)
        .limit(limit)
    )
    if group is not None:
        query = query.where(ExperimentMetric.group_name == clean_text(group))
    if contains:
        query = query.where(MetricName.name.icontains(clean_text(contains), autoescape=True))
    if after is not None:
        query = query.where(tuple_(ExperimentMetric.group_name, MetricName.name) > after)
    return [(row.group_name, row.name) for row in s.execute(query)]


# --- single values ------------------------------------------------------------------------------------------


_VALUES_AT = (
    select(MetricPoint.step, MetricPoint.value, MetricPoint.flag)
    .join(MetricSeries, MetricSeries.id == MetricPoint.series_id)
    .join(MetricName, MetricName.id == MetricSeries.name_id)
    .where(
        MetricSeries.trial_id == bindparam("trial"),
        MetricSeries.group_name == bindparam("group"),
        MetricName.name == bindparam("name"),
        MetricPoint.step.in_(bindparam("steps", expanding=True)),
    )
)


def values_at(s: Session, trial_id: int, group: str, name: str, steps: Sequence[int]) -> dict[int, float]:
    """Return step -> value for those of `steps` at which the metric was reported."""
    found: dict[int, float] = {}
    for part in chunks(sorted(set(steps))):
        asked = {"trial": trial_id, "group": clean_text(group), "name": clean_text(name), "steps": part}
        found.update((row.step, scalars.join(row.value, row.flag)) for row in s.connection().execute(_VALUES_AT, asked))
    return found


def at_step(s: Session, trial_id: int, step: int, group: str | None, limit: int) -> list[SeriesView]:
    """Return every value that a trial reported at a step, of one group or of all: curves of one point each."""
    query = (
        select(MetricSeries.group_name, MetricName.name, MetricPoint.value, MetricPoint.flag, MetricPoint.time)
        .join(MetricPoint, MetricPoint.series_id == MetricSeries.id)
        .join(MetricName, MetricName.id == MetricSeries.name_id)
        .where(MetricSeries.trial_id == trial_id, MetricPoint.step == step)
        .order_by(MetricSeries.group_name, MetricName.name)
        .limit(limit)
    )
    if group is not None:
        query = query.where(MetricSeries.group_name == clean_text(group))
    return [
        SeriesView(
            trial_id=trial_id,
            group=row.group_name,
            name=row.name,
            steps=[step],
            values=[scalars.join(row.value, row.flag)],
            times=[row.time],
            total=1,
        )
        for row in s.execute(query)
    ]


def value_at(s: Session, trial_id: int, group: str, name: str, step: int) -> float | None:
    """Return the value reported at a step, or None."""
    return values_at(s, trial_id, group, name, [step]).get(step)


def _diverged(smaller_is_better: bool) -> float:
    """Return the value that beats every number, and is none."""
    return -math.inf if smaller_is_better else math.inf


def newest_step(s: Session, trial_id: int, group: str) -> int | None:
    """Return the greatest step at which a trial has values of a group; None if it has none."""
    query = select(func.max(MetricSeries.last_step)).where(
        MetricSeries.trial_id == trial_id, MetricSeries.group_name == group
    )
    return s.scalar(query)


def trial_best(s: Session, trial_id: int, group: str, name: str, smaller_is_better: bool) -> tuple[int, float] | None:
    """Return (first step, value) of the best value of a trial's metric.

    A value that is infinitely good is none, because the training has diverged: the best of the others counts.
    """
    query = _best_heads(group, name).where(MetricSeries.trial_id == trial_id)
    row = s.execute(query).one_or_none()
    if row is None:
        return None
    value = row.min if smaller_is_better else row.max
    if value == _diverged(smaller_is_better):
        value = _best_beside(s, row.id, smaller_is_better)
    return None if value is None else (_first_step(s, row.id, value), value)


def experiment_best(
    s: Session, experiment_id: int, group: str, name: str, smaller_is_better: bool
) -> tuple[int, int, float] | None:
    """Return (trial id, first step, value) of the best value over an experiment's trials; see `trial_best`."""
    column = MetricSeries.min if smaller_is_better else MetricSeries.max
    of_experiment = (
        _best_heads(group, name)
        .join(TrialRow, TrialRow.id == MetricSeries.trial_id)
        .where(TrialRow.experiment_id == experiment_id, column.is_not(None))
    )
    diverged = column == _diverged(smaller_is_better)
    order = column if smaller_is_better else column.desc()
    found: list[tuple[float, int, int]] = []
    row = s.execute(of_experiment.where(~diverged).order_by(order, MetricSeries.trial_id).limit(1)).one_or_none()
    if row is not None:
        found.append((row.min if smaller_is_better else row.max, row.trial_id, row.id))
    for row in s.execute(of_experiment.where(diverged)).all():
        value = _best_beside(s, row.id, smaller_is_better)
        if value is not None:
            found.append((value, row.trial_id, row.id))
    if not found:
        return None
    sign = 1.0 if smaller_is_better else -1.0
    value, trial_id, series_id = min(found, key=lambda one: (sign * one[0], one[1]))
    return trial_id, _first_step(s, series_id, value), value


def _best_beside(s: Session, series_id: int, smaller_is_better: bool) -> float | None:
    """Return the best value of a series apart from the infinitely good ones, which hide it in the summary."""
    best = func.min(MetricPoint.value) if smaller_is_better else func.max(MetricPoint.value)
    finite = s.scalar(select(best).where(MetricPoint.series_id == series_id, MetricPoint.flag == scalars.FINITE))
    if finite is not None:
        return float(finite)
    worst = -_diverged(smaller_is_better)
    flag = scalars.split(worst)[1]
    there = s.scalar(
        select(MetricPoint.step).where(MetricPoint.series_id == series_id, MetricPoint.flag == flag).limit(1)
    )
    return None if there is None else worst


def _best_heads(group: str, name: str) -> Select[*tuple[Any, ...]]:
    query: Select[*tuple[Any, ...]] = (
        select(MetricSeries.id, MetricSeries.trial_id, MetricSeries.min, MetricSeries.max)
        .join(MetricName, MetricName.id == MetricSeries.name_id)
        .where(MetricSeries.group_name == clean_text(group), MetricName.name == clean_text(name))
    )
    return query


def _first_step(s: Session, series_id: int, value: float) -> int:
    stored, flag = scalars.split(value)
    query = select(MetricPoint.step).where(MetricPoint.series_id == series_id, MetricPoint.flag == flag)
    if stored is not None:
        query = query.where(MetricPoint.value == stored)
    return int(s.execute(query.order_by(MetricPoint.step).limit(1)).scalar_one())


def values(
    s: Session,
    trial_id: int,
    group: str | None = None,
    name: str | None = None,
    limit: int = 100,
    before: tuple[int, int] | None = None,
) -> list[dict[str, Any]]:
    """Return the newest structured values, in step order.

    Args:
        s: A session.
        trial_id: The trial.
        group: One group, or None for all.
        name: One name, or None for all.
        limit: Most values.
        before: (step, id) of the first one of the page after this one, to page backwards.

    Returns:
        `{id, group, name, steps_completed, time, value}` each.
    """
    query = (
        select(StructuredValue, MetricName.name)
        .join(MetricName, MetricName.id == StructuredValue.name_id)
        .where(StructuredValue.trial_id == trial_id)
        .order_by(StructuredValue.step.desc(), StructuredValue.id.desc())
        .limit(limit)
    )
    if group is not None:
        query = query.where(StructuredValue.group_name == clean_text(group))
    if name is not None:
        query = query.where(MetricName.name == clean_text(name))
    if before is not None:
        step, row_id = before
        query = query.where(
            or_(StructuredValue.step < step, (StructuredValue.step == step) & (StructuredValue.id < row_id))
        )
    newest = [
        {
            "id": row.id,
            "group": row.group_name,
            "name": label,
            "steps_completed": row.step,
            "time": row.time,
            "value": row.value,
        }
        for row, label in s.execute(query)
    ]
    return newest[::-1]
