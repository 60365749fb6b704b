"""Writing metrics: reports in, points and summaries kept exact, older runs superseded.

A report is folded into its series' summary as it comes; a summary is recomputed from the points only where a point
was replaced or removed. Readers of lists and tables therefore never touch points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from sqlalchemy import Table, case, delete, func, select
from sqlalchemy.orm import Session

from detlab.errors import NotFound, StaleAttempt
from detlab_hub.store import values
from detlab_hub.store.errors import BadReport
from detlab_hub.store.queries.appending import COLUMNS, PointRow, append_points
from detlab_hub.store.queries.metrics import rollups, series_rows
from detlab_hub.store.queries.metrics.columns import Column, Key, ReportNumbers, columns_of
from detlab_hub.store.queries.metrics.lookup import forget, memo_of, name_ids, prefetch, series_of
from detlab_hub.store.queries.metrics.newest import newest_points
from detlab_hub.store.queries.metrics.series_rows import SeriesLine
from detlab_hub.store.queries.statements import chunks, upsert
from detlab_hub.store.tables import (
    MetricPoint,
    MetricSeries,
    Rollup,
    StructuredValue,
    TrialRow,
    clean_text,
)

GROUP_CHARS = 128
NAME_CHARS = 512
STRUCTURED_BYTES = 256_000
MAX_STEP = 2**53
MAX_NAMES = 20_000
_BIG = 1e290
_SCALE = 2.0**-40

Stored = dict[tuple[int, int], tuple[float | None, int]]
"""(series id, step) -> (value, flag)"""
Structured = dict[Key, dict[int, tuple[Any, float]]]
"""step -> (value, time), by metric"""


@dataclass(frozen=True)
class ReportedMetrics:
    """One `report_metrics` call: `time` in seconds since the epoch, `metrics` as JSON has them."""

    group: str
    steps_completed: int
    time: float
    metrics: dict[str, Any]
    scalars: dict[str, float] | None = None
    """The result of `check_report` for it; None: it is not checked yet."""


def check_report(group: str, steps_completed: int, metrics: dict[str, Any]) -> dict[str, float]:
    """Refuse a report that could never be stored; return the metrics that are numbers.

    Raises:
        BadReport: Its code is `report.group`, `report.step`, `report.name` or `report.too_large`.
    """
    if not group or len(group) > GROUP_CHARS or "." in group:
        raise BadReport(
            f"{group[:80]!r} is not a metric group: 1 to {GROUP_CHARS} characters, none of them a dot",
            code="report.group",
        )
    if not 0 <= steps_completed <= MAX_STEP:
        raise BadReport(f"steps_completed {steps_completed} is not between 0 and 2**53", code="report.step")
    if len(metrics) > MAX_NAMES:
        raise BadReport(f"{len(metrics)} metrics in one report; at most {MAX_NAMES}", code="report.too_large")
    # Nearly always all are floats by names of a sane length, which takes no loop to see.
    if set(map(type, metrics.values())) == {float} and min(map(len, metrics)) and max(map(len, metrics)) <= NAME_CHARS:
        return metrics
    scalars: dict[str, float] = {}
    for name, value in metrics.items():
        if not name or len(name) > NAME_CHARS:
            raise BadReport(
                f"the metric name {name[:80]!r} has {len(name)} characters; 1 to {NAME_CHARS}", code="report.name"
            )
        number = value if type(value) is float else values.as_scalar(value)
        if number is not None:
            scalars[name] = number
            continue
        size = len(json.dumps(value, separators=(",", ":")))
        if size > STRUCTURED_BYTES:
            raise BadReport(
                f"the value of {name[:80]!r} has {size} bytes as JSON; at most {STRUCTURED_BYTES}",
                code="report.too_large",
            )
    return scalars


def insert_report(
    s: Session,
    trial_id: int,
    run: int,
    group: str,
    steps_completed: int,
    time: float,
    metrics: dict[str, Any],
    resume_step: int | None = None,
) -> None:
    """Store one report; see `insert_reports`."""
    insert_reports(s, trial_id, run, [ReportedMetrics(group, steps_completed, time, metrics)], resume_step)


def insert_reports(
    s: Session, trial_id: int, run: int, reports: Sequence[ReportedMetrics], resume_step: int | None = None
) -> None:
    """Store reports in order. A value at a (group, name, step) that exists replaces it; other names stay.

    Args:
        s: A write session.
        trial_id: The trial.
        run: The attempt that reports. The first report of a new run supersedes the values of earlier runs
            beyond `resume_step`.
        reports: Any number; one call for many is much faster than many calls.
        resume_step: Steps of the checkpoint that this run resumed from; None = it began from scratch.

    Raises:
        BadReport: One of them can never be stored (nothing of this call is then to be committed).
        NotFound: No such trial.
        StaleAttempt: A newer run has reported.
    """
    memo = memo_of(s)
    trial = memo.trials.get(trial_id) or s.get(TrialRow, trial_id)
    if trial is None:
        raise NotFound(f"there is no trial {trial_id}")
    memo.trials[trial_id] = trial
    columns, structured = _sort(reports)
    begin_run(s, trial, run, resume_step)
    if len(columns) == 1 and not structured:
        prefetch(s, trial, *next(iter(columns)))
    ids = name_ids(s, {name for _, name in (*columns, *structured)})
    _insert_scalars(s, trial, run, columns, ids)
    _insert_structured(s, trial_id, run, structured, ids)


def begin_run(s: Session, trial: TrialRow, run: int, resume_step: int | None) -> None:
    """Note that `run` reports; if it is new, supersede the earlier ones.

    Raises:
        StaleAttempt: A newer run has reported.
    """
    if run < trial.metrics_run:
        raise StaleAttempt(f"run {run} of trial {trial.id} is over: run {trial.metrics_run} has reported metrics")
    if run > trial.metrics_run:
        if trial.metrics_run > 0:
            supersede(s, trial.id, -1 if resume_step is None else resume_step, run)
        trial.metrics_run = run


def supersede(s: Session, trial_id: int, beyond_step: int, run: int | None = None) -> int:
    """Remove the points (and structured values) of runs before `run` with a step > `beyond_step`.

    Args:
        s: A write session.
        trial_id: The trial.
        beyond_step: The step resumed from; -1 removes all.
        run: The run that resumed; None: all runs there are.

    Returns:
        How many values were removed.
    """
    forget(s)
    removed = _delete_structured(s, trial_id, beyond_step, run)
    s.flush()
    touched = series_rows.where(s, MetricSeries.trial_id == trial_id, MetricSeries.last_step > beyond_step)
    for part in chunks(touched):
        query = delete(MetricPoint).where(
            MetricPoint.series_id.in_([row.id for row in part]), MetricPoint.step > beyond_step
        )
        removed += _rowcount(s.execute(query if run is None else query.where(MetricPoint.run < run)))
    for series in touched:
        rollups.cut(s, series, beyond_step)
    recompute(s, touched)
    return removed


def _delete_structured(s: Session, trial_id: int, beyond_step: int, run: int | None) -> int:
    query = delete(StructuredValue).where(StructuredValue.trial_id == trial_id, StructuredValue.step > beyond_step)
    return _rowcount(s.execute(query if run is None else query.where(StructuredValue.run < run)))


def _rowcount(result: Any) -> int:
    return max(int(result.rowcount), 0)


# --- scalars ------------------------------------------------------------------------------------------------


def _sort(reports: Sequence[ReportedMetrics]) -> tuple[dict[Key, Column], Structured]:
    """Sort the values of reports; raises what `check_report` does."""
    said: list[ReportNumbers] = []
    structured: Structured = {}
    for report in reports:
        group, step, scalars = report.group, report.steps_completed, report.scalars
        if scalars is None:
            scalars = check_report(group, step, report.metrics)
        said.append(ReportNumbers(group, step, report.time, scalars))
        if len(scalars) < len(report.metrics):
            for name, value in report.metrics.items():
                if name not in scalars:
                    key = (clean_text(group), clean_text(name))
                    structured.setdefault(key, {})[step] = (value, report.time)
    return columns_of(said), structured


def _insert_scalars(s: Session, trial: TrialRow, run: int, columns: dict[Key, Column], ids: dict[str, int]) -> None:
    if not columns:
        return
    keys = [(group, ids[name]) for group, name in columns]
    known = series_of(s, trial, keys)
    pairs = [(known[key], column) for key, column in zip(keys, columns.values(), strict=True)]
    stored = _stored(s, [pair for pair in pairs if not _is_append(*pair)])
    appended: list[PointRow] = []
    replaced: list[dict[str, Any]] = []
    merged: list[tuple[SeriesLine, _Merge]] = []
    newest = newest_points(s)
    for series, column in pairs:
        rows, finite = _rows(series.id, run, column)
        if not _is_append(series, column):
            newest.forget(series.id)
            replaced += (dict(zip(COLUMNS, row, strict=True)) for row in rows)
            merged.append((series, _fold_among(series, column, stored)))
            continue
        appended += rows
        before = series.count, series.last_step
        series.unrolled += len(rows)
        if finite:
            values.fold_finite(series, column.steps[-1], column.values)
        else:
            values.fold(series, zip(column.steps, column.values, strict=True))
        newest.appended(before, series, rows)
    if len(pairs) == len(appended) == 1 and not rollups.is_due(pairs[0][0]):
        series_rows.append_point(s, pairs[0][0], appended[0])
        return
    if appended:
        append_points(s, appended)
    if replaced:
        s.connection().execute(upsert(s, _POINTS, ("series_id", "step"), ("run", "value", "flag", "time")), replaced)
    for series, merge in merged:
        if merge.touched_from is not None:
            rollups.cut(s, series, merge.touched_from - 1)
    summarise(s, [series for series, merge in merged if merge.changed])
    rollups.roll(s, [series for series, _ in pairs])
    series_rows.save(s, [series for series, _ in pairs])


def _rows(series_id: int, run: int, column: Column) -> tuple[list[PointRow], bool]:
    """Return a column's rows, and whether all of its values are finite."""
    steps, numbers, times = column.steps, column.values, column.times
    if all(map(math.isfinite, numbers)):
        flags = repeat(values.FINITE)
        return list(zip(repeat(series_id), steps, repeat(run), numbers, flags, times)), True
    points = zip(steps, numbers, times, strict=True)
    return [(series_id, step, run, *values.split(number), time) for step, number, time in points], False


