"""A line with a band: the mean of several curves, and one standard deviation around it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import stdev
from typing import Any

from detlab.schemas.wire import SeriesView
from detlab.viz.drawing import line_mode, safe


def banded(
    lines: Sequence[SeriesView],
    name: str,
    colour: str,
    x: str,
    *,
    width: float = 2.0,
    key: str | None = None,
    log: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the arguments of scatters: one line of one curve, of several the mean with its band; nothing of none.

    A mean is drawn where at least two of the curves have a finite value.

    Args:
        lines: Curves of one metric.
        name: Of the line in the legend.
        colour: Of line and band.
        x: `time` since the first report of each curve, or anything else for steps.
        width: Of the line.
        key: The group of the legend; default the name.
        log: Whether the axis of values is logarithmic.
    """
    if not lines:
        return
    steps, values, spread = _mean_line(lines, x)
    shared = {"x": steps, "legendgroup": key or name}
    drawn = {**line_mode(values, log=log), "line": {"color": colour, "width": width}}
    yield {**shared, "y": values, "name": safe(name), **drawn}
    if spread is None:
        return
    low = [value - one for value, one in zip(values, spread, strict=True)]
    high = [value + one for value, one in zip(values, spread, strict=True)]
    thin = {"color": colour, "width": 0.5, "dash": "dot"}
    for y, fill in ((low, None), (high, "tonexty")):
        band = {"y": y, "fill": fill, "opacity": 0.4, "line": thin, "mode": "lines"}
        yield {**shared, **band, "hoverinfo": "skip", "showlegend": False}


def _mean_line(lines: Sequence[SeriesView], x: str) -> tuple[list[float], list[float], list[float] | None]:
    """Return x, mean and standard deviation at the places that two lines have, or the one line as it is."""
    if len(lines) == 1:
        return _places(lines[0], x), lines[0].values, None
    at: dict[float, list[float]] = {}
    for line in lines:
        # times of two trials are never the same: those of their shared steps are means
        for step, value in zip(line.steps, line.values, strict=False):
            at.setdefault(step, []).append(value)
    kept = sorted(step for step, values in at.items() if sum(map(math.isfinite, values)) > 1)
    known = [[value for value in at[step] if math.isfinite(value)] for step in kept]
    means, spread = [sum(values) / len(values) for values in known], [stdev(values) for values in known]
    if x != "time":
        return list(map(float, kept)), means, spread
    times = [dict(zip(line.steps, _places(line, x), strict=False)) for line in lines]
    places = [[one[step] for one in times if step in one] for step in map(int, kept)]
    return [sum(found) / len(found) for found in places], means, spread


def _places(line: SeriesView, x: str) -> list[float]:
    if x != "time":
        return list(map(float, line.steps))
    return [time - line.times[0] for time in line.times]
