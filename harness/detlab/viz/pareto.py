"""The trials between two or three metrics of which one cannot have the best of all: the Pareto front."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detlab.schemas.wire import CurvesView, SeriesView, TrialView
from detlab.viz.data import ExperimentLike, Search, curves_wanted, search_of
from detlab.viz.drawing import BEST, COLOURS, GREY, empty, finite, plotly_module, safe
from detlab.viz.marks import MOST_TRIALS, described

_LAST = 2
"""Points of each curve; the last one is always exact."""


@dataclass(frozen=True)
class Objective:
    """One metric, and which values of it are better."""

    name: str
    smaller_is_better: bool = True

    @property
    def said(self) -> str:
        """The title of its axis."""
        return f"{safe(self.name)} ({'smaller' if self.smaller_is_better else 'greater'} is better)"


def pareto_front(
    source: ExperimentLike | CurvesView,
    *,
    metrics: Sequence[str] | None = None,
    maximize: Collection[str] = (),
    max_trials: int = MOST_TRIALS,
) -> Any:
    """Draw the trials by two or three validation metrics; those that no other trial beats in all of them stand out.

    A trial's point is its last validation that reported all of the metrics with finite values. Three metrics are drawn
    as three panels, one per pair; the front is that of all three.

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
    names = list(dict.fromkeys(metrics or [one.name for one in objectives(config)]))[:3]
    title = f"Pareto front of experiment {source.experiment.id if isinstance(source, CurvesView) else source.view.id}"
    if len(names) < 2:
        return empty(title, "This search has one metric. Name two or three: metrics=['loss', 'latency'].")
    search = search_of(source, {} if snapshot else wanted(names, max_trials=max_trials))
    aims = [_aim(search, name, maximize) for name in names]
    points = _points(search, names)
    if not search.snapshot.trials:
        return empty(title, "No trials yet.")
    if not points:
        return empty(title, _no_points(search, names))
    front = frontier({key: values for key, (_, values) in points.items()}, aims)
    pairs = list(itertools.combinations(range(len(aims)), 2))
    figure = plotly_module("subplots").make_subplots(1, len(pairs), horizontal_spacing=0.12)
    for at, (across, up) in enumerate(pairs, 1):
        for trace in _traces(points, front, (across, up), aims, line=len(pairs) == 1):
            figure.add_scatter(**trace, showlegend=at == 1, row=1, col=at)
        figure.update_xaxes(title=aims[across].said, row=1, col=at)
        figure.update_yaxes(title=aims[up].said, row=1, col=at)
    about = [f"{len(front)} of {len(points)} trials are on the front"]
    if left_out := len(search.snapshot.trials) - len(points):
        about.append(f"{left_out} trials without all metrics left out")
    figure.update_layout(title={"text": title, "subtitle": {"text": " · ".join(about)}}, height=460)
    return figure


def wanted(names: Sequence[str], *, max_trials: int = MOST_TRIALS) -> dict[str, Any]:
    """Return the arguments of `curves()` for a Pareto front of these metrics."""
    return curves_wanted(*names, group="validation", max_trials=max_trials, max_points=_LAST)


def objectives(config: Mapping[str, Any]) -> list[Objective]:
    """Return the metrics of a config's searcher."""
    searcher = config.get("searcher")
    listed = searcher.get("metrics") if isinstance(searcher, Mapping) else None
    return [
        Objective(str(entry["name"]), bool(entry.get("smaller_is_better", True)))
        for entry in (listed if isinstance(listed, Sequence) else ())
        if isinstance(entry, Mapping) and "name" in entry
    ]


def frontier(points: Mapping[int, Sequence[float]], aims: Sequence[Objective]) -> list[int]:
    """Return the keys of the points that no other one dominates, by their first metric, best first.

    A point dominates another if it is nowhere worse and somewhere better.
    """
    costs = {
        key: tuple(v if aim.smaller_is_better else -v for v, aim in zip(values, aims, strict=True))
        for key, values in points.items()
    }
    # in this order a point can only be dominated by one before it
    front: list[int] = []
    for key in sorted(costs, key=lambda key: (costs[key], key)):
        mine = costs[key]
        if not any(
            costs[other] != mine and all(a <= b for a, b in zip(costs[other], mine, strict=True)) for other in front
        ):
            front.append(key)
    return front


def _aim(search: Search, name: str, maximize: Collection[str]) -> Objective:
    for known in objectives(search.config):
        if known.name == name:
            return known
    if name == search.metric:
        return Objective(name, search.experiment.smaller_is_better)
    return Objective(name, name not in maximize)


def _points(search: Search, names: Sequence[str]) -> dict[int, tuple[TrialView, list[float]]]:
    curves: dict[int, dict[str, SeriesView]] = {}
    trials = {}
    for name in names:
        for trial, curve in search.curves(name, "validation"):
            curves.setdefault(trial.id, {})[name] = curve
            trials[trial.id] = trial
    points = {}
    for key, by_name in curves.items():
        values = _last(by_name, names)
        if values is not None:
            points[key] = (trials[key], values)
    return points


def _last(curves: Mapping[str, SeriesView], names: Sequence[str]) -> list[float] | None:
    """Return the values at the last step that has a finite one of each metric."""
    if len(curves) < len(names):
        return None
    at = [
        {step: v for step, v in zip(curves[name].steps, curves[name].values, strict=True) if finite(v)}
        for name in names
    ]
    common = set(at[0]).intersection(*at[1:])
    return [values[max(common)] for values in at] if common else None


def _no_points(search: Search, names: Sequence[str]) -> str:
    missing = [name for name in names if not any(c.steps for _, c in search.curves(name, "validation"))]
    if missing:
        return f"No trial has reported {' or '.join(safe(name) for name in missing)} in a validation yet."
    return "No trial has reported all of the metrics in one validation with finite values."


def _traces(
    points: Mapping[int, tuple[TrialView, list[float]]],
    front: Sequence[int],
    pair: tuple[int, int],
    aims: Sequence[Objective],
    *,
    line: bool,
) -> list[dict[str, Any]]:
    others = [key for key in points if key not in set(front)]
    traces = []
    for keys, name, colour, size in ((others, "dominated", GREY, 7), (front, "Pareto front", BEST, 10)):
        if not keys:
            continue
        traces.append(
            {
                "x": [points[key][1][pair[0]] for key in keys],
                "y": [points[key][1][pair[1]] for key in keys],
                "name": name,
                "legendgroup": name,
                "mode": "lines+markers" if line and keys is front else "markers",
                "line": {"color": colour, "width": 1.5, "dash": "dot"},
                "marker": {"color": colour, "size": size, "line": {"color": COLOURS[0], "width": 0}},
                "text": [_text(points[key], aims) for key in keys],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    return traces


def _text(point: tuple[TrialView, list[float]], aims: Sequence[Objective]) -> str:
    trial, values = point
    return "<br>".join([described(trial), *(f"{safe(a.name)} {v:.6g}" for a, v in zip(aims, values, strict=True))])
