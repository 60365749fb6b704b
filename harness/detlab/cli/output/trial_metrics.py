"""Columns of a table of trials that are metrics: every objective of a search by several, and any that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from detlab.cli.output.printing import clean, note
from detlab.client.resources import Experiment, Trial

MOST_TRIALS = 10_000
_LAST = 2
"""Points of each curve; the last one is always exact."""
MARK = "*"


def metric_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--metric` to a list of trials."""
    about = "Also a column with the last value of this metric; may be given several times."
    return click.option("--metric", "metrics", metavar="NAME", multiple=True, help=about)(function)


@dataclass(frozen=True)
class MetricColumns:
    """What the trials of an experiment reported last.

    Attributes:
        names: The metrics, in the order of their columns.
        values: Trial -> metric -> its last value.
        front: The trials on the Pareto front.
        several: Whether the search has several objectives, so that there is a front.
    """

    names: list[str] = field(default_factory=list)
    values: dict[int, dict[str, float]] = field(default_factory=dict)
    front: frozenset[int] = frozenset()
    several: bool = False

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles of the columns."""
        return (*self.metric_titles, *(("Pareto",) if self.several else ()))

    @property
    def metric_titles(self) -> tuple[str, ...]:
        """Those of the metrics; the best value of the searcher metric has a column of its own."""
        return tuple(f"Last {name}" for name in self.names)

    def cells(self, trial: Trial) -> tuple[object, ...]:
        """Return the cells of a trial."""
        found = self.values.get(trial.id, {})
        mark = (MARK if trial.id in self.front else "",) if self.several else ()
        return (*(found.get(name) for name in self.names), *mark)

    def told(self, trial: Trial) -> dict[str, Any]:
        """Return a trial as JSON values, with what these columns say of it."""
        found = {"metrics": self.values.get(trial.id, {})} if self.names else {}
        front = {"pareto": trial.id in self.front} if self.several else {}
        return {**trial.view.model_dump(mode="json"), **found, **front}


def metric_columns(item: Experiment, asked: Sequence[str] = ()) -> MetricColumns:
    """Ask for the last values of the objectives of a search by several metrics, and of metrics by name.

    A validation metric goes before one of the same name in another group.
    """
    from detlab.viz.data import SearchData, curves_wanted
    from detlab.viz.fronts import constraints, judge, shown_names

    config = item.config or {}
    names = shown_names(config, asked)
    if not names:
        return MetricColumns()
    several = len(shown_names(config)) > 1
    bounds = [bound.name for bound in constraints(config)] if several else []
    every = dict.fromkeys([*names, *bounds])
    wanted = curves_wanted(*every, group="validation", max_trials=MOST_TRIALS, max_points=_LAST)
    snapshot = item.curves(**{**wanted, "group": None})
    values: dict[int, dict[str, float]] = {}
    for series in sorted(snapshot.curves, key=lambda one: one.group == "validation"):
        if series.values and series.name in names:
            values.setdefault(series.trial_id, {})[series.name] = series.values[-1]
    for name in asked:
        if not any(name in found for found in values.values()):
            note(f"warning: no trial of experiment {item.id} has reported {clean(name)!r}")
    front = judge(SearchData(snapshot, config)).on_front if several else ()
    return MetricColumns(names, values, frozenset(front), several)
