"""What figures of trials share: a trial's hover box, its points, the axis of a hyperparameter, the title."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.schemas.wire import TrialView
from detlab.viz.data import Axis, Search, flatten
from detlab.viz.drawing import BEST, COLOURS, number, safe

MOST_TRIALS = 1000
"""Trials of figures other than learning curves."""
MOST_PANELS = 12
"""Hyperparameters among small multiples, and at a trial's hover box."""


def described(trial: TrialView) -> str:
    """Return the text of a trial's hover box: its id and its hyperparameters."""
    settings = [f"{safe(name)} = {safe(value)}" for name, value in flatten(trial.hparams).items()]
    return "<br>".join([f"<b>trial {trial.id}</b>", *settings[:MOST_PANELS]])


def points(axis: Axis, trials: list[TrialView], values: Mapping[int, float], best: int | None) -> dict[str, Any]:
    """Return the arguments of a scatter of the metric over one hyperparameter; the best trial is highlighted."""
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
        "text": [described(trial) for trial in trials],
        "hovertemplate": "%{text}<br>%{y:.6g}<extra></extra>",
    }


def scale(axis: Axis) -> dict[str, Any]:
    """Return how plotly draws the axis: choices stand at 0, 1, … so that a text like `0.1` stays the choice it is."""
    if axis.kind == "category":
        texts = [safe(choice, 20) for choice in axis.choices]
        return {"tickvals": list(range(len(texts))), "ticktext": texts, "range": [-0.5, len(texts) - 0.5]}
    return {"type": axis.kind}


def nothing_to_compare(search: Search, axes: list[Axis]) -> str:
    """Return why there are no axes, or nothing on them; empty: there is something to draw."""
    if not search.snapshot.trials:
        return "No trials yet."
    if not any(flatten(trial.hparams) for trial in search.snapshot.trials):
        return "This experiment has no hyperparameters."
    if not axes and len(search.snapshot.trials) == 1:
        return "Only one trial so far: nothing to compare."
    if not axes:
        return "All trials have the same hyperparameters."
    if not search.ranked():
        return f"No trial has reported {safe(search.metric)} yet."
    return ""


def titled(title: str, search: Search, *, left_out: int = 0) -> dict[str, Any]:
    """Return a figure's title, with a subtitle that gives the best value and the number of trials left out."""
    best = search.experiment.best
    parts = [f"best {number(best.value)} (trial {best.trial_id})"] if best else []
    if left_out:
        parts.append(f"{left_out} {'trial' if left_out == 1 else 'trials'} without a value left out")
    return {"text": title, "subtitle": {"text": " · ".join(parts)}} if parts else {"text": title}
