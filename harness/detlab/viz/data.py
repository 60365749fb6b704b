"""A search as figures need it: which trials there are, what differs between them, and how good each one is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from detlab.schemas.wire import CurvesView, EndReason, ExperimentView, SeriesView, TrialState, TrialView
from detlab.viz.drawing import finite
from detlab.viz.seeds import SeededPoint, best_point, points_of, seeds_of

Value = float | str | None
_NO_CURVES = "-"
"""A group that no report can have: the figure needs the trials only."""
_LOG_SPAN = 50
"""A positive hyperparameter without an entry in the config has a log axis if it spans more than this factor."""


class ExperimentLike(Protocol):
    """What figures need of `detlab.client.Experiment`."""

    @property
    def config(self) -> dict[str, Any] | None:
        """The resolved config, None if it was not loaded."""

    @property
    def view(self) -> ExperimentView:
        """What the master last said of it."""

    def curves(
        self,
        *,
        group: str | None = None,
        name: str | None = None,
        max_points: int | None = None,
        max_trials: int | None = None,
        history: bool = False,
    ) -> CurvesView:
        """Return a snapshot of trials and curves, with attempts and parents if `history`."""


@dataclass(frozen=True)
class HyperparameterAxis:
    """One hyperparameter on which the trials differ.

    Attributes:
        name: `a.b` of nested hyperparameters.
        kind: How its axis is drawn.
        values: Its value by trial id; None where a trial lacks it or has no finite number.
        choices: Of a category: its values in the order of the config, then the others by name.
    """

    name: str
    kind: str
    values: dict[int, Value]
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchData:
    """An experiment's trials and curves at one moment.

    Attributes:
        snapshot: As the master sent it.
        config: The resolved config; empty if it is unknown.
        points: With `seeds`, in a search `by_point`: the trials of each point by the id of the first, which stands
            for the point and has the mean as its value.
    """

    snapshot: CurvesView
    config: Mapping[str, Any]
    points: Mapping[int, SeededPoint] = field(default_factory=dict)

    def by_point(self) -> SearchData:
        """Return the search with one trial for each point, if it trains points with several seeds; else itself."""
        if seeds_of(self.config) < 2:
            return self
        points = {point.trials[0].id: point for point in points_of(self.snapshot.trials)}
        trials = [point.trials[0].model_copy(update={"best_validation": point.mean}) for point in points.values()]
        return SearchData(self.snapshot.model_copy(update={"trials": trials}), self.config, points)

    @property
    def experiment(self) -> ExperimentView:
        """The experiment."""
        return self.snapshot.experiment

    @property
    def metric(self) -> str:
        """Name of the searcher metric."""
        return self.experiment.metric

    @property
    def best(self) -> int | None:
        """Id of the trial with the best validation, if there is one; of the point with the best mean."""
        if self.points:
            best = best_point(self.points.values(), smaller_is_better=self.experiment.smaller_is_better)
            return best.trials[0].id if best else next(iter(self.ranked()), None)
        if self.experiment.best:
            return self.experiment.best.trial_id
        return next(iter(self.ranked()), None)

    def ranked(self) -> dict[int, float]:
        """Return the best finite validation by trial id, best trial first."""
        values = [(t.id, t.best_validation) for t in self.snapshot.trials]
        found = [(key, value) for key, value in values if value is not None and finite(value)]
        return dict(sorted(found, key=lambda item: item[1], reverse=not self.experiment.smaller_is_better))

    def curves(self, metric: str, group: str) -> list[tuple[TrialView, SeriesView]]:
        """Return the curves of one metric with their trials, in creation order."""
        trials = {trial.id: trial for trial in self.snapshot.trials}
        found = [c for c in self.snapshot.curves if (c.name, c.group) == (metric, group) and c.trial_id in trials]
        return sorted(((trials[c.trial_id], c) for c in found), key=lambda pair: pair[0].index)

    def axes(self) -> list[HyperparameterAxis]:
        """Return the hyperparameters on which the trials differ, by name."""
        scales = _scales(self.config.get("hyperparameters"))
        flat = {trial.id: flatten(trial.hparams) for trial in self.snapshot.trials}
        names = sorted({name for values in flat.values() for name in values})
        made = (_axis(name, {key: flat[key].get(name) for key in flat}, scales.get(name)) for name in names)
        return [axis for axis in made if len({value for value in axis.values.values() if value is not None}) > 1]


def search_of(source: ExperimentLike | CurvesView, wanted: Mapping[str, Any]) -> SearchData:
    """Return the search that a figure is made of; an experiment is asked for a snapshot.

    Args:
        source: An experiment of the blocking client, or a snapshot of `curves()` of either client.
        wanted: Which curves to ask the experiment for.
    """
    if isinstance(source, CurvesView):
        return SearchData(source, source.experiment.config or {})
    return SearchData(source.curves(**wanted), source.config or {})


def trials_wanted(max_trials: int, *, history: bool = False) -> dict[str, Any]:
    """Return the arguments of an experiment's `curves()` for a figure that needs no curves."""
    return {"group": _NO_CURVES, "max_trials": max_trials, **({"history": True} if history else {})}


