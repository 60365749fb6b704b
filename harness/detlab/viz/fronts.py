"""Which trials are on the Pareto front of a search: those that keep its constraints and that none of them beats."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detlab.schemas.wire import SeriesView, TrialView
from detlab.viz.data import SearchData, curves_wanted
from detlab.viz.drawing import finite, safe
from detlab.viz.seeds import SeededPoint, points_of, seeds_of

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


@dataclass(frozen=True)
class FrontBound:
    """The range that a constrained metric must keep."""

    name: str
    low: float = -math.inf
    high: float = math.inf

    def violation(self, value: float | None) -> float:
        """Return by how much a value is outside; without a number it is outside by an infinite amount."""
        if value is None or math.isnan(value):
            return math.inf
        return max(self.low - value, value - self.high, 0.0)


@dataclass(frozen=True)
class FrontPoint:
    """The report by which a trial is judged: the last one that has all metrics, with finite values.

    Attributes:
        trial: The trial.
        step: Where the report was made.
        time: When; None if that is not known.
        values: One for each objective.
        constrained: One for each constraint; None where the report lacks it.
        violation: By how much it breaks the constraints; 0 if it keeps them all.
    """

    trial: TrialView
    step: int
    time: float | None
    values: tuple[float, ...]
    constrained: tuple[float | None, ...] = ()
    violation: float = 0.0


@dataclass(frozen=True)
class Judged:
    """The trials of a search by several metrics.

    Attributes:
        aims: The metrics.
        bounds: The constraints whose metrics were reported.
        points: By trial id, in creation order; of a search with seeds one for each point, by the id of the first of its
            trials that has one, with the means of all that have.
        front: Ids of the trials on the front, by their first metric, best first; all of them keep the constraints.
    """

    aims: list[Objective]
    bounds: list[FrontBound]
    points: dict[int, FrontPoint]
    front: list[int]
    seeds: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of a search with seeds: the trials of each point."""

    @property
    def on_front(self) -> frozenset[int]:
        """Ids of all trials on the front; of a search with seeds, those of its points."""
        return frozenset(trial for key in self.front for trial in self.seeds.get(key, (key,)))

    @property
    def infeasible(self) -> list[int]:
        """Ids of the trials that break a constraint."""
        return [key for key, point in self.points.items() if point.violation > 0]

    def metrics(self, key: int) -> dict[str, float | None]:
        """Return the values of a trial by metric: of the objectives, then of the constraints."""
        point = self.points[key]
        names = [aim.name for aim in self.aims] + [bound.name for bound in self.bounds]
        return dict(zip(names, (*point.values, *point.constrained), strict=True))


def judge(search: SearchData, metrics: Sequence[str] | None = None, maximize: Collection[str] = ()) -> Judged:
    """Judge the trials of a search.

    Args:
        search: With the curves that `wanted` names.
        metrics: Names of validation metrics; default those of `searcher.metrics`.
        maximize: Those of them of which greater values are better. The searcher's own metrics need no mention.
    """
    names = metric_names(search.config, metrics)
    aims = [_aim(search, name, maximize) for name in names]
    bounds = [one for one in constraints(search.config) if search.curves(one.name, "validation")]
    points = _points(search, names, bounds)
    seeds: dict[int, tuple[int, ...]] = {}
    if seeds_of(search.config) > 1:
        points, seeds = _means(points_of(search.snapshot.trials), points, bounds)
    feasible = {key: point.values for key, point in points.items() if point.violation == 0}
    return Judged(aims, bounds, points, frontier(feasible, aims), seeds)


def marked(
    config: Mapping[str, Any], values: Mapping[int, Mapping[str, float]], trials: Iterable[TrialView] = ()
) -> frozenset[int]:
    """Return the trials on the Pareto front by their last values; none of a search by fewer than two metrics.

    Args:
        config: The experiment's.
        values: Trial -> metric -> its last value.
        trials: The trials; of a search with seeds those of a point count together, by their means.
    """
    seeds = _seeds(config, trials)
    values = {
        key: _mean_values([values[trial] for trial in ids if trial in values]) for key, ids in seeds.items()
    } or values
    aims, bounds = objectives(config), constraints(config)
    if len(aims) < 2:
        return frozenset()
    points = {
        trial: tuple(found[aim.name] for aim in aims)
        for trial, found in values.items()
        if all(finite(found.get(aim.name)) for aim in aims)
        and not any(bound.violation(found.get(bound.name)) for bound in bounds)
    }
    return frozenset(trial for key in frontier(points, aims) for trial in seeds.get(key, (key,)))


def _seeds(config: Mapping[str, Any], trials: Iterable[TrialView]) -> dict[int, tuple[int, ...]]:
    """Return the trials of each point by the id of the first; nothing of a search without seeds."""
    if seeds_of(config) < 2:
        return {}
    return {point.trials[0].id: tuple(one.id for one in point.trials) for point in points_of(trials)}


