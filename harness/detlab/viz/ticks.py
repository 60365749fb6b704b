"""Ticks of an axis that is drawn here: where they are, and what they say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

DIGITS, MOST_DIGITS = 6, 17
"""Of a label: as a rule, and where ticks lie close together beside their size. A double has no more."""


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round positions within [low, high]; of a range without an extent its begin."""
    raw = (high - low) / count
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw)
    return [at * step for at in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Return the labels of ticks, with as many digits as tell them apart."""
    ordered = sorted(values)
    step = min((b - a for a, b in itertools.pairwise(ordered) if b > a), default=math.inf)
    for digits in range(DIGITS, MOST_DIGITS):
        texts = [f"{value:.{digits}g}" for value in values]
        if all(abs(float(text) - value) <= step / 100 for text, value in zip(texts, values, strict=True)):
            return texts
    return [f"{value:.{MOST_DIGITS}g}" for value in values]
