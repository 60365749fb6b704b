"""Figures of a whole search: its learning curves, and what the hyperparameters have to do with the metric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from detlab.schemas.wire import CurvesView, SeriesView, TrialState, TrialView
from detlab.viz.bands import banded
from detlab.viz.data import (
    ExperimentLike,
    HyperparameterAxis,
    SearchData,
    curves_wanted,
    search_of,
    stopped_or_failed,
    trials_wanted,
)
from detlab.viz.drawing import (
    BEST,
    COLOURS,
    FAILED,
    GOODNESS,
    GREY,
    MOST_IN_LEGEND,
    axis_type,
    empty,
    line_mode,
    number,
    plotly_module,
    safe,
)
from detlab.viz.marks import MOST_PANELS, MOST_TRIALS, described, named, nothing_to_compare, points, scale, titled

MOST_AXES = 24
"""Hyperparameters in parallel coordinates; more could not be read."""
MOST_LINES = 100
"""Trials with a curve; the best are among them."""
_COLUMNS = 3


def learning_curves(
    source: ExperimentLike | CurvesView,
    *,
    metric: str | None = None,
    group: str = "validation",
    log_y: bool = False,
    max_trials: int = MOST_LINES,
) -> Any:
    """Draw a metric of all trials over the steps they had completed; the best trial is highlighted.

    Args:
        source: An experiment, or a snapshot that its `curves()` returned.
        metric: Name of the metric; default the searcher metric.
        group: `validation`, `training` or a group of the code's own.
        log_y: Whether the metric's axis is logarithmic.
        max_trials: How many trials to ask an experiment for; the best are among them.

    Returns:
        A `plotly.graph_objects.Figure`: a line for each trial; of a search with seeds, for the mean of each point.

    Raises:
        DetlabError: plotly is not installed.
    """
    name = metric or (source.experiment if isinstance(source, CurvesView) else source.view).metric
    search = search_of(source, curves_wanted(name, group=group, max_trials=max_trials))
    title = f"{safe(name)} of experiment {search.experiment.id}"
    curves = search.curves(name, group)
    if not search.snapshot.trials:
        return empty(title, "No trials yet.")
    if not any(curve.steps for _, curve in curves):
        return empty(title, f"No trial has reported {safe(name)} in group {safe(group)} yet.")
    figure = plotly_module("graph_objects").Figure()
    merged = search.by_point()
    best = merged.best if name == search.metric else None
    if merged.points:
        for trace in _means(merged, curves, best, log=log_y):
            figure.add_scatter(**trace)
        figure.update_layout(title=titled(title, merged), showlegend=len(merged.points) <= MOST_IN_LEGEND)
        figure.update_xaxes(title="steps")
        figure.update_yaxes(title=f"{safe(name)} (mean ± sd)", **axis_type(log=log_y))
        return figure
    for trial, curve in sorted(curves, key=lambda pair: pair[0].id == best):  # the best one on top
        figure.add_scatter(**_line(trial, curve, best=trial.id == best, log=log_y))
    figure.update_layout(title=titled(title, search), showlegend=len(curves) <= MOST_IN_LEGEND)
    figure.update_xaxes(title="steps")
    figure.update_yaxes(title=safe(name), **axis_type(log=log_y))
    return figure


def parallel_coordinates(source: ExperimentLike | CurvesView, *, max_trials: int = MOST_TRIALS) -> Any:
    """Draw each trial as a line through its hyperparameters to the best value of its searcher metric.

    Hyperparameters that are the same in all trials have no axis. Trials that lack one of
    the hyperparameters, or a finite value of the metric, are left out, and the title counts them.

    Args:
        source: An experiment, or a snapshot that its `curves()` returned.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure`; select ranges by dragging along the axes.

    Raises:
        DetlabError: plotly is not installed.
    """
    search = search_of(source, trials_wanted(max_trials)).by_point()
    title = f"Hyperparameters and {safe(search.metric)} of experiment {search.experiment.id}"
    axes, values = search.axes()[:MOST_AXES], search.ranked()
    if reason := nothing_to_compare(search, axes):
        return empty(title, reason)
    trials = [
        trial
        for trial in search.snapshot.trials
        if trial.id in values and all(axis.values[trial.id] is not None for axis in axes)
    ]
    metric = [values[trial.id] for trial in trials]
    figure = plotly_module("graph_objects").Figure()
    figure.add_parcoords(
        dimensions=[*(_dimension(axis, trials) for axis in axes), {"label": named(search), "values": metric}],
        line={
            "color": metric,
            "colorscale": [list(stop) for stop in GOODNESS],
            "reversescale": search.experiment.smaller_is_better,
            "showscale": True,
        },
    )
    # the labels of the axes stand above them, where other figures have their title
    figure.update_layout(
        title=titled(title, search, left_out=len(search.snapshot.trials) - len(trials)), margin={"t": 140}
    )
    return figure


def metric_by_hyperparameter(source: ExperimentLike | CurvesView, *, max_trials: int = MOST_TRIALS) -> Any:
    """Draw the best value of the searcher metric against each hyperparameter, in one panel per hyperparameter.

    Args:
        source: An experiment, or a snapshot that its `curves()` returned.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure` whose panels share the metric's axis; the best trial is highlighted.

    Raises:
        DetlabError: plotly is not installed.
    """
    search = search_of(source, trials_wanted(max_trials)).by_point()
    title = f"{safe(search.metric)} by hyperparameter in experiment {search.experiment.id}"
    axes, values = search.axes()[:MOST_PANELS], search.ranked()
    if reason := nothing_to_compare(search, axes):
        return empty(title, reason)
    columns = min(_COLUMNS, len(axes))
    rows = math.ceil(len(axes) / columns)
    figure = plotly_module("subplots").make_subplots(rows, columns, shared_yaxes=True)
    trials = [trial for trial in search.snapshot.trials if trial.id in values]
    for at, axis in enumerate(axes):
        cell = {"row": at // columns + 1, "col": at % columns + 1}
        shown = [trial for trial in trials if axis.values[trial.id] is not None]
        figure.add_scatter(**points(axis, shown, search), **cell)
        figure.update_xaxes(title=safe(axis.name), **scale(axis), **cell)
        if cell["col"] == 1:
            figure.update_yaxes(title=named(search), **cell)
    figure.update_layout(
        title=titled(title, search, left_out=len(search.snapshot.trials) - len(trials)),
        showlegend=False,
        height=max(360, 280 * rows),
    )
    return figure


def _means(
    search: SearchData, curves: Sequence[tuple[TrialView, SeriesView]], best: int | None, *, log: bool
) -> Iterator[Any]:
    """Yield a line for each point of a search with seeds: the mean of its trials, with a band of one deviation."""
    by_trial = {trial.id: curve for trial, curve in curves if curve.steps}
    for place, (key, point) in enumerate(sorted(search.points.items(), key=lambda pair: pair[0] == best)):
        lines = [by_trial[trial.id] for trial in point.trials if trial.id in by_trial]
        colour = BEST if key == best else COLOURS[place % len(COLOURS)]
        about = f"<b>{point.text}</b><br>%{{y:.6g}} after %{{x}} steps<extra></extra>"
        name = f"trials {', '.join(str(trial.id) for trial in point.trials)}{', best' if key == best else ''}"
        for trace in banded(lines, name, colour, "steps", width=3 if key == best else 1.5, log=log):
            yield {**trace, "hovertemplate": about} if "hoverinfo" not in trace else trace


def _line(trial: TrialView, curve: SeriesView, *, best: bool, log: bool) -> dict[str, Any]:
    stopped = stopped_or_failed(trial)
    failed = trial.state is TrialState.ERROR
    colour = BEST if best else FAILED if failed else GREY if stopped else COLOURS[trial.index % len(COLOURS)]
    about = f"trial {trial.id}{', best' if best else ''}{', failed' if failed else ''}"
    return {
        "x": curve.steps,
        "y": curve.values,
        "name": about,
        **line_mode(curve.values, log=log),
        "line": {"color": colour, "width": 3 if best else 1.5},
        "opacity": 0.6 if stopped and not best else 1.0,
        "hovertemplate": f"{described(trial)}<br>%{{y:.6g}} after %{{x}} steps<extra></extra>",
    }


def _dimension(axis: HyperparameterAxis, trials: list[TrialView]) -> dict[str, Any]:
    """One axis of parallel coordinates, which have neither categories nor logarithms of their own."""
    values = [axis.values[trial.id] for trial in trials]
    label = safe(axis.name)
    if axis.kind == "category":
        texts = [safe(choice, 20) for choice in axis.choices]
        places = [axis.choices.index(str(value)) for value in values]
        return {"label": label, "values": places, "tickvals": list(range(len(texts))), "ticktext": texts}
    numbers = [float(value) for value in values if value is not None]
    if axis.kind == "linear" or not numbers:
        return {"label": label, "values": numbers}
    ticks = _decades(min(numbers), max(numbers))
    return {
        "label": label,
        "values": [math.log10(value) for value in numbers],
        "tickvals": [math.log10(tick) for tick in ticks],
        "ticktext": [number(tick) for tick in ticks],
    }


def _decades(low: float, high: float) -> list[float]:
    """Return the ends of a logarithmic axis and the powers of ten between them, at most about eight."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    stride = max(1, math.ceil((last - first + 1) / 6))
    inner = [10.0**exponent for exponent in range(first, last + 1, stride)]
    # a power beside an end would be written over it
    return [low, *(tick for tick in inner if tick > low * 1.5 and tick * 1.5 < high), *([high] if high > low else [])]
