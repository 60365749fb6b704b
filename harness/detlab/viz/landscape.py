"""Figures of where a search looked: slices of its space, and the metric over two hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from detlab.errors import DetlabError
from detlab.schemas.wire import CurvesView, TrialView
from detlab.viz.data import ExperimentLike, HyperparameterAxis, SearchData, search_of, trials_wanted
from detlab.viz.drawing import BEST, GOODNESS, empty, plotly_module, safe
from detlab.viz.importances import importances
from detlab.viz.marks import MOST_PANELS, MOST_TRIALS, described, named, nothing_to_compare, points, scale, titled

MOST_ON_SURFACE = 300
"""Trials between which a surface is interpolated: the best ones."""
_CELLS = 36
_REACH = 0.3
"""A place further than this from all trials, as a part of the axes, has no value."""
_COLUMNS = 3


def slice_plot(
    source: ExperimentLike | CurvesView, *, params: Sequence[str] | None = None, max_trials: int = MOST_TRIALS
) -> Any:
    """Draw the best value of the searcher metric against each hyperparameter, coloured from early to late trials.

    Args:
        source: An experiment, or a snapshot that its `curves()` returned.
        params: Names of hyperparameters, in this order; default all that differ between trials, by name.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure`, a panel per hyperparameter.

    Raises:
        DetlabError: plotly is not installed.
    """
    search = search_of(source, trials_wanted(max_trials)).by_point()
    title = f"{safe(search.metric)} over the course of experiment {search.experiment.id}"
    axes, reason = chosen(search, params)
    if reason:
        return empty(title, reason)
    values = search.ranked()
    axes = axes[:MOST_PANELS]
    columns = min(_COLUMNS, len(axes))
    rows = math.ceil(len(axes) / columns)
    figure = plotly_module("subplots").make_subplots(rows, columns, shared_yaxes=True)
    trials = [trial for trial in search.snapshot.trials if trial.id in values]
    for at, axis in enumerate(axes):
        cell = {"row": at // columns + 1, "col": at % columns + 1}
        shown = [trial for trial in trials if axis.values[trial.id] is not None]
        figure.add_scatter(**{**points(axis, shown, search), "marker": _by_order(shown, search.best)}, **cell)
        figure.update_xaxes(title=safe(axis.name), **scale(axis), **cell)
        if cell["col"] == 1:
            figure.update_yaxes(title=named(search), **cell)
    figure.update_layout(
        title=titled(title, search, left_out=len(search.snapshot.trials) - len(trials)),
        showlegend=False,
        height=max(360, 280 * rows),
        coloraxis={
            "colorscale": [list(stop) for stop in GOODNESS],
            "colorbar": {"title": {"text": "trial"}, "thickness": 14},
        },
    )
    return figure


def _by_order(trials: list[TrialView], best: int | None) -> dict[str, Any]:
    return {
        "color": [trial.index for trial in trials],
        "coloraxis": "coloraxis",
        "size": [12 if trial.id == best else 7 for trial in trials],
        "line": {"color": BEST, "width": [2 if trial.id == best else 0 for trial in trials]},
        "opacity": 1,
    }


def contour(
    source: ExperimentLike | CurvesView, *, params: Sequence[str] | None = None, max_trials: int = MOST_TRIALS
) -> Any:
    """Draw the searcher metric over two hyperparameters: the trials as points, and a surface between them.

    The surface is a mean of the trials' values, weighted by the inverse square of the distance (Shepard, 1968); it
    is left open where no trial is near. It guides the eye and predicts nothing.

    Args:
        source: An experiment, or a snapshot that its `curves()` returned.
        params: Names of two hyperparameters; default the two most important ones where Optuna is installed, else
            the first two by name.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure`.

    Raises:
        ValueError: `params` are not two.
        DetlabError: plotly is not installed.
    """
    if params is not None and len(set(params)) != 2:
        raise ValueError(f"a contour has two hyperparameters, not {', '.join(params) or 'none'}")
    search = search_of(source, trials_wanted(max_trials)).by_point()
    title = f"{safe(search.metric)} over two hyperparameters of experiment {search.experiment.id}"
    axes, reason = chosen(search, params)
    if reason:
        return empty(title, reason)
    if len(axes) < 2:
        return empty(title, f"Only {safe(axes[0].name)} differs between trials: a contour needs two hyperparameters.")
    across, up = axes if params else _most_important(search, axes)
    values = search.ranked()
    trials = [
        trial
        for trial in search.snapshot.trials
        if trial.id in values and across.values[trial.id] is not None and up.values[trial.id] is not None
    ]
    if len(trials) < 3:
        return empty(title, f"Only {len(trials)} trials have a value and both hyperparameters: a contour needs three.")
    figure = plotly_module("graph_objects").Figure()
    figure.add_contour(**_surface(search, (across, up), trials, values))
    figure.add_scatter(**_trials(search, (across, up), trials, values))
    figure.update_layout(
        title=titled(title, search, left_out=len(search.snapshot.trials) - len(trials)), showlegend=False, height=480
    )
    figure.update_xaxes(title=safe(across.name), **scale(across))
    figure.update_yaxes(title=safe(up.name), **scale(up))
    return figure


def chosen(search: SearchData, params: Sequence[str] | None) -> tuple[list[HyperparameterAxis], str]:
    """Return the axes of these hyperparameters, by default of all, and "" or why nothing can be drawn."""
    axes = search.axes()
    if reason := nothing_to_compare(search, axes):
        return [], reason
    if params is None:
        return axes, ""
    by_name = {axis.name: axis for axis in axes}
    missing = [name for name in params if name not in by_name]
    if missing:
        named = ", ".join(safe(name) for name in missing)
        return [], f"No hyperparameter {named} that differs between trials: there are {_listed(list(by_name))}."
    return [by_name[name] for name in params], ""


def _listed(names: list[str]) -> str:
    shown = ", ".join(safe(name, 30) for name in names[:MOST_PANELS])
    return f"{shown} and {len(names) - MOST_PANELS} more" if len(names) > MOST_PANELS else shown


def _most_important(search: SearchData, axes: list[HyperparameterAxis]) -> list[HyperparameterAxis]:
    try:
        shares, _ = importances(search)
    except DetlabError:  # without Optuna
        return axes[:2]
    ranked = sorted(axes, key=lambda axis: -shares.get(axis.name, 0.0))
    return ranked[:2]


def _place(axis: HyperparameterAxis, trial: TrialView) -> float:
    value = axis.values[trial.id]
    assert value is not None
    return float(axis.choices.index(str(value))) if axis.kind == "category" else float(value)


def _reaches(axis: HyperparameterAxis, trials: list[TrialView]) -> tuple[list[float], list[float]]:
    """Return the places of the grid on an axis, and the same from 0 to 1."""
    places = [_place(axis, trial) for trial in trials]
    if axis.kind == "category":
        count = len(axis.choices)
        return [float(at) for at in range(count)], [at / max(1, count - 1) for at in range(count)]
    low, high = min(places), max(places)
    parts = [at / (_CELLS - 1) for at in range(_CELLS)]
    if axis.kind == "log":
        return [low * (high / low) ** part for part in parts], parts
    return [low + (high - low) * part for part in parts], parts


def _normed(axis: HyperparameterAxis, trials: list[TrialView]) -> list[float]:
    places = [_place(axis, trial) for trial in trials]
    if axis.kind == "category":
        return [place / max(1, len(axis.choices) - 1) for place in places]
    if axis.kind == "log":
        places = [math.log(place) for place in places]
    low, span = min(places), (max(places) - min(places)) or 1.0
    return [(place - low) / span for place in places]


def _surface(
    search: SearchData,
    axes: tuple[HyperparameterAxis, HyperparameterAxis],
    trials: list[TrialView],
    values: dict[int, float],
) -> dict[str, Any]:
    ranks = {key: place for place, key in enumerate(values)}
    near = sorted(trials, key=lambda trial: ranks[trial.id])[:MOST_ON_SURFACE]
    spots = list(zip(_normed(axes[0], near), _normed(axes[1], near), (values[t.id] for t in near), strict=True))
    xs, x_parts = _reaches(axes[0], near)
    ys, y_parts = _reaches(axes[1], near)
    return {
        "x": xs,
        "y": ys,
        "z": [[_weighted(spots, x, y) for x in x_parts] for y in y_parts],
        "colorscale": [list(stop) for stop in GOODNESS],
        "reversescale": search.experiment.smaller_is_better,
        "colorbar": {"title": {"text": safe(search.metric, 24)}, "thickness": 14},
        "contours": {"coloring": "fill"},
        "line": {"width": 0.5},
        "hoverinfo": "skip",
        "connectgaps": False,
    }


def _weighted(spots: list[tuple[float, float, float]], x: float, y: float) -> float | None:
    total = weights = 0.0
    nearest = math.inf
    for at_x, at_y, value in spots:
        square = (at_x - x) ** 2 + (at_y - y) ** 2
        nearest = min(nearest, square)
        weight = 1.0 / (square + 1e-4)
        total += weight * value
        weights += weight
    return total / weights if nearest <= _REACH**2 else None


def _trials(
    search: SearchData,
    axes: tuple[HyperparameterAxis, HyperparameterAxis],
    trials: list[TrialView],
    values: dict[int, float],
) -> dict[str, Any]:
    best = search.best
    return {
        "x": [_place(axes[0], trial) for trial in trials],
        "y": [_place(axes[1], trial) for trial in trials],
        "mode": "markers",
        "marker": {
            "color": [BEST if trial.id == best else "#222222" for trial in trials],
            "size": [12 if trial.id == best else 6 for trial in trials],
            "line": {"color": "#ffffff", "width": 1},
        },
        "text": [
            f"{described(trial, search.points.get(trial.id))}<br>{safe(search.metric)} {values[trial.id]:.6g}"
            for trial in trials
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }
