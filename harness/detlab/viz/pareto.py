"""The trials between two or three metrics of which one cannot have the best of all: the Pareto front."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

from detlab.schemas.wire import CurvesView
from detlab.viz.data import ExperimentLike, SearchData, search_of
from detlab.viz.drawing import BEST, GREY, empty, plotly_module, safe
from detlab.viz.fronts import Judged, judge, metric_names, wanted
from detlab.viz.marks import MOST_TRIALS, described

_FAINT = 0.5


def pareto_front(
    source: ExperimentLike | CurvesView,
    *,
    metrics: Sequence[str] | None = None,
    maximize: Collection[str] = (),
    max_trials: int = MOST_TRIALS,
) -> Any:
    """Draw the trials by two or three validation metrics; those that no other trial beats in all of them stand out.

    A trial's point is its last validation that reported all of the metrics with finite values. Trials that break one of
    the config's constraints there are faint and never on the front. Three metrics are drawn as three panels, one per
    pair; the front is that of all three.

    Args:
        source: An experiment, or a snapshot that its `curves(group="validation")` returned.
        metrics: Two or three names; default those of `searcher.metrics` in the config.
        maximize: Those of them of which greater values are better. The searcher's own metrics need no mention.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure`.

    Raises:
        ValueError: `metrics` are not two or three.
        DetlabError: plotly is not installed.
    """
    if metrics is not None and len(set(metrics)) not in {2, 3}:
        raise ValueError(f"a Pareto front has two or three metrics, not {', '.join(metrics) or 'none'}")
    snapshot = isinstance(source, CurvesView)
    config = (source.experiment.config if isinstance(source, CurvesView) else source.config) or {}
    names = metric_names(config, metrics)[:3]
    title = f"Pareto front of experiment {source.experiment.id if isinstance(source, CurvesView) else source.view.id}"
    if len(names) < 2:
        return empty(title, "This search has one metric. A front is of two or three: `searcher.metrics` of a config.")
    search = search_of(source, {} if snapshot else wanted(config, names, max_trials=max_trials))
    found = judge(search, names, maximize)
    if not search.snapshot.trials:
        return empty(title, "No trials yet.")
    if not found.points:
        return empty(title, _no_points(search, names))
    pairs = list(itertools.combinations(range(len(names)), 2))
    figure = plotly_module("subplots").make_subplots(1, len(pairs), horizontal_spacing=0.12)
    for at, (across, up) in enumerate(pairs, 1):
        for trace in _traces(found, (across, up), line=len(pairs) == 1):
            figure.add_scatter(**trace, showlegend=at == 1, row=1, col=at)
        figure.update_xaxes(title=found.aims[across].said, row=1, col=at)
        figure.update_yaxes(title=found.aims[up].said, row=1, col=at)
    judged = sum(map(len, found.seeds.values())) or len(found.points)
    about = _about(found, len(search.snapshot.trials) - judged)
    figure.update_layout(title={"text": title, "subtitle": {"text": about}}, height=460)
    return figure


def _about(found: Judged, left_out: int) -> str:
    broken = len(found.infeasible)
    kind = "points, means of their seeds," if found.seeds else "trials"
    parts = [f"{len(found.front)} of {len(found.points)} {kind} are on the front"]
    if broken:
        who = "all break" if broken == len(found.points) else "1 breaks" if broken == 1 else f"{broken} break"
        parts.append(f"{who} a constraint")
    if left_out:
        parts.append(f"{left_out} {'trial' if left_out == 1 else 'trials'} without all metrics left out")
    return " · ".join(parts)


def _no_points(search: SearchData, names: Sequence[str]) -> str:
    missing = [name for name in names if not any(c.steps for _, c in search.curves(name, "validation"))]
    if missing:
        return f"No trial has reported {' or '.join(safe(name) for name in missing)} in a validation yet."
    return "No trial has reported all of the metrics in one validation with finite values."


def _traces(found: Judged, pair: tuple[int, int], *, line: bool) -> list[dict[str, Any]]:
    broken, front = found.infeasible, found.front
    others = [key for key in found.points if key not in {*broken, *front}]
    groups = (
        (broken, "breaks a constraint", {"color": GREY, "size": 7, "opacity": _FAINT, "symbol": "x"}),
        (others, "dominated", {"color": GREY, "size": 7, "opacity": 1}),
        (front, "Pareto front", {"color": BEST, "size": 10, "opacity": 1}),
    )
    return [
        {
            "x": [found.points[key].values[pair[0]] for key in keys],
            "y": [found.points[key].values[pair[1]] for key in keys],
            "name": name,
            "legendgroup": name,
            "mode": "lines+markers" if line and keys is front else "markers",
            "line": {"color": BEST, "width": 1.5, "dash": "dot"},
            "marker": marker,
            "text": [_text(key, found) for key in keys],
            "hovertemplate": "%{text}<extra></extra>",
        }
        for keys, name, marker in groups
        if keys
    ]


def _text(key: int, found: Judged) -> str:
    point, values = found.points[key], found.metrics(key).items()
    lines = [f"{safe(name)} {'not reported' if value is None else f'{value:.6g}'}" for name, value in values]
    return "<br>".join([described(point.trial), *lines, *(["breaks a constraint"] if point.violation > 0 else [])])