def curves_wanted(
    *names: str, group: str, max_trials: int, max_points: int | None = None, history: bool = False
) -> dict[str, Any]:
    """Return the arguments of an experiment's `curves()` for a figure of these metrics."""
    # the master takes a comma for the end of a name
    name = None if any("," in one for one in names) else ",".join(names)
    wanted: dict[str, Any] = {"group": group, "name": name, "max_trials": max_trials}
    if max_points is not None:
        wanted["max_points"] = max_points
    return {**wanted, "history": True} if history else wanted


def stopped_or_failed(trial: TrialView) -> bool:
    """Return whether a trial was stopped early, was canceled or failed."""
    early = trial.end_reason is EndReason.STOPPED and trial.progress < 1.0
    return early or trial.state in {TrialState.ERROR, TrialState.CANCELED}


def flatten(hparams: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested hyperparameters as `a.b` -> number or text."""
    flat: dict[str, Any] = {}
    for key, value in hparams.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = _scalar(value)
    return flat


def _scalar(value: object) -> Value:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return json.dumps(value, default=str)


def _scales(entries: object, prefix: str = "") -> dict[str, Mapping[str, Any]]:
    """Return the entries of the config that say how to search a hyperparameter, by flat name."""
    found: dict[str, Mapping[str, Any]] = {}
    for key, entry in entries.items() if isinstance(entries, Mapping) else ():
        if isinstance(entry, Mapping) and "type" not in entry:
            found |= _scales(entry, f"{prefix}{key}.")
        elif isinstance(entry, Mapping):
            found[f"{prefix}{key}"] = entry
    return found


def _axis(name: str, values: dict[int, Any], scale: Mapping[str, Any] | None) -> HyperparameterAxis:
    kind = (scale or {}).get("type")
    present = [value for value in values.values() if value is not None]
    if kind in {"categorical", "ordinal"} or any(isinstance(value, str) for value in present):
        listed = [str(_scalar(choice)) for choice in (scale or {}).get("vals", ())]
        seen = {str(value) for value in present}
        order = [text for text in dict.fromkeys(listed) if text in seen] + sorted(seen - set(listed))
        return HyperparameterAxis(
            name, "category", {k: None if v is None else str(v) for k, v in values.items()}, tuple(order)
        )
    numbers = {key: value if finite(value) else None for key, value in values.items()}
    drawn = [value for value in numbers.values() if value is not None]
    positive = bool(drawn) and min(drawn) > 0
    log = (
        kind == "log"
        or bool((scale or {}).get("log"))
        or (kind not in {"int", "double"} and positive and max(drawn) / min(drawn) > _LOG_SPAN)
    )
    return HyperparameterAxis(name, "log" if log and positive else "linear", numbers)
