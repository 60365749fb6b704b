"""How many rungs fit, in exact arithmetic: a logarithm of floats makes 2 of the 3 powers of ten up to 1,000."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def exact(divisor: float) -> Fraction:
    """Return a divisor as it is written: 1.1 is 11/10, which no float is."""
    return Fraction(repr(float(divisor)))


def rungs_within(limit: float, divisor: float, most: int) -> int:
    """Return how many powers of a divisor, from 1 on, are not above a limit, and `most` at most; at least 1."""
    step, end = exact(divisor), Fraction(limit)
    count, power = 1, step
    while count < most and power <= end:
        count, power = count + 1, power * step
    return count


def shares_within(ordered: Sequence[int], trials: int, divisor: float) -> list[int]:
    """Divide trials over brackets by their rungs so that they cost about the same, rounded down."""
    weights = [exact(divisor) ** (rungs - 1) / rungs for rungs in ordered]
    return [int(weight / sum(weights) * trials) for weight in weights]
