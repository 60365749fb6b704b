"""Rollups: the extremes of every `CHUNK` consecutive points of a long series.

A curve of ten million points would take seconds to read whole. Appending keeps, for every 128 points, one row with the
first, least, greatest and first NaN point, so such a curve reads 78,000 rows instead. Rollups follow the points:
where a stored point changes, those from there on are cut off and made again with the next append.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import driver_of, fetch
from detlab_hub.store.queries.appending import append_rows
from detlab_hub.store.queries.serieslines import SeriesLine
from detlab_hub.store.tables import Point, Rollup
from detlab_hub.store.tables.base import encode_bulk
from detlab_hub.store.values import NAN, join

CHUNK = 128
BATCH = 64
"""Most rollups made per call: a write stays short even after a cut at the start of a long series."""

Row = tuple[int, float | None, int, float]
"""step, value, flag, time"""
_step = itemgetter(0)


_COLUMNS = ("series_id", "first_step", "last_step", "count", "kept")
_TAIL = "SELECT step, value, flag, time FROM points WHERE series_id = ? AND step > ? ORDER BY step LIMIT ?"
_TAILS = (
    "SELECT tail.* FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS wanted (id, beyond, most), LATERAL ("
    "SELECT series_id, step, value, flag, time FROM points WHERE series_id = wanted.id AND step > wanted.beyond"
    " ORDER BY step LIMIT wanted.most) AS tail"
)


def roll(s: Session, touched: Iterable[SeriesLine]) -> None:
    """Make rollups of what was appended. The newest `CHUNK` points stay out: they may still be merged into.

    Changes the series, which the caller saves.
    """
    ready = [(series, min((series.unrolled - CHUNK) // CHUNK, BATCH)) for series in touched]
    wanted = [(series, count * CHUNK) for series, count in ready if count >= 1]
    if not wanted:
        return
    made: list[tuple[Any, ...]] = []
    for (series, _), rows in zip(wanted, _tails(s, wanted), strict=True):
        whole = len(rows) // CHUNK * CHUNK
        for begin in range(0, whole, CHUNK):
            part = rows[begin : begin + CHUNK]
            made.append((series.id, part[0][0], part[-1][0], CHUNK, encode_bulk(extremes(part))))
        if whole:
            series.rolled_step = rows[whole - 1][0]
            series.unrolled -= whole
    append_rows(s, "rollups", _COLUMNS, made)


def _tails(s: Session, wanted: Sequence[tuple[SeriesLine, int]]) -> list[Sequence[Row]]:
    """Read the first so many points beyond the rollups of each series."""
    asked = [(series.id, _rolled(series), most) for series, most in wanted]
    # As the driver gives them: what Core makes of thousands of rows takes longer than all else of a report.
    if driver_of(s)[0].dialect.name == "sqlite":
        return [cast("Sequence[Row]", fetch(s, _TAIL, one)) for one in asked]
    # A question and an answer cost more than what is in them: one for all.
    found: dict[int, list[Row]] = {series.id: [] for series, _ in wanted}
    for row in fetch(s, _TAILS, tuple(map(list, zip(*asked, strict=True)))):
        found[row[0]].append(cast("Row", row[1:]))
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
    """Forget the rollups that reach beyond a step, because points there change. The caller saves the series."""
    if series.rolled_step is None or series.rolled_step <= beyond_step:
        return
    s.execute(delete(Rollup).where(Rollup.series_id == series.id, Rollup.last_step > beyond_step))
    series.rolled_step = s.scalar(select(func.max(Rollup.last_step)).where(Rollup.series_id == series.id))
    series.unrolled = count_unrolled(s, series)


def count_unrolled(s: Session, series: SeriesLine) -> int:
    """Count the stored points beyond the rollups."""
    query = select(func.count()).where(Point.series_id == series.id, Point.step > _rolled(series))
    return int(s.scalar(query) or 0)


def _rolled(series: SeriesLine) -> int:
    return -1 if series.rolled_step is None else series.rolled_step
