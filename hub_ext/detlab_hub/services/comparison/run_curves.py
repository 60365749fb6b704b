"""The curves of runs from anywhere, under the groups and names by which trials have theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sqlalchemy.orm import Session

from detlab.schemas.wire import SeriesView
from detlab.schemas.wire.comparison import ComparedSeries
from detlab.schemas.wire.logged_names import keys_of
from detlab_hub.services.comparison.sides import placed
from detlab_hub.services.tracking.run_views import READ_POINTS, thinned
from detlab_hub.store.queries.tracking import points

_MOST_CURVES = 1000
"""Of one run: it can have no more metrics."""
_POINT_BYTES, _CURVE_BYTES = 64, 400


def curves_of_runs(
    s: Session,
    run_ids: Sequence[str],
    searched: Collection[str],
    group: str | None,
    names: Sequence[str] | None,
    most_points: int,
    skip: int,
    most_bytes: int,
) -> tuple[list[SeriesView], int | None]:
    """Return as many curves as fit, and where the next part begins.

    Args:
        s: A session.
        run_ids: Runs that the caller may read.
        searched: The metrics of the searches beside them.
        group: One group, or None for all.
        names: Some names, or None for all.
        most_points: Most points per curve.
        skip: Curves of the parts before; below zero: none.
        most_bytes: Of the part as JSON, about; none: say only whether there are any.
    """
    wanted = list(_wanted(s, run_ids, searched, group, names))
    begin = max(skip, 0)
    if not most_bytes:
        return [], 0 if wanted else None
    fitting = max(1, most_bytes // (_POINT_BYTES * most_points + _CURVE_BYTES))
    shown = wanted[begin : begin + fitting]
    following = begin + len(shown)
    return [_curve(s, one, most_points) for one in shown], following if following < len(wanted) else None


_Wanted = tuple[str, int, str, str, str]
"""Run, series, key, group, name."""


def _wanted(
    s: Session, run_ids: Sequence[str], searched: Collection[str], group: str | None, names: Sequence[str] | None
) -> Iterator[_Wanted]:
    """Yield the series of runs that are asked for; of two that would have one name, the first."""
    keys = None if names is None else [key for name in names for key in keys_of(name)]
    for run_id in run_ids:
        seen = set()
        for series, key in points.metrics_from(s, run_id, keys, 0, _MOST_CURVES):
            place = placed(key, searched)
            fits = (group is None or place[0] == group) and (names is None or place[1] in names)
            if fits and place not in seen:
                seen.add(place)
                yield run_id, series, key, *place


def _curve(s: Session, wanted: _Wanted, most: int) -> ComparedSeries:
    run_id, series, key, group, name = wanted
    found = thinned(points.curve(s, series, key, max(READ_POINTS, most)), most)
    return ComparedSeries(
        trial_id=0,
        run_id=run_id,
        group=group,
        name=name,
        steps=found.steps,
        values=found.values,
        times=found.times,
        total=found.total,
    )
