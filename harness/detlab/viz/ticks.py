"""Ticks of an axis that is drawn here: where they are, and what they say."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence

DIGITS, MOST_DIGITS = 6, 17
"""Of a label: as a rule, and where ticks lie close together beside their size. A double has no more."""


_ENOUGH, _MOST = 3, 8
"""Ticks of a logarithmic axis."""
_DECADES = 3
"""Of an axis over so many of them only powers of ten have ticks, and not each one of very many."""
_STRIDES = (1, 2, 5, 10, 20, 50, 100)


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round positions within [low, high]; of a range without an extent its begin."""
    raw = high / count - low / count
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    magnitude = 10.0 ** math.floor(math.log10(raw))
    # Below 1e-308 doubles have few digits, and none at last.
    step = next((m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw), raw)
    return [at * step for at in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return about five round positions within [low, high] of a logarithmic axis, both positive.

    Powers of ten where there are enough of them; else 1, 2 and 5 times these, with 3 or with all digits where the range
    is short; of a range in which those are too few, positions at equal distances.
    """
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    if last - first >= _DECADES:
        stride = next(one for one in _STRIDES if one * _MOST > last - first)
        powers = (_power(at) for at in range(math.ceil(first / stride) * stride, last + 1, stride))
        return [tick for tick in powers if low <= tick <= high]
    for digits in ((1,), (1, 2, 5), (1, 2, 3, 5), range(1, 10)):
        ticks = [digit * _power(at) for at in range(first, last + 1) for digit in digits]
        inside = [tick for tick in dict.fromkeys(ticks) if low <= tick <= high]  # the smallest doubles are few
        if len(inside) >= _ENOUGH:
            return inside
    return round_ticks(low, high)


def _power(exponent: int) -> float:
    """Return a power of ten; of one that no double holds, the nearest."""
    return float(f"1e{exponent}") or sys.float_info.min * sys.float_info.epsilon


def tick_texts(values: Sequence[float]) -> list[str]:
    """Return the labels of ticks, with as many digits as tell them apart."""
    ordered = sorted(values)
    step = min((b - a for a, b in itertools.pairwise(ordered) if b > a), default=math.inf)
    for digits in range(DIGITS, MOST_DIGITS):
        texts = [_text(value, digits) for value in values]
        if all(abs(float(text) - value) <= step / 100 for text, value in zip(texts, values, strict=True)):
            return texts
    return [f"{value:.{MOST_DIGITS}g}" for value in values]


def _text(value: float, digits: int) -> str:
    """Return a number; of a very small one, which has few digits, the shortest text that means it."""
    text = f"{value:.{digits}g}"
    return min(text, repr(value), key=len) if 0 < abs(value) < sys.float_info.min else text
