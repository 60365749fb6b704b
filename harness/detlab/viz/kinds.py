"""All figures of a search by name, for those who choose one: the client's `plot`, the magic, the master's API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from detlab.schemas.wire import CurvesView
from detlab.viz import ancestry, budget, fronts, importances, landscape, pareto, search
from detlab.viz.data import curves_wanted, trials_wanted
from detlab.viz.marks import MOST_TRIALS


@dataclass(frozen=True)
class FigureKind:
    """One figure.

    Attributes:
        draw: Makes it of a snapshot.
        shows: What it shows, in one line.
        example: Options that are worth trying, as `name=value` in Python.
    """

    draw: Callable[..., Any]
    shows: str
    example: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the function's options."""
        return tuple(name for name in signature(self.draw).parameters if name not in {"source", "now"})


KINDS: dict[str, FigureKind] = {
    "best_so_far": FigureKind(budget.best_so_far, "the best value so far, by trials or time", "against='time'"),
    "learning_curves": FigureKind(search.learning_curves, "the metric of each trial over its steps", "log_y=True"),
    "importance": FigureKind(importances.importance, "which hyperparameters mattered", "method='fanova'"),
    "parallel_coordinates": FigureKind(search.parallel_coordinates, "each trial as a line through its hyperparameters"),
    "metric_by_hyperparameter": FigureKind(search.metric_by_hyperparameter, "the metric against each hyperparameter"),
    "slice": FigureKind(landscape.slice_plot, "the same, coloured from early to late trials", "params=['lr']"),
    "contour": FigureKind(landscape.contour, "the metric over two hyperparameters", "params=['lr', 'layers']"),
    "pareto_front": FigureKind(
        pareto.pareto_front, "the best trials by two or three metrics", "metrics=['loss', 'size']"
    ),
    "timeline": FigureKind(budget.timeline, "which trial held which slot, and when"),
    "lineage": FigureKind(ancestry.lineage, "which trial started from whose checkpoint"),
}


def request(
    kind: str,
    searcher_metric: str,
    *,
    metric: str | None = None,
    group: str = "validation",
    metrics: Sequence[str] | None = None,
    max_trials: int | None = None,
    config: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, Any]:
    """Return which curves a figure needs, as arguments of an experiment's `curves()`.

    Args:
        kind: Name of the figure.
        searcher_metric: The metric of learning curves unless another is named.
        metric: The other one.
        group: Group of the metric.
        metrics: Those of a Pareto front; default those of the config.
        max_trials: How many trials at most; default as many as the figure can show.
        config: The resolved config.
        **_: The figure's other options.
    """
    most = max_trials or MOST_TRIALS
    match kind:
        case "learning_curves":
            return curves_wanted(metric or searcher_metric, group=group, max_trials=max_trials or search.MOST_LINES)
        case "best_so_far":
            return budget.wanted(searcher_metric, max_trials=most)
        case "pareto_front":
            names = fronts.metric_names(config or {}, metrics)
            return fronts.wanted(config or {}, names, max_trials=most) if names else trials_wanted(most)
        case "timeline" | "lineage":
            return trials_wanted(most, history=True)
    return trials_wanted(most)


def plot(
    snapshot: CurvesView, kind: str = "learning_curves", *, config: Mapping[str, Any] | None, **options: Any
) -> Any:
    """Draw one of the figures of a search by its name, from a snapshot of `request` and the experiment's config.

    Args:
        snapshot: What `curves()` returned.
        kind: One of `KINDS`.
        config: The resolved config: it says which hyperparameters are searched on a logarithmic scale.
        **options: Those of the function of that name.

    Raises:
        ValueError: There is no such figure.
        DetlabError: plotly is not installed.
    """
    if kind not in KINDS:
        raise ValueError(f"no figure {kind!r}: choose one of {', '.join(KINDS)}")
    known = snapshot.experiment.model_copy(update={"config": dict(config) if config else None})
    return KINDS[kind].draw(snapshot.model_copy(update={"experiment": known}), **options)
