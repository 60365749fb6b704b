"""What figures of trials share: a trial's hover box, its points, the axis of a hyperparameter, the title."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detlab.schemas.wire import TrialView
from detlab.viz.data import HyperparameterAxis, SearchData, flatten
from detlab.viz.drawing import BEST, COLOURS, axis_type, number, safe
from detlab.viz.seeds import SeededPoint

MOST_TRIALS = 1000
"""Trials of figures other than learning curves."""
_BAR = "rgba(127,127,127,0.9)"
MOST_PANELS = 12
"""Hyperparameters among small multiples, and at a trial's hover box."""


def described(trial: TrialView, point: SeededPoint | None = None) -> str:
    """Return the text of the hover box of a trial, or of a point and its trials: with the hyperparameters."""
    settings = [f"{safe(name)} = {safe(value)}" for name, value in flatten(trial.hparams).items()]
    head = f"<b>trial {trial.id}</b>" if point is None else f"<b>{point.text}</b>"
    return "<br>".join([head, *settings[:MOST_PANELS]])


def points(axis: HyperparameterAxis, trials: list[TrialView], search: SearchData) -> dict[str, Any]:
    """Return the arguments of a scatter of the metric over one hyperparameter; the best trial is highlighted."""
    values, best = search.ranked(), search.best
    places = [axis.values[trial.id] for trial in trials]
    if axis.kind == "category":
        places = [axis.choices.index(str(place)) for place in places]
    return {
        "x": places,
        "y": [values[trial.id] for trial in trials],
        "mode": "markers",
        "marker": {
            "color": [BEST if trial.id == best else COLOURS[0] for trial in trials],
            "size": [12 if trial.id == best else 7 for trial in trials],
            "opacity": 1,
        },
        "text": [described(trial, search.points.get(trial.id)) for trial in trials],
        "hovertemplate": "%{text}<br>%{y:.6g}<extra></extra>",
        **error_bars(search, trials),
    }


def error_bars(search: SearchData, trials: Sequence[TrialView]) -> dict[str, Any]:
    """Return the arguments of a scatter that draw the standard deviation of each point's seeds."""
    if not search.points:
        return {}
    spread = [search.points[trial.id].deviation or 0.0 for trial in trials]
    return {"error_y": {"type": "data", "array": spread, "thickness": 1, "width": 3, "color": _BAR}}


def named(search: SearchData) -> str:
    """Return the label of the metric's axis."""
    return f"{safe(search.metric)} (mean ± sd)" if search.points else safe(search.metric)


def scale(axis: HyperparameterAxis) -> dict[str, Any]:
    """Return how plotly draws the axis: choices stand at 0, 1, … so that a text like `0.1` stays the choice it is."""
    if axis.kind == "category":
        texts = [safe(choice, 20) for choice in axis.choices]
        return {"tickvals": list(range(len(texts))), "ticktext": texts, "range": [-0.5, len(texts) - 0.5]}
    return axis_type(log=axis.kind == "log")


def nothing_to_compare(search: SearchData, axes: list[HyperparameterAxis]) -> str:
    """Return why there are no axes, or nothing on them; empty: there is something to draw."""
    if not search.snapshot.trials:
        return "No trials yet."
    drawn = [trial for trial in search.snapshot.trials if not trial.point_due]
    if not drawn:
        return "No trial has hyperparameters yet: they are drawn when trials start."
    if not any(flatten(trial.hparams) for trial in drawn):
        return "This experiment has no hyperparameters."
    if not axes and len(drawn) == 1:
        return "Only one trial so far: nothing to compare."
    if not axes:
        return "All trials have the same hyperparameters."
    if not search.ranked():
        return f"No trial has reported {safe(search.metric)} yet."
    return ""


def titled(title: str, search: SearchData, *, left_out: int = 0) -> dict[str, Any]:
    """Return a figure's title, with a subtitle that gives the best value and the number of trials left out."""
    best = search.experiment.best
    if search.points:
        parts = [f"best point {search.points[search.best].text}"] if search.best is not None else []
    else:
        parts = [f"best {number(best.value)} (trial {best.trial_id})"] if best else []
    if left_out:
        one = "point" if search.points else "trial"
        parts.append(f"{left_out} {one if left_out == 1 else f'{one}s'} without a value left out")
    return {"text": title, "subtitle": {"text": " · ".join(parts)}} if parts else {"text": title}
