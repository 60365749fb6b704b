"""The stopping policies that evaluate a trial by its own reports: no improvement, thresholds, divergence, time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from detlab.schemas.expconf.blocks.stopping import (
    DivergenceStopping,
    NoImprovementStopping,
    StoppingBlock,
    ThresholdStopping,
    WallClockStopping,
)
from detlab_hub.core.stopping.policy import Report, StopPolicy, shown


class NoImprovement(StopPolicy):
    """Stop after `patience` reports in a row that do not improve on the best one by more than `min_delta`."""

    name = "no_improvement"
    Config: ClassVar[type[StoppingBlock]] = NoImprovementStopping

    def __init__(self, patience: int, min_delta: float = 0.0) -> None:
        self._patience = patience
        self._min_delta = min_delta
        self._best: dict[str, tuple[float, float]] = {}
        """By trial: the loss to beat, and the metric reported with it."""
        self._since: dict[str, list[tuple[float, float]]] = {}
        """By trial: loss and metric of each report since then."""

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        return cls(int(entry["patience"]), float(entry.get("min_delta") or 0.0))

    def reported(self, report: Report) -> str | None:
        """Compare with the best report; a report that is not a number improves nothing."""
        key, loss = report.request_id, math.inf if math.isnan(report.loss) else report.loss
        best = self._best.get(key)
        if best is None or loss < best[0] - self._min_delta:
            self._best[key], self._since[key] = (loss, report.metric), []
            return None
        since = self._since[key]
        since.append((loss, report.metric))
        if len(since) < self._patience:
            return None
        found, needed = min(since)[1], best[1] - report.sign * self._min_delta
        reports = "the last report" if len(since) == 1 else f"the best of the last {len(since)} reports"
        return f"{reports} is {shown(found)}, better than {shown(needed)} was needed"

    def state(self) -> Any:
        """Return the best reports and those since."""
        return {key: [*best, self._since[key]] for key, best in self._best.items()}


class Threshold(StopPolicy):
    """Stop at a metric outside of `lower` and `upper`, from report number `after` on.

    On the good side a goal is reached, on the bad side the trial is given up: both save the rest of the training.

    Args:
        lower: Smallest value that lets it continue; None for no limit.
        upper: Likewise the largest.
        after: The first report that counts.
        metric: Which metric of the search; None for the searcher's.
    """

    name = "threshold"
    Config: ClassVar[type[StoppingBlock]] = ThresholdStopping

    def __init__(self, lower: float | None, upper: float | None, after: int = 1, metric: str | None = None) -> None:
        self._lower = lower
        self._upper = upper
        self._after = after
        self._metric = metric
        self._count: dict[str, int] = {}

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        return cls(entry.get("lower"), entry.get("upper"), int(entry.get("after") or 1), entry.get("metric"))

    def reported(self, report: Report) -> str | None:
        """Compare with the limits; a metric that is not a number is outside of none."""
        count = self._count[report.request_id] = self._count.get(report.request_id, 0) + 1
        if count < self._after:
            return None
        value = report.metric if self._metric is None else report.values.get(self._metric, report.metric)
        named = f"{self._metric} " if self._metric else ""
        if self._lower is not None and value < self._lower:
            return f"{named}{shown(value)} is below {shown(self._lower)}"
        if self._upper is not None and value > self._upper:
            return f"{named}{shown(value)} is above {shown(self._upper)}"
        return None

    def state(self) -> Any:
        """Return how often each trial reported."""
        return dict(self._count)


class Divergence(StopPolicy):
    """Stop at a metric that is not a finite number, or that is `factor` times as far from zero as the best one.

    The factor counts on the bad side only, and needs a best report that is not zero.
    """

    name = "divergence"
    Config: ClassVar[type[StoppingBlock]] = DivergenceStopping

    def __init__(self, factor: float | None = None, patience: int = 1) -> None:
        self._factor = factor
        self._patience = patience
        self._best: dict[str, float] = {}
        self._bad: dict[str, int] = {}
        """By trial: reports in a row that have diverged."""

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        return cls(entry.get("factor"), int(entry.get("patience") or 1))

    def reported(self, report: Report) -> str | None:
        """Count reports in a row that have diverged."""
        key = report.request_id
        why = self._why(report)
        if why is None:
            self._best[key] = min(self._best.get(key, math.inf), report.loss)
            self._bad.pop(key, None)
            return None
        count = self._bad[key] = self._bad.get(key, 0) + 1
        if count < self._patience:
            return None
        return why if count == 1 else f"{why}, {count} reports in a row"

    def _why(self, report: Report) -> str | None:
        if not math.isfinite(report.loss):
            return f"the metric is {shown(report.metric)}"
        best = self._best.get(report.request_id)
        if self._factor is None or best is None or best == 0 or report.loss <= best:
            return None
        if report.loss <= best + (self._factor - 1) * abs(best):
            return None
        return f"{shown(report.metric)} is more than {self._factor:g} times off the best, {shown(report.sign * best)}"

    def state(self) -> Any:
        """Return the best reports and the counts."""
        return {"best": dict(self._best), "bad": dict(self._bad)}


class WallClock(StopPolicy):
    """Stop at the first report after a trial has run for so many seconds; time in the queue and pauses do not count."""

    name = "wall_clock"
    Config: ClassVar[type[StoppingBlock]] = WallClockStopping
    wants_elapsed = True

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        return cls(float(entry["seconds"]))

    def reported(self, report: Report) -> str | None:
        """Compare the trial's running time with the limit."""
        if report.elapsed is None or report.elapsed < self._seconds:
            return None
        return f"it has run for {report.elapsed:.0f} s, the limit is {self._seconds:g} s"

    def state(self) -> Any:
        """Return nothing: each report has its trial's running time."""
        return None
