"""The stopping policies that compare a trial with the others, or with a forecast of its own curve."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, ClassVar, Self

from detlab.schemas.expconf.blocks.stopping import (
    CurveStopping,
    MedianStopping,
    PercentileStopping,
    StoppingBlock,
)
from detlab_hub.core.stopping.policy import Report, StopPolicy, shown


@dataclass
class _Curve:
    """A trial's reports: how far it had trained, and its smallest loss until then."""

    at: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)

    def add(self, time: float, loss: float) -> None:
        smallest = min(loss, self.best[-1]) if self.best else loss
        if self.at and time <= self.at[-1]:  # a resumed attempt reports a step again
            place = bisect.bisect_left(self.at, time)
            del self.at[place:], self.best[place:]
            smallest = min(loss, self.best[-1]) if self.best else loss
        self.at.append(time)
        self.best.append(smallest)

    def until(self, time: float) -> float | None:
        """Return the smallest loss until then; None if the trial has not trained as far."""
        if not self.at or self.at[-1] < time:
            return None
        place = bisect.bisect_right(self.at, time)
        return self.best[place - 1] if place else None


class _Curves:
    def __init__(self) -> None:
        self._by_trial: dict[str, _Curve] = {}
        self._counts: dict[str, int] = {}

    def add(self, report: Report) -> tuple[float, _Curve]:
        """Add a report; return how far its trial has trained and its curve. Without a time metric, reports count."""
        key = report.request_id
        self._counts[key] = self._counts.get(key, 0) + 1
        time = float(self._counts[key]) if report.time is None else report.time
        curve = self._by_trial.setdefault(key, _Curve())
        curve.add(time, math.inf if math.isnan(report.loss) else report.loss)
        return time, curve

    def others(self, key: str, time: float) -> list[float]:
        """Return the smallest loss until then of each other trial that has trained as far."""
        found = (curve.until(time) for other, curve in self._by_trial.items() if other != key)
        return [loss for loss in found if loss is not None]

    def state(self) -> Any:
        return {key: [curve.at, curve.best, self._counts[key]] for key, curve in self._by_trial.items()}


class Percentile(StopPolicy):
    """Stop a trial whose best metric is worse than that of `percentile` percent of the trials that have trained as far.

    Golovin et al., "Google Vizier" (KDD 2017), section 3.2, has the rule with the median.
    """

    name = "percentile"
    Config: ClassVar[type[StoppingBlock]] = PercentileStopping
    wants_time = True

    def __init__(self, percentile: float, min_trials: int = 5, warmup: float = 0.0) -> None:
        self._percentile = percentile
        self._min_trials = min_trials
        self._warmup = warmup
        self._curves = _Curves()

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        return cls(
            float(entry.get("percentile", 50.0)), int(entry.get("min_trials") or 5), float(entry.get("warmup") or 0)
        )

    def reported(self, report: Report) -> str | None:
        """Compare with the trials that have trained as far."""
        time, curve = self._curves.add(report)
        if time < self._warmup:
            return None
        others = sorted(self._curves.others(report.request_id, time))
        if len(others) < self._min_trials:
            return None
        limit = others[min(max(math.ceil(len(others) * self._percentile / 100) - 1, 0), len(others) - 1)]
        if curve.best[-1] <= limit:
            return None
        own, needed = shown(report.sign * curve.best[-1]), shown(report.sign * limit)
        by_then = f"{self._percentile:g} % of {len(others)} trials had {needed} or better by then"
        return f"the best metric is {own}; {by_then}"

    def state(self) -> Any:
        """Return the curves."""
        return self._curves.state()


class Median(Percentile):
    """Stop a trial whose best metric is worse than the median of the trials that have trained as far."""

    name = "median"
    Config: ClassVar[type[StoppingBlock]] = MedianStopping

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        return cls(50.0, int(entry.get("min_trials") or 5), float(entry.get("warmup") or 0))


class CurveForecast(StopPolicy):
    """Stop a trial that will end worse than the best one, with the stated confidence.

    Its losses are fitted by a + b t^-c, c on a grid, as in Domhan et al. (IJCAI 2015) with one of their families; the
    spread of the residuals gives the spread of the forecast.
    """

    name = "curve"
    Config: ClassVar[type[StoppingBlock]] = CurveStopping
    wants_time = True

    def __init__(self, end: float, confidence: float = 0.95, min_reports: int = 5) -> None:
        self._end = end
        self._confidence = confidence
        self._min_reports = max(min_reports, 4)
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._finished: dict[str, float] = {}
        """Smallest loss of each trial that was trained to the end."""

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        return cls(float(entry["end"]), float(entry.get("confidence") or 0.95), int(entry.get("min_reports") or 5))

    def reported(self, report: Report) -> str | None:
        """Compare the forecast of the trial's end with the best trial that has ended."""
        if report.time is None or not math.isfinite(report.loss) or report.time <= 0:
            return None
        points = self._points.setdefault(report.request_id, [])
        while points and points[-1][0] >= report.time:
            points.pop()
        points.append((report.time, report.loss))
        if report.time >= self._end:
            best = min(loss for _, loss in points)
            self._finished[report.request_id] = min(best, self._finished.get(report.request_id, math.inf))
            return None
        if len(points) < self._min_reports or not self._finished:
            return None
        mean, spread = forecast(points, self._end)
        goal = min(self._finished.values())
        worse = 1 - NormalDist(mean, max(spread, 1e-12)).cdf(goal)
        if worse < self._confidence:
            return None
        return (
            f"it is expected to reach {shown(report.sign * mean)} ± {shown(spread)} at {self._end:g}; the best trial"
            f" reached {shown(report.sign * goal)}, and this one will not, with a probability of {worse:.1%}"
        )

    def state(self) -> Any:
        """Return the points and the ends."""
        return {"points": self._points, "finished": self._finished}


_EXPONENTS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)


def forecast(points: Sequence[tuple[float, float]], end: float) -> tuple[float, float]:
    """Return mean and standard deviation of a curve at `end`.

    Args:
        points: (time, loss) of at least 3 reports, times above 0, ascending.
        end: A later time.
    """
    fits = [_fit(points, exponent, end) for exponent in _EXPONENTS]
    _, mean, spread = min(fits)
    return mean, spread


def _fit(points: Sequence[tuple[float, float]], exponent: float, end: float) -> tuple[float, float, float]:
    """Fit a + b t^-c by least squares; return the squared error, the value at `end` and its standard deviation."""
    xs = [time**-exponent for time, _ in points]
    count, x_mean = len(points), sum(xs) / len(points)
    y_mean = sum(loss for _, loss in points) / count
    width = sum((x - x_mean) ** 2 for x in xs) or 1e-300
    slope = sum((x - x_mean) * (loss - y_mean) for x, (_, loss) in zip(xs, points, strict=True)) / width
    error = sum((loss - y_mean - slope * (x - x_mean)) ** 2 for x, (_, loss) in zip(xs, points, strict=True))
    away = end**-exponent - x_mean
    variance = error / max(count - 2, 1) * (1 + 1 / count + away**2 / width)
    return error, y_mean + slope * away, math.sqrt(variance)
