"""What a report says of searches by several numbers: objectives, constraints, seeds, and trials that are invalid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

from detlab.reports.facts import ReportedExperiment
from detlab.reports.fragments import HubLinks, TableCell, amount, line_of, number, shown, words
from detlab.schemas.wire import EndReason, TrialView
from detlab.viz import fronts, seeds
from detlab.viz.data import SearchData

MOST_JUDGED = 500
"""Trials of a search by several numbers that are compared."""
_LISTED = 20
_ON_FRONT = "★"


class JudgedTrials:
    """The trials of an experiment as its search compares them.

    Args:
        one: The experiment, with its `results`, if it has several numbers.
    """

    def __init__(self, one: ReportedExperiment) -> None:
        self._view, self._results = one.view, one.results
        known = one.results or one.curves
        self._known: Sequence[TrialView] = known.trials if known else ()
        config = one.view.config or {}
        self._objectives, self._bounds = fronts.objectives(config), fronts.constraints(config)
        self._seeds = seeds.seeds_of(config)

    @property
    def several(self) -> bool:
        """Whether the search has more than one objective, and thus no best trial."""
        return len(self._objectives) > 1

    @cached_property
    def _found(self) -> fronts.Judged | None:
        if self._results is None:
            return None
        search = SearchData(self._results.model_copy(update={"experiment": self._view}), self._view.config or {})
        return fronts.judge(search, None if self.several else [self._view.metric])

    @cached_property
    def _key_of(self) -> Mapping[int, int]:
        """By which trial each is judged: of those of one point, by the first."""
        found = self._found
        if found is None:
            return {}
        of_points = {trial: key for key, trials in found.seeds.items() for trial in trials}
        return of_points or {key: key for key in found.points}

    @cached_property
    def _points(self) -> Mapping[int, seeds.SeededPoint]:
        if self._seeds < 2 or self._results is None:
            return {}
        return {trial.id: point for point in seeds.points_of(self._results.trials) for trial in point.trials}

    @property
    def front(self) -> Sequence[int]:
        """The trials on the Pareto front; of a search with seeds, the first of each point."""
        return self._found.front if self._found is not None and self.several else ()

    @property
    def trials(self) -> Sequence[TrialView]:
        """Those on the front."""
        wanted = set(self.front)
        return [one for one in self._results.trials if one.id in wanted] if self._results else []

    def facts(self, links: HubLinks) -> list[tuple[str, str]]:
        """Return names of ours with HTML."""
        better = {True: "smaller is better", False: "greater is better"}
        aims = [f"{one.name} ({better[one.smaller_is_better]})" for one in self._objectives] if self.several else []
        best = seeds.best_point(self._points.values(), smaller_is_better=self._view.smaller_is_better)
        invalid = [one.id for one in self._known if is_invalid(one)]
        front = [f"{links.to(f'trial {key}', 'trials', key)}: {self._values(key)}" for key in self.front[:_LISTED]]
        more = [f"and {len(self.front) - _LISTED} more"] if len(self.front) > _LISTED else []
        return [
            ("Objectives", shown(", ".join(aims))),
            ("Constraints", shown(", ".join(map(_bound_text, self._bounds)))),
            ("Pareto front", "<br>".join(front + more)),
            ("Best of its points", shown(f"{self._view.metric} {best.text}") if best and not self.several else ""),
            ("Seeds", f"{self._seeds} of each point" if self._seeds > 1 else ""),
            ("Invalid", shown(_counted(invalid))),
        ]

    def _values(self, key: int) -> str:
        found = self._found
        values = {} if found is None else found.metrics(key)
        told = ", ".join(f"{name} {number(value)}" for name, value in values.items())
        return shown(f"{told}, means over its seeds" if self._seeds > 1 else told)

    @cached_property
    def columns(self) -> list[tuple[str, Callable[[TrialView], TableCell], bool]]:
        """Title, cell of a trial, and whether it is a number, of the columns beside those of any search."""
        names = [one.name for one in self._objectives] if self.several else []
        names = list(dict.fromkeys([*names, *(one.name for one in self._bounds)]))
        values = [(line_of(name, 40), partial(self._value, name), True) for name in names]
        front = [("Front", self._mark, False)] if self.several else []
        kept = [("Constraints", self._kept, False)] if self._bounds else []
        return [*front, *values, *kept, *([("Mean ± sd", self._spread, True)] if self._seeds > 1 else [])]

    def _mark(self, trial: TrialView) -> TableCell:
        return words(_ON_FRONT if self._found is not None and trial.id in self._found.on_front else "")

    def _value(self, name: str, trial: TrialView) -> TableCell:
        key = self._key_of.get(trial.id)
        return amount(None if self._found is None or key is None else self._found.metrics(key).get(name))

    def _kept(self, trial: TrialView) -> TableCell:
        key = self._key_of.get(trial.id)
        if self._found is None or key is None:
            return words("")
        return words("broken" if self._found.points[key].violation > 0 else "kept")

    def _spread(self, trial: TrialView) -> TableCell:
        point = self._points.get(trial.id)
        return words("" if point is None else point.spread)


def is_invalid(trial: TrialView) -> bool:
    """Whether a trial's hyperparameters were refused by its code."""
    return trial.end_reason is EndReason.INVALID_HP


def _counted(ids: Sequence[int]) -> str:
    if not ids:
        return ""
    named = ", ".join(map(str, ids[:_LISTED])) + (", …" if len(ids) > _LISTED else "")
    return f"{len(ids)} trial{'' if len(ids) == 1 else 's'} with invalid hyperparameters: {named}"


def _bound_text(one: fronts.FrontBound) -> str:
    low = [] if one.low == -math.inf else [f"at least {number(one.low)}"]
    high = [] if one.high == math.inf else [f"at most {number(one.high)}"]
    return f"{one.name} {' and '.join([*low, *high])}"
