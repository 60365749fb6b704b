"""Rollups: the extremes of every `CHUNK` consecutive points of a long series.

A curve of ten million points would take seconds to read whole. Appending keeps, for every 128 points, one row with the
first, least, greatest and first NaN point, so such a curve reads 78,000 rows instead. Rollups follow the points:
where a stored point changes, those from there on are cut off and made again with the next append.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from sqlalchemy import bindparam, delete, func, insert, select
from sqlalchemy.orm import Session

from detlab_hub.store.tables import Point, Rollup, Series
from detlab_hub.store.values import NAN, join

CHUNK = 128
BATCH = 64
"""Most rollups made per call: a write stays short even after a cut at the start of a long series."""

Row = tuple[int, float | None, int, float]
"""step, value, flag, time"""


_TAIL = (
    select(Point.step, Point.value, Point.flag, Point.time)
    .where(Point.series_id == bindparam("series"), Point.step > bindparam("beyond"))
    .order_by(Point.step)
    .limit(bindparam("most"))
)
_APPEND = insert(Rollup.__table__)


def roll(s: Session, touched: Iterable[Series]) -> None:
    """Make rollups of what was appended. The newest `CHUNK` points stay out: they may still be merged into.

    Flushes what else waits to be written only through the changes that it makes to the series themselves.
    """
    made: list[dict[str, Any]] = []
    connection = s.connection()
    for series in touched:
        ready = min((series.unrolled - CHUNK) // CHUNK, BATCH)
        if ready < 1:
            continue
        asked = {"series": series.id, "beyond": _rolled(series), "most": ready * CHUNK}
        rows: Sequence[Any] = connection.execute(_TAIL, asked).all()
        whole = len(rows) // CHUNK * CHUNK
        for begin in range(0, whole, CHUNK):
            part = rows[begin : begin + CHUNK]
            rollup = {"series_id": series.id, "first_step": part[0][0], "last_step": part[-1][0], "count": CHUNK}
            made.append({**rollup, "kept": extremes(part)})
        if whole:
            series.rolled_step = rows[whole - 1][0]
            series.unrolled -= whole
    if made:
        connection.execute(_APPEND, made)


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


def cut(s: Session, series: Series, beyond_step: int) -> None:
    """Forget the rollups that reach beyond a step, because points there change. Flushes nothing by itself."""
    if series.rolled_step is None or series.rolled_step <= beyond_step:
        return
    s.execute(delete(Rollup).where(Rollup.series_id == series.id, Rollup.last_step > beyond_step))
    series.rolled_step = s.scalar(select(func.max(Rollup.last_step)).where(Rollup.series_id == series.id))
    series.unrolled = count_unrolled(s, series)


def count_unrolled(s: Session, series: Series) -> int:
    """Count the stored points beyond the rollups."""
    query = select(func.count()).where(Point.series_id == series.id, Point.step > _rolled(series))
    return int(s.scalar(query) or 0)


def _rolled(series: Series) -> int:
    return -1 if series.rolled_step is None else series.rolled_step
