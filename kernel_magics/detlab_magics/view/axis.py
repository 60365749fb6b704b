"""The metric axis: its range and its round ticks."""

from __future__ import annotations

import math

WORST_SHARE = 0.05
"""At most this share of the values may be left outside of the picture."""
FLATTENED = 4.0
"""…and only where they would make the axis this many times as long."""


def focused(values: list[float], smaller_is_better: bool) -> tuple[float, float]:
    """Return the range to draw: all finite values, or without a few hopeless ones that would flatten the rest.

    Args:
        values: Finite values of all curves, at least one.
        smaller_is_better: On which side the hopeless ones are.
    """
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    cut = math.floor(len(ordered) * WORST_SHARE)
    core = (low, ordered[-1 - cut]) if smaller_is_better else (ordered[cut], high)
    span = core[1] - core[0]
    if cut and 0 < FLATTENED * span < high - low:
        low, high = core
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return low - pad, high + pad


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round tick positions within [low, high]."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
