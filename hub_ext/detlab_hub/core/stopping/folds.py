"""The stopping policy for folds: a trial whose folds are worse than those of the best one, by a signed-rank test."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, ClassVar, Self

from detlab.schemas.expconf.blocks.stopping import StoppingBlock, WilcoxonStopping
from detlab_hub.core.stopping.policy import Report, StopPolicy, shown

EXACT = 25
"""Folds up to which the distribution of the rank sum is counted out; beyond, it is close to a normal one."""
MOST = 500
"""Folds of a trial that are compared; a trial that reports for ever would take ever longer."""
_LARGEST = 1e300
"""Of a loss: sums of larger ones are no numbers."""


class Wilcoxon(StopPolicy):
    """Stop a trial that is worse than the best one on the folds that both have evaluated.

    Each report is of one fold: the time metric is its number, or else reports are counted. The best trial is the one
    with the smallest mean loss of those that have all folds of this one. Both the mean and Wilcoxon's signed-rank test,
    one-sided, must say that this trial is worse ("Individual comparisons by ranking methods", Biometrics 1945).
    """

    name = "wilcoxon"
    Config: ClassVar[type[StoppingBlock]] = WilcoxonStopping

    def __init__(self, p_value: float = 0.1, min_folds: int = 2, *, running_mean: bool = False) -> None:
        self._p_value = p_value
        self._min_folds = min_folds
        self._running_mean = running_mean
        self._folds: dict[str, dict[float, float]] = {}
        """By trial: the loss of each fold."""
        self._means: dict[str, float] = {}
        self._told: dict[str, list[tuple[float, float]]] = {}
        """By trial: the folds and the running means that it has reported."""

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Make the policy that an entry of `stopping` describes."""
        p_value, least = float(entry.get("p_value") or 0.1), int(entry.get("min_folds") or 2)
        return cls(p_value, least, running_mean=bool(entry.get("running_mean")))

    def reported(self, report: Report) -> str | None:
        """Compare the trial's folds with the same ones of the best trial.

        A fold that is not a number, or too large to be added, is none, and so are those after the first `MOST`.
        """
        key = report.request_id
        folds = self._folds.setdefault(key, {})
        fold = float(len(folds) + 1) if report.time is None else report.time
        if len(folds) >= MOST and fold not in folds:
            return None
        loss = self._of_fold(key, fold, report.loss)
        if not abs(loss) <= _LARGEST:
            return None
        folds[fold] = loss
        self._means[key] = math.fsum(folds.values()) / len(folds)
        best = self._best_beside(key, folds)
        if len(folds) < self._min_folds or best is None:
            return None
        theirs = self._folds[best]
        differences = [loss - theirs[fold] for fold, loss in folds.items()]
        p_value = worse_by_chance(differences)
        if math.fsum(differences) <= 0 or p_value >= self._p_value:
            return None
        mean = math.fsum(theirs[fold] for fold in folds) / len(folds)
        return (
            f"its mean over {len(folds)} folds is {shown(report.sign * self._means[key])}, that of the best trial on"
            f" them {shown(report.sign * mean)}; chance alone would show as much with a probability of {p_value:.2%}"
        )

    def _of_fold(self, key: str, fold: float, loss: float) -> float:
        """Return the loss of the fold itself, where reports have the mean of all folds so far."""
        if not self._running_mean or not math.isfinite(loss):
            return loss
        told = self._told.setdefault(key, [])
        while told and told[-1][0] >= fold:  # a resumed attempt reports a fold again
            told.pop()
        before = len(told) * told[-1][1] if told else 0.0
        told.append((fold, loss))
        return len(told) * loss - before

    def _best_beside(self, key: str, folds: Mapping[float, float]) -> str | None:
        best, mean = None, math.inf
        for other, found in self._means.items():
            if found < mean and other != key and len(self._folds[other]) >= len(folds):
                theirs = self._folds[other]
                if all(fold in theirs for fold in folds):
                    best, mean = other, found
        return best

    def state(self) -> Any:
        """Return the folds of all trials."""
        return {"folds": {key: sorted(one.items()) for key, one in self._folds.items()}, "told": self._told}


def worse_by_chance(differences: Sequence[float]) -> float:
    """Return the probability of differences that are at least as far above zero, if they lie around zero by chance.

    Ties share their ranks; the ranks of zeros are split between both sides.
    """
    ranks = _twice_mean_ranks(Counter(abs(one) for one in differences))
    above = sum(ranks[abs(one)] for one in differences if one > 0)
    counted = [ranks[abs(one)] for one in differences if one != 0]
    if not counted:
        return 1.0
    return _exact(counted, above) if len(counted) <= EXACT else _normal(counted, above)


def _twice_mean_ranks(sizes: Mapping[float, int]) -> dict[float, int]:
    """Return twice the mean rank of each value, by how often there is one: a whole number also of equal values."""
    found, before = {}, 0
    for size in sorted(sizes):
        found[size] = 2 * before + 1 + sizes[size]
        before += sizes[size]
    return found


def _exact(ranks: Sequence[int], above: int) -> float:
    """Count the choices of signs whose sum of positive ranks is at least this."""
    ways = [1] + [0] * sum(ranks)
    reached = 0
    for rank in ranks:
        reached += rank
        for total in range(reached, rank - 1, -1):
            ways[total] += ways[total - rank]
    return sum(ways[above:]) / 2 ** len(ranks)


def _normal(ranks: Sequence[int], above: int) -> float:
    mean, variance = sum(ranks) / 2, sum(rank * rank for rank in ranks) / 4
    return 1 - NormalDist(mean, math.sqrt(variance)).cdf(above - 1)  # half a rank less: twice a rank is 2 apart
