"""The newest points of series that are being written, remembered from one transaction to the next.

Rollups are made from points that were written a moment before; reading them back took a tenth of a large report's time.
The cached points are used only if the row of the series, which each transaction reads, shows that nothing else has
happened to it since: its count, its last step, and where its rollups end. So leftovers of a transaction that was rolled
back, another series with the same number, and removed points are detected, and the points are read. A change of a
stored point's value leaves that row as it is; code that changes one calls `forget`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from detlab_hub.store.prepared import driver_of
from detlab_hub.store.queries.appending import PointRow
from detlab_hub.store.queries.metrics.series_rows import SeriesLine

MOST = 100_000
"""Most cached points of all series together: about 20 MB."""
_EACH = 4
"""The overhead of a cached series, in points."""
_KEY = "detlab_hub.store.queries.metrics.newest"


@dataclass(slots=True)
class _Tail:
    """All points of a series beyond its rollups.

    Attributes:
        count: Of the series, when these were all.
        last_step: Of the series then.
        rolled_step: Of the series then.
        rows: The points, in step order.
    """

    count: int
    last_step: int | None
    rolled_step: int | None
    rows: list[PointRow]


@dataclass
class NewestPoints:
    """A cache of the series of one database connection. Used by its thread only."""

    most: int = MOST
    _tails: OrderedDict[int, _Tail] = field(default_factory=OrderedDict)
    _size: int = 0

    def appended(self, before: tuple[int, int | None], series: SeriesLine, rows: Sequence[PointRow]) -> None:
        """Note points that were appended to a series.

        Args:
            before: The series' count and last step before them.
            series: The series, with the new points.
            rows: The new points.
        """
        tail = self._tails.get(series.id)
        if before[0] == 0:
            self.forget(series.id)
            self._keep(series, list(rows))
        elif tail is not None and (tail.count, tail.last_step, tail.rolled_step) == (*before, series.rolled_step):
            tail.rows += rows
            tail.count, tail.last_step = series.count, series.last_step
            self._tails.move_to_end(series.id)
            self._size += len(rows)
            self._make_room()
        else:
            self.forget(series.id)

    def read(self, series: SeriesLine, rows: list[PointRow]) -> None:
        """Note all points of a series beyond its rollups, as the database has them."""
        self.forget(series.id)
        self._keep(series, rows)

    def of(self, series: SeriesLine) -> Sequence[PointRow] | None:
        """Return all points of a series beyond its rollups; None if they must be read."""
        tail = self._tails.get(series.id)
        if tail is None or (tail.count, tail.last_step, tail.rolled_step) != (
            series.count,
            series.last_step,
            series.rolled_step,
        ):
            return None
        return tail.rows

    def rolled(self, series: SeriesLine, count: int) -> None:
        """Note that rollups were made from the first `count` of its points."""
        tail = self._tails.get(series.id)
        if tail is not None:
            del tail.rows[:count]
            tail.rolled_step = series.rolled_step
            self._size -= count

    def forget(self, series_id: int) -> None:
        """Drop a series from the cache."""
        tail = self._tails.pop(series_id, None)
        if tail is not None:
            self._size -= len(tail.rows) + _EACH

    def _keep(self, series: SeriesLine, rows: list[PointRow]) -> None:
        self._tails[series.id] = _Tail(series.count, series.last_step, series.rolled_step, rows)
        self._size += len(rows) + _EACH
        self._make_room()

    def _make_room(self) -> None:
        while self._size > self.most and self._tails:
            _, tail = self._tails.popitem(last=False)
            self._size -= len(tail.rows) + _EACH


def newest_points(s: Session) -> NewestPoints:
    """Return the cache of the session's connection to its database."""
    info = driver_of(s)[0].info
    found = info.get(_KEY)
    if not isinstance(found, NewestPoints):
        found = info[_KEY] = NewestPoints()
    return found