def _is_append(series: SeriesLine, column: Column) -> bool:
    return series.last_step is None or column.steps[0] > series.last_step


def _stored(s: Session, pairs: Iterable[tuple[SeriesLine, Column]]) -> Stored:
    """Return (series id, step) -> (value, flag) of the points that exist at the steps of each series."""
    by_steps: dict[tuple[int, ...], list[int]] = {}
    for series, column in pairs:
        by_steps.setdefault(tuple(column.steps), []).append(series.id)
    found: Stored = {}
    for steps, series_ids in by_steps.items():
        for ids in chunks(series_ids):
            for part in chunks(steps):
                query = select(MetricPoint.series_id, MetricPoint.step, MetricPoint.value, MetricPoint.flag).where(
                    MetricPoint.series_id.in_(ids), MetricPoint.step.in_(part)
                )
                found.update(((row.series_id, row.step), (row.value, row.flag)) for row in s.execute(query))
    return found


_POINTS: Table = MetricPoint.__table__
_STRUCTURED: Table = StructuredValue.__table__


@dataclass
class _Merge:
    """The effect on a series of points between stored ones, or that replace them."""

    changed: bool = False
    """Whether a stored value is replaced by another."""
    touched_from: int | None = None
    """The least step at or before the end of the rollups that is new or changes."""


