"""Fewer points for a curve, chosen so that spikes, extremes and NaN stay visible. Pure.

The first and the exact last point are kept. The points between are cut into buckets of equal length, and each bucket
contributes its minimum and its maximum and, if there is one, its first NaN. So a spike of one step survives
any reduction, and the global minimum and maximum are always among the points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIN_POINTS = 4
"""First, last, least and greatest."""


def choose(values: Sequence[float] | NDArray[np.float64], max_points: int) -> NDArray[np.intp]:
    """Return the indices of the points to keep, in increasing order.

    Args:
        values: The curve, shape `(n,)`, in step order; NaN and infinities are allowed.
        max_points: Most indices to return, at least `MIN_POINTS`. NaN markers need one more.

    Raises:
        ValueError: `max_points` is too small.
    """
    if max_points < MIN_POINTS:
        raise ValueError(f"max_points must be at least {MIN_POINTS}, not {max_points}")
    curve = np.asarray(values, dtype=np.float64)
    size = len(curve)
    if size <= max_points:
        return np.arange(size, dtype=np.intp)
    nan = np.isnan(curve)
    inner_nan = bool(nan[1:-1].any())
    per_bucket = 3 if inner_nan and max_points - 2 >= 3 else 2
    buckets = (max_points - 2) // per_bucket
    # Bucket k holds the inner points starts[k] .. starts[k + 1]: lengths differ by at most one, none is empty.
    starts = 1 + (np.arange(buckets + 1, dtype=np.int64) * (size - 2)) // buckets
    lengths = np.diff(starts)[:, None]
    offsets = np.arange(lengths.max())
    places = starts[:-1, None] + offsets
    # A row of each matrix is a bucket; where one is shorter than the longest, what is beyond it counts as a gap.
    beyond = offsets >= lengths
    part, gaps = curve[places], nan[places] & ~beyond
    left_out = gaps | beyond
    some = ~left_out.all(axis=1)
    least = np.argmin(np.where(left_out, np.inf, part), axis=1)
    greatest = np.argmax(np.where(left_out, -np.inf, part), axis=1)
    chosen = [np.array([0, size - 1]), (starts[:-1] + least)[some], (starts[:-1] + greatest)[some]]
    if per_bucket == 3:
        chosen.append((starts[:-1] + np.argmax(gaps, axis=1))[gaps.any(axis=1)])
    return np.unique(np.concatenate(chosen)).astype(np.intp, copy=False)
