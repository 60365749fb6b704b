"""What canaries can tell: the area under the curve of two groups of losses, and lower bounds of what they show.

Pure, and without torch, so that a policy whose canaries are too few for its bounds is refused before anything runs.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

_STEPS = 60
"""Of bisections: a double has no more digits."""


def area(planted: Sequence[float], held_out: Sequence[float]) -> float:
    """Return how often a planted canary has a smaller loss than one that was held out; ties count half.

    A loss that is not a number counts as infinite.
    """
    others = sorted(math.inf if math.isnan(one) else one for one in held_out)
    found = 0.0
    for one in planted:
        loss = math.inf if math.isnan(one) else one
        low, high = bisect.bisect_left(others, loss), bisect.bisect_right(others, loss)
        found += (len(others) - high) + (high - low) / 2
    return found / (len(planted) * len(others))


def area_error(true: float, planted: int, held_out: int) -> float:
    """Return the standard error of an estimated area, if it is this.

    Hanley and McNeil, "The meaning and use of the area under a ROC curve", Radiology 143 (1982), equation 2.
    """
    one, two = true / (2 - true), 2 * true * true / (1 + true)
    spread = true * (1 - true) + (planted - 1) * (one - true * true) + (held_out - 1) * (two - true * true)
    return math.sqrt(spread / (planted * held_out))


def area_lower_bound(found: float, planted: int, held_out: int, confidence: float) -> float:
    """Return the one-sided lower bound of an area.

    It is the largest area that is refuted by what was found, each with its own standard error (Newcombe, "Confidence
    intervals for an effect size measure based on the Mann-Whitney statistic", Statistics in Medicine 25, 2006, method
    5). With the error of the estimate instead, more than one in ten trials at the limit would be stopped.

    Args:
        found: The estimate.
        planted: Number of canaries that were trained on.
        held_out: Number of the others.
        confidence: Such as 0.95.
    """
    z = NormalDist().inv_cdf(confidence)
    return _largest(lambda true: found - true >= z * area_error(true, planted, held_out))


def share_lower_bound(hits: int, of: int, confidence: float) -> float:
    """Return the one-sided lower bound of a probability of which so many of so many were seen.

    Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 26 (1934).
    """
    if hits == 0 or of == 0:
        return 0.0
    return _largest(lambda true: at_least(hits, of, true) <= 1 - confidence)


def at_least(hits: int, of: int, probability: float) -> float:
    """Return the probability of so many hits or more."""
    if hits <= 0:
        return 1.0
    if probability <= 0:
        return 0.0
    if probability >= 1:
        return 1.0
    logs = math.log(probability), math.log1p(-probability)
    whole = math.lgamma(of + 1)
    terms = (
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(of - k + 1) + k * logs[0] + (of - k) * logs[1])
        for k in range(hits, of + 1)
    )
    return min(1.0, math.fsum(terms))


def confidence_of_one(confidence: float, looks: int) -> float:
    """Return the confidence of each of several bounds that hold together with this one (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, looks)


def smallest_shown(limit: float, count: int, confidence: float, looks: int) -> float:
    """Return the smallest estimated area whose lower bound is above a limit; above 1 if no area is shown to be.

    Args:
        limit: Of the area.
        count: Canaries of a source, half of them planted.
        confidence: Of all looks together.
        looks: How many there are.
    """
    if limit >= 1:
        return math.inf
    z = NormalDist().inv_cdf(confidence_of_one(confidence, looks))
    return limit + z * area_error(max(0.0, limit), count // 2, count - count // 2)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return the largest number from 0 to 1 for which something holds that holds for all smaller ones."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
