"""Figures of one trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from detlab.schemas.wire import SeriesView
from detlab.viz.drawing import COLOURS, axis_type, empty, line_mode, plotly_module, safe

MOST_METRICS = 24
"""Panels of one figure; name metrics to see others."""
MOST_MARKS = 50
"""Most restarts that are drawn: the last ones by step."""
_COLUMNS = 2


class FigureReport(Protocol):
    """What a figure needs of `detlab.client.TrialMetrics`."""

    group: str
    steps_completed: int
    metrics: dict[str, float]


class TrialLike(Protocol):
    """What a figure needs of `detlab.client.Trial`."""

    @property
    def id(self) -> int:
        """Number of the trial."""

    def iter_metrics(self) -> Iterator[FigureReport]:
        """Yield its reports in order of step."""


Points = dict[str, dict[str, list[tuple[int, float]]]]
"""Metric -> group -> (step, value) in order of step."""


def trial_metrics(
    source: TrialLike | Iterable[SeriesView],
    *,
    names: Sequence[str] | None = None,
    log_y: bool = False,
    restarts: Sequence[int] | None = None,
) -> Any:
    """Draw the metrics of one trial over its steps: a panel per metric, a line per group.

    Args:
        source: A trial of the blocking client, or curves as `CurvesView.curves` has them.
        names: Which metrics, in this order; default all, by name.
        log_y: Whether the metrics' axes are logarithmic.
        restarts: Steps from which later attempts went on, drawn as dotted lines; default those that the trial knows.

    Returns:
        A `plotly.graph_objects.Figure`.

    Raises:
        DetlabError: plotly is not installed.
    """
    title, points = _points_of(source)
    wanted = [name for name in (names or sorted(points)) if name in points]
    if not wanted:
        missing = f" of {', '.join(safe(name) for name in names)}" if names and points else ""
        return empty(title, f"No reports{missing} yet.")
    shown = wanted[:MOST_METRICS]
    columns = min(_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = plotly_module("subplots").make_subplots(rows, columns, subplot_titles=[safe(name) for name in shown])
    groups = sorted({group for name in shown for group in points[name]})
    labelled: set[str] = set()
    for at, name in enumerate(shown):
        cell = {"row": at // columns + 1, "col": at % columns + 1}
        for group, curve in points[name].items():
            figure.add_scatter(
                x=[step for step, _ in curve],
                y=[value for _, value in curve],
                name=safe(group),
                legendgroup=str(groups.index(group)),
                showlegend=group not in labelled,
                **line_mode([value for _, value in curve], log=log_y),
                line={"color": COLOURS[groups.index(group) % len(COLOURS)]},
                **cell,
            )
            labelled.add(group)
        for step in _marks(source, restarts):
            figure.add_vline(x=step, line={"dash": "dot", "width": 1, "color": "grey"}, **cell)
        figure.update_xaxes(title="steps", **cell)
    figure.update_yaxes(**axis_type(log=log_y))
    left_out = f" ({len(shown)} of {len(wanted)})" if len(wanted) > len(shown) else ""
    figure.update_layout(title=f"{title}{left_out}", height=max(360, 280 * rows))
    return figure


def _marks(source: TrialLike | Iterable[SeriesView], restarts: Sequence[int] | None) -> list[int]:
    known = getattr(source, "restart_steps", ()) if restarts is None else restarts
    return sorted(set(known))[-MOST_MARKS:]


def _points_of(source: TrialLike | Iterable[SeriesView]) -> tuple[str, Points]:
    points: Points = {}
    if isinstance(source, Iterable):
        series = list(source)
        for curve in sorted(series, key=lambda one: one.group):
            pairs = list(zip(curve.steps, curve.values, strict=True))
            points.setdefault(curve.name, {}).setdefault(curve.group, []).extend(pairs)
        ids = sorted({curve.trial_id for curve in series})
        return f"Metrics of trial {ids[0]}" if len(ids) == 1 else "Metrics", points
    for report in source.iter_metrics():
        for name, value in report.metrics.items():
            points.setdefault(name, {}).setdefault(report.group, []).append((report.steps_completed, value))
    return f"Metrics of trial {source.id}", points