def _fold_among(series: SeriesLine, column: Column, stored: Stored) -> _Merge:
    """Fold points that may lie among or upon stored ones, before they are written."""
    merge = _Merge()
    rolled = -1 if series.rolled_step is None else series.rolled_step
    fresh: list[tuple[int, float]] = []
    for step, number in zip(column.steps, column.values, strict=True):
        before = stored.get((series.id, step))
        if before is None:
            fresh.append((step, number))
            series.unrolled += step > rolled
        elif before != values.split(number):
            merge.changed = True
        else:
            continue
        if step <= rolled and merge.touched_from is None:
            merge.touched_from = step
    values.fold(series, fresh)
    return merge


def recompute(s: Session, rows: Sequence[SeriesLine]) -> None:
    """Recompute summaries from the points; a series without points is removed."""
    empty = summarise(s, rows)
    for part in chunks(empty):
        ids = [row.id for row in part]
        s.execute(delete(Rollup).where(Rollup.series_id.in_(ids)))
        s.execute(delete(MetricSeries).where(MetricSeries.id.in_(ids)))
    gone = set(map(id, empty))
    series_rows.save(s, [row for row in rows if id(row) not in gone])


def summarise(s: Session, rows: Sequence[SeriesLine]) -> list[SeriesLine]:
    """Recompute summaries from the points; return the series that have none, as they were. The caller saves."""
    empty: list[SeriesLine] = []
    for part in chunks(rows):
        ids = [row.id for row in part]
        found = {row.series_id: row for row in s.execute(_statistics(ids))}
        newest = {row.series_id: row for row in s.execute(_newest(ids))}
        for series in part:
            if series.id in found:
                _set_summary(s, series, found[series.id], newest[series.id])
            else:
                empty.append(series)
    return empty


