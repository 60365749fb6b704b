"""The figure of a comparison: a metric of several runs, overlaid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from detlab.schemas.wire import SeriesView
from detlab.schemas.wire.comparison import ComparedRun, RunComparison
from detlab.viz.bands import banded
from detlab.viz.drawing import COLOURS, MOST_IN_LEGEND, axis_type, empty, plotly_module, safe

MOST_PANELS = 6
"""Metrics of one figure."""
_COLUMNS = 2


def compared_curves(
    comparison: RunComparison,
    curves: Iterable[SeriesView],
    *,
    metrics: Sequence[str] = (),
    group: str = "validation",
    x: Literal["steps", "batches", "time"] = "steps",
    log_y: bool = False,
) -> Any:
    """Draw metrics of runs over each other: a panel per metric, a line per run.

    A run of several seeds is drawn as their mean, with a band of one standard deviation.

    Args:
        comparison: The runs, as `client.compare` returns them.
        curves: Their curves, as `client.compare_curves` returns them.
        metrics: Which metrics, in this order; default those of the runs' searches.
        group: Of the metrics.
        x: `steps`, also by their old name `batches`, or `time` since the first report of each trial.
        log_y: Whether the metrics' axes are logarithmic.

    Returns:
        A `plotly.graph_objects.Figure`.

    Raises:
        DetlabError: plotly is not installed.
    """
    title = f"Comparison of {_counted(comparison.runs)}"
    if not comparison.runs:
        return empty(title, "There is nothing to compare.")
    wanted = list(metrics or dict.fromkeys(run.metric for run in comparison.runs if run.metric))[:MOST_PANELS]
    by_key = {(_key(curve), curve.name): curve for curve in curves if curve.group == group}
    if not any((key, name) in by_key for run in comparison.runs for key in _keys(run) for name in wanted):
        return empty(title, f"No run has reported {', '.join(map(safe, wanted))} in group {safe(group)}.")
    columns = min(_COLUMNS, len(wanted))
    figure = plotly_module("subplots").make_subplots(
        math.ceil(len(wanted) / columns), columns, subplot_titles=[safe(name) for name in wanted]
    )
    names = run_names(comparison.runs)
    for at, metric in enumerate(wanted):
        cell = {"row": at // columns + 1, "col": at % columns + 1}
        for place, run in enumerate(comparison.runs):
            lines = [by_key[key, metric] for key in _keys(run) if (key, metric) in by_key]
            colour = COLOURS[place % len(COLOURS)]
            for trace in banded(lines, names[place], colour, x, log=log_y):
                figure.add_scatter(**{"showlegend": at == 0, **trace}, **cell)
        figure.update_xaxes(title="seconds" if x == "time" else "steps", **cell)
    figure.update_yaxes(**axis_type(log=log_y))
    rows = math.ceil(len(wanted) / columns)
    figure.update_layout(title=title, height=max(420, 320 * rows), showlegend=len(names) <= MOST_IN_LEGEND)
    return figure


def run_names(runs: Sequence[ComparedRun]) -> list[str]:
    """Return what each run is called: its kind and id, and what tells it apart if that is short."""
    return [run.title for run in runs]


def _key(curve: SeriesView) -> int | str:
    """Return whose a curve is: the number of a trial, or the id of a run from anywhere."""
    return getattr(curve, "run_id", "") or curve.trial_id


def _keys(run: ComparedRun) -> Sequence[int | str]:
    return [run.run_id] if run.kind == "run" else run.trial_ids


def _counted(runs: Sequence[ComparedRun]) -> str:
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
