"""Nondominated fronts that are kept up to date: what a score changes is found among those that it dominates.

Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II" (2002), section III, define fronts and
crowding distance; Li et al., "Efficient nondomination level update method for steady-state evolutionary multiobjective
optimization" (IEEE Transactions on Cybernetics, 2017), how one point moves others down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Ints = NDArray[Any]
_SHORT = 65_000
"""Numbers up to this are sorted as 16 bits, which takes a tenth of the time."""


class Fronts:
    """Scores in their order, each with its front.

    Args:
        violations: Of each score; one that is nearer to feasible comes before all that are further off.
        losses: Of each score, of equal length; smaller is better, infinity for what is lost, never NaN.
        axes: How many losses each has.
    """

    def __init__(self, violations: Sequence[float], losses: Sequence[Sequence[float]], axes: int) -> None:
        self._violation = np.array(violations, dtype=float)
        self._losses = np.array(losses, dtype=float).reshape(len(violations), axes)
        self._front: _Ints = np.full(len(violations), -1, dtype=np.int64)
        self._values = [np.unique(axis) for axis in self._losses.T]
        self._rank = np.stack(
            [np.searchsorted(known, axis) for known, axis in zip(self._values, self._losses.T, strict=True)], axis=1
        ).astype(np.int64)
        best_first = np.lexsort([*self._losses.T[::-1], self._violation])
        for place in best_first.tolist():
            self._settle(place)

    def __len__(self) -> int:
        return len(self._front)

    @property
    def fronts(self) -> list[int]:
        """The front of each score, 0 for the best."""
        found: list[int] = self._front.tolist()
        return found

    def add(self, violation: float, losses: Sequence[float]) -> None:
        """Add a score at the end."""
        row = np.empty(len(losses), dtype=np.int64)
        for axis, value in enumerate(losses):
            known = self._values[axis]
            at = int(np.searchsorted(known, value))
            if at == len(known) or known[at] != value:
                self._values[axis] = np.insert(known, at, value)
                column = self._rank[:, axis]
                column[column >= at] += 1
            row[axis] = at
        self._violation = np.append(self._violation, violation)
        self._losses = np.vstack([self._losses, np.array(losses, dtype=float)])
        self._rank = np.vstack([self._rank, row])
        self._front = np.append(self._front, -1)
        self._settle(len(self._front) - 1)

    def _settle(self, place: int) -> None:
        """Give a score its front, and move down those that it dominates, as far as they must."""
        peers = (self._violation == self._violation[place]) & (self._front >= 0)
        before = self._front[(self._violation < self._violation[place]) & (self._front >= 0)]
        mine = self._rank[place]
        beats = peers & (self._rank <= mine).all(axis=1) & (self._rank < mine).any(axis=1)
        at = int(self._front[beats].max()) + 1 if beats.any() else int(before.max()) + 1 if len(before) else 0
        beaten = np.flatnonzero(peers & (self._rank >= mine).all(axis=1) & (self._rank > mine).any(axis=1))
        beaten = beaten[np.argsort(self._front[beaten], kind="stable")]
        ends = np.searchsorted(self._front[beaten], np.arange(at, at + len(beaten) + 2)).tolist()
        held = self._front[peers]
        sizes = np.bincount(held[held >= at] - at, minlength=len(beaten) + 2).tolist()
        movers = np.array([place])
        for level in range(len(beaten) + 1):
            here = beaten[ends[level] : ends[level + 1]]
            down = here[self._dominated(here, movers)] if len(here) else here
            if len(down) == sizes[level]:  # all of a front, or there is none: those below move as they are
                self._front[self._front >= at + level] += 1
                self._front[movers] = at + level
                return
            self._front[movers] = at + level
            if not len(down):
                return
            movers = down

    def _dominated(self, places: _Ints, by: _Ints) -> _Ints:
        """Return which places are dominated by at least one of others."""
        mine, theirs = self._rank[places], self._rank[by]
        worse = mine.sum(axis=1)[:, None] > theirs.sum(axis=1)[None, :]
        for axis in range(mine.shape[1]):
            worse &= mine[:, axis, None] >= theirs[None, :, axis]
        found: _Ints = worse.any(axis=1)
        return found

    def order(self) -> list[int]:
        """Return the places by front, in a front the loneliest first, and of equals the later one."""
        lonely = -self._crowding()[::-1]
        last = len(self._front) - 1
        found = last - np.argsort(lonely, kind="stable")
        found = found[np.argsort(_short(self._front[found]), kind="stable")]
        listed: list[int] = found.tolist()
        return listed

    def _crowding(self) -> NDArray[np.float64]:
        """Return the crowding distance of each score in its front; of equal losses the earlier one comes first."""
        distance = np.zeros(len(self._front))
        front = _short(self._front)
        for axis in range(self._losses.shape[1]):
            along = np.argsort(_short(self._rank[:, axis]), kind="stable")
            along = along[np.argsort(front[along], kind="stable")]
            values, fronts = self._losses[along, axis], front[along]
            opens = np.append(True, fronts[1:] != fronts[:-1])
            closes = np.append(opens[1:], True)
            starts, stops = np.flatnonzero(opens), np.flatnonzero(closes)
            sizes = stops - starts + 1
            with np.errstate(invalid="ignore", over="ignore"):  # infinite losses, whose widths count as none
                width = np.repeat(values[stops] - values[starts], sizes)
                gaps = np.zeros(len(values))
                gaps[1:-1] = values[2:] - values[:-2]
                counts = (width > 0) & (width < math.inf) & ~(opens | closes)
            share = np.zeros(len(values))
            np.divide(gaps, width, out=share, where=counts)
            share[opens | closes] = math.inf
            distance[along] += share
        return distance

    def arrange(self, order: Sequence[int]) -> None:
        """Bring the scores into an order."""
        places = np.array(order, dtype=np.int64)
        self._violation, self._losses = self._violation[places], self._losses[places]
        self._rank, self._front = self._rank[places], self._front[places]


def _short(numbers: _Ints) -> _Ints:
    return numbers.astype(np.uint16) if len(numbers) < _SHORT else numbers