def _mean_values(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of the metrics that all trials have."""
    common = set(found[0]).intersection(*found[1:]) if found else set()
    return {name: sum(one[name] for one in found) / len(found) for name in common}


def shown_names(config: Mapping[str, Any], asked: Sequence[str] = ()) -> list[str]:
    """Return the metrics that a table of trials has columns of: all objectives of several, and those asked for."""
    aims = [aim.name for aim in objectives(config)]
    return list(dict.fromkeys([*(aims if len(aims) > 1 else ()), *asked]))


def metric_names(config: Mapping[str, Any], metrics: Sequence[str] | None) -> list[str]:
    """Return the metrics that were asked for, or those of the config."""
    return list(dict.fromkeys(metrics or [one.name for one in objectives(config)]))


def wanted(config: Mapping[str, Any], names: Sequence[str], *, max_trials: int) -> dict[str, Any]:
    """Return the arguments of `curves()` for a Pareto front of these metrics under the config's constraints."""
    every = dict.fromkeys([*names, *(one.name for one in constraints(config))])
    return curves_wanted(*every, group="validation", max_trials=max_trials, max_points=_LAST)


def objectives(config: Mapping[str, Any]) -> list[Objective]:
    """Return the metrics of a config's searcher."""
    searcher = config.get("searcher")
    listed = searcher.get("metrics") if isinstance(searcher, Mapping) else None
    return [
        Objective(str(entry["name"]), bool(entry.get("smaller_is_better", True)))
        for entry in (listed if isinstance(listed, Sequence) else ())
        if isinstance(entry, Mapping) and "name" in entry
    ]


def constraints(config: Mapping[str, Any]) -> list[FrontBound]:
    """Return the constraints of a config's searcher."""
    searcher = config.get("searcher")
    given = searcher.get("constraints") if isinstance(searcher, Mapping) else None
    return [
        FrontBound(str(name), _limit(one.get("min"), -math.inf), _limit(one.get("max"), math.inf))
        for name, one in (given.items() if isinstance(given, Mapping) else ())
        if isinstance(one, Mapping)
    ]


def _limit(given: object, otherwise: float) -> float:
    return float(given) if isinstance(given, int | float) else otherwise


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


def _aim(search: SearchData, name: str, maximize: Collection[str]) -> Objective:
    for known in objectives(search.config):
        if known.name == name:
            return known
    if name == search.metric:
        return Objective(name, search.experiment.smaller_is_better)
    return Objective(name, name not in maximize)


def _points(search: SearchData, names: Sequence[str], bounds: Sequence[FrontBound]) -> dict[int, FrontPoint]:
    curves: dict[int, dict[str, SeriesView]] = {trial.id: {} for trial in search.snapshot.trials}
    for name in dict.fromkeys([*names, *(bound.name for bound in bounds)]):
        for trial, curve in search.curves(name, "validation"):
            curves[trial.id][name] = curve
    points = {}
    for trial in sorted(search.snapshot.trials, key=lambda trial: trial.index):
        point = _last(trial, curves[trial.id], names, bounds)
        if point is not None:
            points[trial.id] = point
    return points


def _means(
    seeded: Sequence[SeededPoint], points: Mapping[int, FrontPoint], bounds: Sequence[FrontBound]
) -> tuple[dict[int, FrontPoint], dict[int, tuple[int, ...]]]:
    """Return one point for the trials that differ by their seed only, with the means, and which trials these are."""
    found: dict[int, FrontPoint] = {}
    seeds = {}
    for one in seeded:
        known = [points[trial.id] for trial in one.trials if trial.id in points]
        if known:
            values = tuple(sum(column) / len(known) for column in zip(*(point.values for point in known), strict=True))
            given = tuple(map(_mean, zip(*(point.constrained for point in known), strict=True)))
            broken = sum((bound.violation(value) for bound, value in zip(bounds, given, strict=True)), 0.0)
            newest = max(known, key=lambda point: point.step)
            key = known[0].trial.id
            found[key] = FrontPoint(known[0].trial, newest.step, newest.time, values, given, broken)
            seeds[key] = tuple(point.trial.id for point in known)
    return found, seeds


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _last(
    trial: TrialView, curves: Mapping[str, SeriesView], names: Sequence[str], bounds: Sequence[FrontBound]
) -> FrontPoint | None:
    """Return the point at the last step that has a finite value of each metric."""
    if not names or any(name not in curves for name in names):
        return None
    at = {name: dict(zip(curve.steps, curve.values, strict=True)) for name, curve in curves.items()}
    common = [step for step in at[names[0]] if all(finite(at[name].get(step)) for name in names)]
    if not common:
        return None
    step = max(common)
    given = tuple(at.get(bound.name, {}).get(step) for bound in bounds)
    broken = sum((bound.violation(value) for bound, value in zip(bounds, given, strict=True)), 0.0)
    when = {at: time for name in names for at, time in zip(curves[name].steps, curves[name].times, strict=False)}
    return FrontPoint(trial, step, when.get(step), tuple(at[name][step] for name in names), given, broken)
