"""Metrics of tracked runs: appended, with the newest point of each beside them, and read in their order."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Select, Table, func, select, tuple_
from sqlalchemy.orm import Session

from detlab_hub.store.queries.metrics.lookup import name_ids
from detlab_hub.store.queries.statements import chunks, insert_or_ignore
from detlab_hub.store.tables import (
    MetricName,
    MetricPoint,
    MetricSeries,
    TrackedPoint,
    TrackedSeries,
    clean_text,
)
from detlab_hub.store.values import join, split

_POINTS: Table = TrackedPoint.__table__


@dataclass(frozen=True)
class LoggedPoint:
    """One value of a metric; `time_ms` in milliseconds since the epoch."""

    key: str
    value: float
    time_ms: int
    step: int = 0


def append(s: Session, run_id: str, points: Sequence[LoggedPoint]) -> None:
    """Store points of a run; one that is there already, as after a repeated request, stays as it is."""
    by_key: dict[str, list[tuple[int, int, int, float]]] = {}
    for point in points:
        value, flag = split(point.value)
        by_key.setdefault(clean_text(point.key), []).append((point.step, point.time_ms, flag, value or 0.0))
    ids = name_ids(s, by_key)
    known = _series(s, run_id, [ids[key] for key in by_key])
    fresh = [TrackedSeries(run_id=run_id, name_id=ids[key]) for key in by_key if ids[key] not in known]
    s.add_all(fresh)
    s.flush()
    new = {row.name_id for row in fresh}
    known.update((row.name_id, row) for row in fresh)
    rows = []
    for key, those in by_key.items():
        series = known[ids[key]]
        _keep_newest(series, max(those, key=_order), series.name_id in new)
        rows += [
            {"series_id": series.id, "step": step, "time_ms": ms, "flag": flag, "value": value}
            for step, ms, flag, value in those
        ]
    s.connection().execute(insert_or_ignore(s, _POINTS), rows)


def _series(s: Session, run_id: str, name_ids: Sequence[int]) -> dict[int, TrackedSeries]:
    found: dict[int, TrackedSeries] = {}
    for part in chunks(list(name_ids)):
        query = select(TrackedSeries).where(TrackedSeries.run_id == run_id, TrackedSeries.name_id.in_(part))
        found.update((row.name_id, row) for row in s.scalars(query))
    return found


def _order(point: tuple[int, int, int, float]) -> tuple[int, int, float]:
    step, ms, flag, value = point
    number = join(value, flag)
    return step, ms, -math.inf if math.isnan(number) else number  # NaN is before all numbers


def _keep_newest(series: TrackedSeries, point: tuple[int, int, int, float], new: bool) -> None:
    last = series.last_step, series.last_ms, series.last_flag, series.last or 0.0
    if new or _order(point) >= _order(last):
        series.last_step, series.last_ms, series.last_flag, series.last = point


def count(s: Session, run_id: str) -> int:
    """Return how many metrics a run has."""
    return s.scalar(select(func.count()).select_from(TrackedSeries).where(TrackedSeries.run_id == run_id)) or 0


def known_names(s: Session, run_id: str, names: Iterable[str]) -> set[str]:
    """Return those of some names by which a run has a metric."""
    found: set[str] = set()
    for part in chunks(sorted({clean_text(name) for name in names})):
        query = select(MetricName.name).join(TrackedSeries, TrackedSeries.name_id == MetricName.id)
        found.update(s.scalars(query.where(TrackedSeries.run_id == run_id, MetricName.name.in_(part))))
    return found


def newest(s: Session, run_ids: Collection[str]) -> dict[str, list[LoggedPoint]]:
    """Return the newest point of each metric of some runs, by name."""
    found: dict[str, list[LoggedPoint]] = {}
    for part in chunks(sorted(run_ids)):
        query = (
            select(
                TrackedSeries.run_id,
                MetricName.name,
                TrackedSeries.last,
                TrackedSeries.last_flag,
                TrackedSeries.last_ms,
                TrackedSeries.last_step,
            )
            .join(MetricName, MetricName.id == TrackedSeries.name_id)
            .where(TrackedSeries.run_id.in_(part))
            .order_by(MetricName.name)
        )
        for run_id, name, value, flag, ms, step in s.execute(query):
            found.setdefault(run_id, []).append(LoggedPoint(name, join(value, flag), ms, step))
    return found


Position = tuple[int, int, int, float]
"""Of a point in its series: step, milliseconds, flag, value."""


def history(s: Session, run_id: str, key: str, after: Position | None, limit: int) -> list[LoggedPoint]:
    """Return points of a metric in their order, and one more than `limit` if there are more."""
    table = TrackedPoint
    columns = (table.step, table.time_ms, table.flag, table.value)
    query = (
        select(*columns)
        .join(TrackedSeries, TrackedSeries.id == table.series_id)
        .join(MetricName, MetricName.id == TrackedSeries.name_id)
        .where(TrackedSeries.run_id == run_id, MetricName.name == clean_text(key))
        .order_by(*columns)
        .limit(limit + 1)
    )
    if after is not None:
        query = query.where(tuple_(*columns) > after)
    return [LoggedPoint(key, join(value, flag), ms, step) for step, ms, flag, value in s.execute(query)]


@dataclass(frozen=True)
class StoredCurve:
    """A metric of a run: its points in their order, or each nth of very many, and how many there are."""

    key: str
    total: int
    points: Sequence[LoggedPoint]


def metrics_from(s: Session, run_id: str, names: Sequence[str] | None, skip: int, limit: int) -> list[tuple[int, str]]:
    """Return the series and names of a run's metrics after so many, by name."""
    query = (
        select(TrackedSeries.id, MetricName.name)
        .join(MetricName, MetricName.id == TrackedSeries.name_id)
        .where(TrackedSeries.run_id == run_id)
    )
    if names is not None:
        query = query.where(MetricName.name.in_([clean_text(name) for name in names]))
    rows = s.execute(query.order_by(MetricName.name).offset(skip).limit(limit))
    return [(series, name) for series, name in rows]


