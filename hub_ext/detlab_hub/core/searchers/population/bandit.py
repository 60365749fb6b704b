"""The bandit of PB2: a Gaussian process over hyperparameters and rounds, and points of high upper confidence bound.

Parker-Holder et al. (NeurIPS 2020), section 4: the kernel is a squared exponential of the hyperparameters times
(1 - epsilon)^(|t - t'| / 2) of the rounds, as in Bogunovic et al., "Time-Varying Gaussian Process Bandit Optimization"
(AISTATS 2016); each point of a batch is added as if its mean had been observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detlab.schemas.space import Space
from detlab_hub.core.searchers.method import Question
from detlab_hub.core.searchers.model_based.axes import Coordinate, Points, SearchAxis, axes_of, coordinates
from detlab_hub.core.searchers.population.members import Gain

Matrix = NDArray[np.float64]
_SCALES = (0.1, 0.2, 0.4, 0.8)
_EPSILONS = (0.01, 0.1, 0.3)
_NOISE = 0.05
_CANDIDATES = 1000
_LARGEST = 1e100
"""Gains beyond count as this one: the square of a larger one is infinite."""
_REACH = 3.0
"""Gains further from the middle half of their round than this many times its width count as if they were there."""
_LATEST = 500
"""Gains that the process is fitted to at most, the newest: its cost is cubic."""


def suggest(question: Question) -> list[dict[str, Any]]:
    """Return a point for each parent: its choices, and numbers of high upper confidence bound."""
    axes = axes_of(question.space)
    points = Points(Space(question.space))
    numbers = [at for at, axis in enumerate(axes) if axis.kind != "categorical"]
    gains = [Gain(*gain) for gain in question.known["gains"]][-_LATEST:]
    draw = np.random.default_rng(question.seed)
    seen = np.array([_scaled(axes, numbers, gain.at) for gain in gains]).reshape(len(gains), len(numbers))
    rounds = np.array([float(gain.round) for gain in gains])
    gained = _standardised([gain.gain for gain in gains], rounds)
    scale, epsilon = _fitted(seen, rounds, gained)
    found = []
    for parent in question.known["parents"][: question.count]:
        best = _highest(seen, rounds, gained, scale, epsilon, float(question.known["round"]), len(numbers), draw)
        seen, rounds = np.vstack([seen, best[0]]), np.append(rounds, float(question.known["round"]))
        gained = np.append(gained, best[1])
        found.append(_point(points, axes, numbers, parent, best[0]))
    return found


def _scaled(axes: Sequence[SearchAxis], numbers: Sequence[int], at: Sequence[Coordinate | None]) -> list[float]:
    """Return the numbers of a point from 0 to 1; the middle where it has none."""
    return [_part(axes[place], at[place]) for place in numbers]


def _part(axis: SearchAxis, coordinate: Coordinate | None) -> float:
    first, width = axis.span()
    return 0.5 if coordinate is None or width <= 0 else (axis.along(float(coordinate)) - first) / width


def _standardised(gains: Sequence[float], rounds: Matrix) -> Matrix:
    """Standardise the gains of each round, since early rounds gain the most whatever the hyperparameters."""
    values = np.clip(np.array(gains, dtype=float), -_LARGEST, _LARGEST)
    for number in np.unique(rounds):
        here = rounds == number
        low, high = np.quantile(values[here], (0.25, 0.75))
        if high > low:  # a trial that explodes must not make all others look alike
            values[here] = np.clip(values[here], low - _REACH * (high - low), high + _REACH * (high - low))
        spread = values[here].std()
        values[here] = (values[here] - values[here].mean()) / (spread if spread > 0 else 1.0)
    return values


def _kernel(one: Matrix, at: Matrix, other: Matrix, when: Matrix, scale: float, epsilon: float) -> Matrix:
    apart = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    later = np.abs(at[:, None] - when[None, :])
    found: Matrix = np.exp(-apart / (2 * scale**2)) * (1 - epsilon) ** (later / 2)
    return found


def _fitted(seen: Matrix, rounds: Matrix, gained: Matrix) -> tuple[float, float]:
    """Return the length scale and the epsilon of the highest marginal likelihood."""
    if len(gained) < 2:
        return _SCALES[1], _EPSILONS[1]
    pairs = [(scale, epsilon) for scale in _SCALES for epsilon in _EPSILONS]
    return max(pairs, key=lambda pair: _likelihood(seen, rounds, gained, *pair))


def _likelihood(seen: Matrix, rounds: Matrix, gained: Matrix, scale: float, epsilon: float) -> float:
    covariance = _kernel(seen, rounds, seen, rounds, scale, epsilon) + _NOISE * np.eye(len(seen))
    factor = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(factor, gained)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())


def _highest(
    seen: Matrix,
    rounds: Matrix,
    gained: Matrix,
    scale: float,
    epsilon: float,
    now: float,
    dimensions: int,
    draw: np.random.Generator,
) -> tuple[Matrix, float]:
    """Return the candidate of the highest upper confidence bound, and its mean."""
    candidates = draw.random((_CANDIDATES, dimensions))
    if len(seen) == 0:
        return candidates[0], 0.0
    near = seen[draw.integers(0, len(seen), _CANDIDATES)] + draw.normal(0.0, 0.05, (_CANDIDATES, dimensions))
    candidates = np.vstack([candidates, np.clip(near, 0.0, 1.0)])
    factor = np.linalg.cholesky(_kernel(seen, rounds, seen, rounds, scale, epsilon) + _NOISE * np.eye(len(seen)))
    across = _kernel(seen, rounds, candidates, np.full(len(candidates), now), scale, epsilon)
    mean = across.T @ np.linalg.solve(factor.T, np.linalg.solve(factor, gained))
    variance = np.clip(1.0 - (np.linalg.solve(factor, across) ** 2).sum(axis=0), 1e-9, None)
    beta = 0.2 + max(np.log(0.4 * (now + 1)), 0.0)  # as the authors' code has it
    best = int(np.argmax(mean + np.sqrt(beta * variance)))
    return candidates[best], float(mean[best])


def _point(
    points: Points, axes: Sequence[SearchAxis], numbers: Sequence[int], parent: Mapping[str, Any], parts: Matrix
) -> dict[str, Any]:
    """Return the parent with these numbers."""
    chosen = {axes[place].name: float(part) for place, part in zip(numbers, parts, strict=True)}
    kept = dict(zip([axis.name for axis in axes], coordinates(axes, parent), strict=True))

    def coordinate(axis: SearchAxis) -> Coordinate:
        if axis.name in chosen:
            first, width = axis.span()
            found = axis.back(first + chosen[axis.name] * width)
            return found if axis.kind in ("double", "log") else round(found)
        before = kept[axis.name]
        return int(axis.low) if before is None else before

    return points.build(coordinate)
