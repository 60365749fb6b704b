"""Figures of a report: the still pictures of `detlab.viz`, a few kilobytes each, where plotly's own need megabytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detlab.errors import DetlabError
from detlab.reports.facts import ReportedExperiment, ReportedRun
from detlab.schemas.wire import SeriesView
from detlab.viz import learning_curves, static, trial_metrics
from detlab.viz.drawing import plotly_module, safe

MOST_TRIALS, MOST_POINTS = 30, 100
"""Trials in a picture, the best among them, and points of each curve."""
MOST_PANELS = 8
"""Metrics of a run that are drawn."""


def without_plotly() -> str:
    """Return why there are no pictures, if there are none."""
    try:
        plotly_module("graph_objects")
    except DetlabError as error:
        return f"There are no curves: {error.message}; pip install 'detlab[kernel]' brings it."
    return ""


def curves_of_experiment(one: ReportedExperiment) -> tuple[str, str]:
    """Return the learning curves of an experiment as (SVG, text that stands for it); empty: there are none."""
    snapshot = one.curves
    if snapshot is None or not any(curve.steps for curve in snapshot.curves):
        return "", ""
    known = snapshot.model_copy(update={"experiment": one.view})
    return _picture(lambda: learning_curves(known))


def curves_of_run(one: ReportedRun) -> tuple[str, str]:
    """Return the metrics of a run, likewise."""
    series = [
        SeriesView(trial_id=0, group="", name=curve.name, steps=curve.steps, values=curve.values)
        for curve in one.curves
        if curve.steps
    ][:MOST_PANELS]
    if not series:
        return "", ""
    return _picture(lambda: trial_metrics(series).update_layout(title=f"Metrics of run {safe(one.view.id[:8])}"))


def _picture(draw: Callable[[], Any]) -> tuple[str, str]:
    try:
        figure = draw()
    except DetlabError as error:
        if error.code != "plotly_missing":
            raise
        return "", ""
    return static.svg(figure), static.text(figure)