def _statistics(series_ids: Sequence[int]) -> Any:
    """Count and sum the points of each series."""
    big = func.abs(MetricPoint.value) > _BIG

    def count(flag: int) -> Any:
        return func.sum(case((MetricPoint.flag == flag, 1), else_=0))

    return (
        select(
            MetricPoint.series_id,
            func.count().label("total"),
            count(values.NAN).label("nan"),
            count(values.POSINF).label("posinf"),
            count(values.NEGINF).label("neginf"),
            func.min(MetricPoint.value).label("least"),
            func.max(MetricPoint.value).label("greatest"),
            # PostgreSQL refuses a sum that overflows, so huge values are summed apart and scaled down.
            func.coalesce(func.sum(case((big, 0.0), else_=MetricPoint.value)), 0.0).label("small_sum"),
            func.coalesce(func.sum(case((big, MetricPoint.value * _SCALE), else_=0.0)), 0.0).label("big_sum"),
        )
        .where(MetricPoint.series_id.in_(series_ids))
        .group_by(MetricPoint.series_id)
    )


def _newest(series_ids: Sequence[int]) -> Any:
    """Select the point at the greatest step of each series."""
    last = (
        select(MetricPoint.series_id, func.max(MetricPoint.step).label("step"))
        .where(MetricPoint.series_id.in_(series_ids))
        .group_by(MetricPoint.series_id)
        .subquery()
    )
    return select(MetricPoint.series_id, MetricPoint.step, MetricPoint.value, MetricPoint.flag).join(
        last, (last.c.series_id == MetricPoint.series_id) & (last.c.step == MetricPoint.step)
    )


def _set_summary(s: Session, series: SeriesLine, found: Any, newest: Any) -> None:
    series.count, series.nan_count = int(found.total), int(found.nan)
    series.posinf_count, series.neginf_count = int(found.posinf), int(found.neginf)
    series.finite_sum = float(found.small_sum) + float(found.big_sum) / _SCALE
    numbers = [value for value in (found.least, found.greatest) if value is not None]
    numbers += [math.inf] * bool(series.posinf_count) + [-math.inf] * bool(series.neginf_count)
    series.min = min(numbers, default=None)
    series.max = max(numbers, default=None)
    values.set_last(series, newest.step, values.join(newest.value, newest.flag))
    series.unrolled = series.count if series.rolled_step is None else rollups.count_unrolled(s, series)


# --- structured ---------------------------------------------------------------------------------------------


def _insert_structured(s: Session, trial_id: int, run: int, structured: Structured, ids: dict[str, int]) -> None:
    rows = [
        {
            "trial_id": trial_id,
            "group_name": group,
            "name_id": ids[name],
            "step": step,
            "run": run,
            "time": time,
            "value": value,
        }
        for (group, name), steps in structured.items()
        for step, (value, time) in steps.items()
    ]
    if rows:
        key = ("trial_id", "group_name", "name_id", "step")
        s.connection().execute(upsert(s, _STRUCTURED, key, ("run", "time", "value")), rows)
