"""What is beyond noise: confidence intervals by bootstrap over seeds, and paired tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import wilcoxon

DRAWS = 2000


def mean_interval(values: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the mean over tasks of the means over seeds, with its 95% interval by bootstrap over the seeds.

    Args:
        values: A row of seeds for each task.
    """
    rng = np.random.default_rng(0)
    total = np.zeros(DRAWS)
    for row in values:
        found = np.asarray(row)
        total += found[rng.integers(0, len(found), (DRAWS, len(found)))].mean(1)
    low, high = np.percentile(total / len(values), [2.5, 97.5])
    return float(np.mean([np.mean(row) for row in values])), float(low), float(high)


def band(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of curves (seeds×points) with its 95% band."""
    rng = np.random.default_rng(0)
    drawn = curves[rng.integers(0, len(curves), (500, len(curves)))].mean(1)
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return curves.mean(0), low, high


def worse(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[int]:
    """Return the tasks on which ours is worse beyond noise.

    Signed-rank tests, paired by seed, at 5% for all tasks together (Holm, Scand. J. Statist. 6, 1979).
    """
    chances = []
    for task, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        gap = np.asarray(one) - np.asarray(other)
        chances.append((1.0 if not gap.any() else float(wilcoxon(gap, alternative="greater").pvalue), task))
    found = []
    for rank, (chance, task) in enumerate(sorted(chances)):
        if chance * (len(chances) - rank) > 0.05:
            break
        found.append(task)
    return found
