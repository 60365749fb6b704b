"""Rollups: the extremes of every `CHUNK` consecutive points of a long series.

A curve of ten million points would take seconds to read whole. Appending keeps, for every 128 points, one row with the
first, least, greatest and first NaN point, so such a curve reads 78,000 rows instead. Rollups follow the points:
if a stored point changes, the rollups from there on are cut off and made again with the next append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import driver_of, fetch
from detlab_hub.store.queries.appending import PointRow, append_rows
from detlab_hub.store.queries.metrics.newest import NewestPoints, newest_points
from detlab_hub.store.queries.metrics.series_rows import SeriesLine
from detlab_hub.store.tables import MetricPoint, Rollup
from detlab_hub.store.tables.base import encode_bulk
from detlab_hub.store.values import NAN, join

CHUNK = 128
BATCH = 64
"""Most rollups made per call: a write stays short even after a cut at the start of a long series."""

Row = tuple[int, float | None, int, float]
"""step, value, flag, time"""
_step = itemgetter(1)
_row: Callable[[PointRow], Row] = itemgetter(1, 3, 4, 5)


_COLUMNS = ("series_id", "first_step", "last_step", "count", "kept")
_TAIL = (
    "SELECT series_id, step, run, value, flag, time FROM points WHERE series_id = ? AND step > ? ORDER BY step LIMIT ?"
)
_TAILS = (
    "SELECT tail.* FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS wanted (id, beyond, most), LATERAL ("
    "SELECT series_id, step, run, value, flag, time FROM points WHERE series_id = wanted.id AND step > wanted.beyond"
    " ORDER BY step LIMIT wanted.most) AS tail"
)


def is_due(series: SeriesLine) -> bool:
    """Whether `roll` would make rollups of a series."""
    return series.unrolled >= 2 * CHUNK


def roll(s: Session, touched: Iterable[SeriesLine]) -> None:
    """Make rollups of appended points. The newest `CHUNK` points stay out: points may still be merged into them.

    Changes the series, which the caller saves.
    """
    ready = [(series, min((series.unrolled - CHUNK) // CHUNK, BATCH)) for series in touched]
    wanted = [(series, count * CHUNK) for series, count in ready if count >= 1]
    if not wanted:
        return
    newest = newest_points(s)
    made: list[tuple[Any, ...]] = []
    for series, rows in _tails(s, newest, wanted):
        whole = len(rows) // CHUNK * CHUNK
        for begin in range(0, whole, CHUNK):
            part = [_row(row) for row in rows[begin : begin + CHUNK]]
            made.append((series.id, part[0][0], part[-1][0], CHUNK, encode_bulk(extremes(part))))
        if whole:
            series.rolled_step = rows[whole - 1][1]
            series.unrolled -= whole
            newest.rolled(series, whole)
    append_rows(s, "rollups", _COLUMNS, made)


def _tails(
    s: Session, newest: NewestPoints, wanted: Sequence[tuple[SeriesLine, int]]
) -> Iterator[tuple[SeriesLine, Sequence[PointRow]]]:
    """Yield the first points beyond each series' rollups, up to its number; usually those that are remembered."""
    unknown: list[tuple[SeriesLine, int]] = []
    for series, most in wanted:
        rows = newest.of(series)
        if rows is None:
            unknown.append((series, most))
        else:
            yield series, rows[:most]
    if not unknown:
        return
    for (series, most), rows in zip(unknown, _read(s, unknown), strict=True):
        first = rows[:most]
        if len(rows) == series.unrolled:
            newest.read(series, rows)
        yield series, first


def _read(s: Session, wanted: Sequence[tuple[SeriesLine, int]]) -> list[list[PointRow]]:
    """Read these points; if only few more follow, read all of them, so that they are cached from here on."""
    asked = [
        (series.id, _rolled(series), series.unrolled if series.unrolled < most + 2 * CHUNK else most)
        for series, most in wanted
    ]
    # As the driver gives them: what Core makes of thousands of rows takes longer than all else of a report.
    if driver_of(s)[0].dialect.name == "sqlite":
        return [cast("list[PointRow]", fetch(s, _TAIL, one)) for one in asked]
    # A question and an answer cost more than what is in them: one for all.
    found: dict[int, list[PointRow]] = {series.id: [] for series, _ in wanted}
    for row in fetch(s, _TAILS, tuple(map(list, zip(*asked, strict=True)))):
        found[row[0]].append(cast("PointRow", row))
    for rows in found.values():
        rows.sort(key=_step)
    return list(found.values())


def extremes(part: Sequence[Row]) -> list[list[Any]]:
    """Return the first, least, greatest and first NaN point of `part`, in step order, each once."""
    values = [row[1] for row in part]
    if None in values:
        kept = _extremes_of_any(part)
    else:
        numbers = cast("list[float]", values)  # mypy does not see that None is not among them
        kept = {0, numbers.index(min(numbers)), numbers.index(max(numbers))}
    return [list(part[index]) for index in sorted(kept)]


def _extremes_of_any(part: Sequence[Row]) -> set[int]:
    kept = {0}
    numbers = [index for index, row in enumerate(part) if row[2] != NAN]
    if numbers:
        kept.add(min(numbers, key=lambda index: join(part[index][1], part[index][2])))
        kept.add(max(numbers, key=lambda index: join(part[index][1], part[index][2])))
    if len(numbers) < len(part):
        kept.add(next(index for index, row in enumerate(part) if row[2] == NAN))
    return kept


def cut(s: Session, series: SeriesLine, beyond_step: int) -> None:
    """Drop the rollups that reach beyond a step, because points there change. The caller saves the series."""
    if series.rolled_step is None or series.rolled_step <= beyond_step:
        return
    s.execute(delete(Rollup).where(Rollup.series_id == series.id, Rollup.last_step > beyond_step))
    series.rolled_step = s.scalar(select(func.max(Rollup.last_step)).where(Rollup.series_id == series.id))
    series.unrolled = count_unrolled(s, series)


def count_unrolled(s: Session, series: SeriesLine) -> int:
    """Count the stored points beyond the rollups."""
    query = select(func.count()).where(MetricPoint.series_id == series.id, MetricPoint.step > _rolled(series))
    return int(s.scalar(query) or 0)


def _rolled(series: SeriesLine) -> int:
    return -1 if series.rolled_step is None else series.rolled_step
