"""Figures of a report: the still pictures of `detlab.viz`, a few kilobytes each, where plotly's own need megabytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from detlab.errors import DetlabError
from detlab.reports.facts import ReportedExperiment, ReportedRun
from detlab.schemas.wire import ExperimentView, SeriesView
from detlab.viz import fronts, learning_curves, pareto_front, static, trial_metrics
from detlab.viz.drawing import plotly_module, safe

MOST_TRIALS, MOST_POINTS = 30, 100
"""Trials in a picture, the best among them, and points of each curve."""
MOST_PANELS = 8
"""Metrics of a run that are drawn, and objectives of a search."""


@dataclass(frozen=True, slots=True)
class ReportPicture:
    """A figure.

    Attributes:
        svg: Safe in a page.
        about: A text that stands for it.
        source: Python that draws it as it is then, for a notebook.
    """

    svg: str
    about: str
    source: str


def without_plotly() -> str:
    """Return why there are no pictures, if there are none."""
    try:
        plotly_module("graph_objects")
    except DetlabError as error:
        return f"There are no curves: {error.message}; pip install 'detlab[kernel]' brings it."
    return ""


def drawn_metrics(view: ExperimentView) -> list[str]:
    """Return the metrics of an experiment whose curves are drawn: all objectives."""
    return fronts.metric_names(view.config or {}, None)[:MOST_PANELS] or [view.metric]


def pictures_of_experiment(one: ReportedExperiment) -> Sequence[ReportPicture]:
    """Return the learning curves of an experiment, one figure for each objective, and of several their Pareto front."""
    found: list[ReportPicture] = []
    source = f"from detlab import client\n\nclient.get_experiment({one.view.id}).plot"
    if one.curves is not None:
        known = one.curves.model_copy(update={"experiment": one.view})
        reported = {curve.name for curve in known.curves if curve.steps}
        for metric in drawn_metrics(one.view):
            if metric in reported:
                named = "" if metric == one.view.metric else f"metric={metric!r}"
                draw = partial(learning_curves, known, metric=metric)
                found += _picture(draw, f"{source}({named})")
    if one.results is not None and len(fronts.objectives(one.view.config or {})) > 1:
        judged = one.results.model_copy(update={"experiment": one.view})
        found += _picture(partial(pareto_front, judged), f"{source}('pareto_front')")
    return found


def pictures_of_run(one: ReportedRun) -> Sequence[ReportPicture]:
    """Return the metrics of a run, likewise."""
    series = [
        SeriesView(trial_id=0, group="", name=curve.name, steps=curve.steps, values=curve.values)
        for curve in one.curves
        if curve.steps
    ][:MOST_PANELS]
    source = f"from detlab import client\n\nclient.get_run({one.view.id!r})"
    title = f"Metrics of run {safe(one.view.id[:8])}"
    return _picture(lambda: trial_metrics(series).update_layout(title=title), source) if series else []


def _picture(draw: Callable[[], Any], source: str) -> Sequence[ReportPicture]:
    try:
        figure = draw()
    except DetlabError as error:
        if error.code != "plotly_missing":
            raise
        return []
    return [ReportPicture(static.svg(figure), static.text(figure), source)]