def curve(s: Session, series: int, key: str, most: int) -> StoredCurve:
    """Return the points of a series; of more than `most` each nth, and the first and the last."""
    table = TrackedPoint
    total = s.scalar(select(func.count()).select_from(table).where(table.series_id == series)) or 0
    columns = (table.step, table.time_ms, table.flag, table.value)
    query = select(*columns).where(table.series_id == series).order_by(*columns)
    if total > most:
        place = func.row_number().over(order_by=columns).label("place")
        placed = select(*columns, place).where(table.series_id == series).subquery()
        kept = (placed.c.place % -(-total // most) == 1) | (placed.c.place == total)
        query = select(placed.c.step, placed.c.time_ms, placed.c.flag, placed.c.value).where(kept)
        query = query.order_by(placed.c.place)
    rows = s.connection().execute(query)
    return StoredCurve(key, total, [LoggedPoint(key, join(value, flag), ms, step) for step, ms, flag, value in rows])


# --- metrics of trials


def steps_of(s: Session, trial_id: int, group: str, name: str, steps: Collection[int]) -> dict[int, tuple[int, str]]:
    """Return step -> (milliseconds, value) for those of some steps at which a trial has reported a metric."""
    found: dict[int, tuple[int, str]] = {}
    series = _of_trial(trial_id, group, name)
    for part in chunks(sorted(set(steps))):
        query = select(MetricPoint.step, MetricPoint.time, MetricPoint.value, MetricPoint.flag)
        query = query.where(MetricPoint.series_id.in_(series), MetricPoint.step.in_(part))
        for step, time, value, flag in s.execute(query):
            found[step] = round(time * 1000), repr(join(value, flag))
    return found


def newest_step(s: Session, trial_id: int, group: str, name: str) -> int | None:
    """Return the greatest step at which a trial has reported a metric."""
    return s.scalar(select(MetricSeries.last_step).where(MetricSeries.id.in_(_of_trial(trial_id, group, name))))


def newest_of_trials(s: Session, trial_ids: Collection[int]) -> dict[int, list[tuple[str, LoggedPoint]]]:
    """Return (group, newest point) of each metric of some trials, by group and name."""
    found: dict[int, list[tuple[str, LoggedPoint]]] = {}
    for part in chunks(sorted(trial_ids)):
        query = (
            select(
                MetricSeries.trial_id,
                MetricSeries.group_name,
                MetricName.name,
                MetricSeries.last,
                MetricSeries.last_flag,
                MetricSeries.last_step,
                MetricPoint.time,
            )
            .join(MetricName, MetricName.id == MetricSeries.name_id)
            .join(
                MetricPoint, (MetricPoint.series_id == MetricSeries.id) & (MetricPoint.step == MetricSeries.last_step)
            )
            .where(MetricSeries.trial_id.in_(part))
            .order_by(MetricSeries.group_name, MetricName.name)
        )
        for trial_id, group, name, value, flag, step, time in s.execute(query):
            point = LoggedPoint(name, join(value, flag), round(time * 1000), step or 0)
            found.setdefault(trial_id, []).append((group, point))
    return found


def history_of_trial(
    s: Session, trial_id: int, group: str, name: str, after: int | None, limit: int
) -> list[LoggedPoint]:
    """Return points of a trial's metric in their order, and one more than `limit` if there are more."""
    query = select(MetricPoint.step, MetricPoint.value, MetricPoint.flag, MetricPoint.time)
    query = query.where(MetricPoint.series_id.in_(_of_trial(trial_id, group, name))).order_by(MetricPoint.step)
    if after is not None:
        query = query.where(MetricPoint.step > after)
    rows = s.execute(query.limit(limit + 1))
    return [LoggedPoint(name, join(value, flag), round(time * 1000), step) for step, value, flag, time in rows]


def _of_trial(trial_id: int, group: str, name: str) -> Select[int]:
    query = select(MetricSeries.id).join(MetricName, MetricName.id == MetricSeries.name_id)
    return query.where(
        MetricSeries.trial_id == trial_id,
        MetricSeries.group_name == clean_text(group),
        MetricName.name == clean_text(name),
    )
