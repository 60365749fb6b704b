"""Points of a search with `seeds: k`: trials that differ by their seed only count together, by mean and deviation.

A single good seed says little: Bouthillier et al., "Accounting for variance in machine learning benchmarks",
MLSys 2021. Lists, descriptions and figures all group trials here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from detlab.schemas.wire import TrialView
from detlab.viz.drawing import finite, number


@dataclass(frozen=True)
class SeededPoint:
    """The trials of one point.

    Attributes:
        trials: All of them, in creation order.
        values: Best finite values of those that have one.
    """

    trials: tuple[TrialView, ...]
    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Mean of the values; None if there is none."""
        return sum(self.values) / len(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the sample; None of a single value."""
        if len(self.values) < 2:
            return None
        from statistics import stdev  # takes milliseconds to import

        return stdev(self.values)

    @property
    def spread(self) -> str:
        """Mean ± deviation; empty if no trial has a value."""
        if self.mean is None:
            return ""
        return number(self.mean) + ("" if self.deviation is None else f" ± {self.deviation:.2g}")

    @property
    def text(self) -> str:
        """Mean ± deviation, and of which trials."""
        known = [str(one.id) for one in self.trials if one.best_validation is not None and finite(one.best_validation)]
        named = f"{'trial' if len(known) == 1 else 'trials'} {', '.join(known)}"
        seeds = f"{len(known)} {'seed' if len(known) == 1 else 'seeds'}"
        return f"{self.spread} over {seeds} ({named})" if known else "no value yet"


def seeds_of(config: Mapping[str, Any] | None) -> int:
    """Return with how many seeds the search of a config trains each point."""
    return int(((config or {}).get("searcher") or {}).get("seeds") or 1)


def points_of(trials: Iterable[TrialView]) -> list[SeededPoint]:
    """Group trials with the same hyperparameters, in the order of the first of each."""
    found: dict[str, list[TrialView]] = {}
    for trial in sorted(trials, key=lambda one: one.index):
        # one without hyperparameters yet is no seed of another
        key = str(trial.id) if trial.point_due else json.dumps(trial.hparams, sort_keys=True, default=str)
        found.setdefault(key, []).append(trial)
    return [SeededPoint(tuple(some), _values(some)) for some in found.values()]


def best_point(points: Iterable[SeededPoint], *, smaller_is_better: bool) -> SeededPoint | None:
    """Return the point with the best mean; one value says nothing of other seeds, so two are needed."""
    known = [(one.mean, one) for one in points if one.mean is not None and len(one.values) > 1]
    if not known:
        return None
    return (min if smaller_is_better else max)(known, key=lambda pair: pair[0])[1]


def _values(trials: Iterable[TrialView]) -> tuple[float, ...]:
    values = (trial.best_validation for trial in trials)
    return tuple(float(value) for value in values if value is not None and finite(value))
