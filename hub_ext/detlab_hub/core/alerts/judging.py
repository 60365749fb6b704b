"""What a validation means to a rule, which remembers what it has seen before."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

IMPROVED, PLATEAU = "improved", "plateau"


@dataclass(frozen=True)
class RuleMark:
    """What a rule remembers of an experiment.

    Attributes:
        value: Of `improved`, the value from which the next improvement counts; of `plateau`, the best so far; of other
            kinds, for what they have told last.
        count: Of `plateau`, the validations since the best.
        told: Whether it has told, and waits until that is no longer so.
    """

    value: float | None = None
    count: int = 0
    told: bool = False


@dataclass(frozen=True)
class RuleVerdict:
    """The outcome: what the rule remembers now, and the text of its alert; empty: there is none."""

    mark: RuleMark
    text: str = ""


def judge(kind: str, amount: float, mark: RuleMark, value: float, *, smaller_is_better: bool) -> RuleVerdict:
    """Judge a validation.

    Args:
        kind: `improved` or `plateau`.
        amount: Percent that count as an improvement, or validations without one that are a plateau.
        mark: What the rule remembers.
        value: Of the searcher metric; one that is not finite is no improvement.
        smaller_is_better: Of that metric.
    """
    if kind == IMPROVED:
        return _improved(amount, mark, value, smaller_is_better=smaller_is_better)
    return _plateau(amount, mark, value, smaller_is_better=smaller_is_better)


def _improved(amount: float, mark: RuleMark, value: float, *, smaller_is_better: bool) -> RuleVerdict:
    if not math.isfinite(value):
        return RuleVerdict(mark)
    if mark.value is None:
        return RuleVerdict(replace(mark, value=value))
    gain = mark.value - value if smaller_is_better else value - mark.value
    # From 0 there are no percent: there, whatever is better counts.
    if gain <= 0.0 or gain < abs(mark.value) * amount / 100.0:
        return RuleVerdict(mark)
    return RuleVerdict(replace(mark, value=value), f"{mark.value:.6g} before, {value:.6g} now")


def _plateau(amount: float, mark: RuleMark, value: float, *, smaller_is_better: bool) -> RuleVerdict:
    better = math.isfinite(value) and (
        mark.value is None or (value < mark.value if smaller_is_better else value > mark.value)
    )
    if better:
        return RuleVerdict(RuleMark(value=value))
    count = mark.count + 1
    if mark.told or count < amount:
        return RuleVerdict(replace(mark, count=count))
    best = "" if mark.value is None else f"; the best is {mark.value:.6g}"
    return RuleVerdict(replace(mark, count=count, told=True), f"{count} validations without a better value{best}")
