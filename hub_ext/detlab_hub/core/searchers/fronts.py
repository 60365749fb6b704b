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
        self._losses = np.array(losses, dtype=float).reshape(len(violations), axes).T.copy()
        """By axis."""
        self._values = [np.unique(axis) for axis in self._losses]
        self._rank: _Ints = np.array(
            [np.searchsorted(known, axis) for known, axis in zip(self._values, self._losses, strict=True)]
        )
        """By axis: each loss's place among all that are different."""
        self._front: _Ints = np.zeros(len(violations), dtype=np.int64)
        self._divide()

    def _divide(self) -> None:
        """Find all fronts: in lexicographic order no score dominates one before it."""
        places = np.lexsort([*self._rank[::-1], self._violation])
        violation, rank = self._violation[places], self._rank[:, places]
        front = np.zeros(len(places), dtype=np.int64)
        opened = base = equals = 0
        for at in range(len(places)):
            if at and violation[at] != violation[at - 1]:
                opened = equals = at
                base = int(front[:at].max()) + 1
            elif at and (rank[:, at] != rank[:, at - 1]).any():
                equals = at
            better = np.ones(equals - opened, dtype=bool)
            for axis in rank[1:]:
                better &= axis[opened:equals] <= axis[at]
            front[at] = max(base, int(np.where(better, front[opened:equals], -1).max(initial=-1)) + 1)
        self._front[places] = front

    def __len__(self) -> int:
        return len(self._front)

    @property
    def fronts(self) -> list[int]:
        """The front of each score, 0 for the best."""
        found: list[int] = self._front.tolist()
        return found

    def add(self, violation: float, losses: Sequence[float]) -> None:
        """Add a score at the end."""
        row = []
        for axis, value in enumerate(losses):
            known = self._values[axis]
            at = int(np.searchsorted(known, value))
            if at == len(known) or known[at] != value:
                self._values[axis] = np.insert(known, at, value)
                self._rank[axis] += self._rank[axis] >= at
            row.append([at])
        self._violation = np.append(self._violation, violation)
        self._losses = np.append(self._losses, [[value] for value in losses], axis=1)
        self._rank = np.append(self._rank, row, axis=1)
        self._front = np.append(self._front, -1)
        self._settle()

    def _settle(self) -> None:
        """Give the last score its front, and move down those that it dominates, as far as they must."""
        front, violation, rank = self._front[:-1], self._violation[:-1], self._rank[:, :-1]
        peers = violation == self._violation[-1]
        better, worse, equal = peers.copy(), peers.copy(), peers.copy()
        for axis, mine in zip(rank, self._rank[:, -1].tolist(), strict=True):
            better &= axis <= mine
            worse &= axis >= mine
            equal &= axis == mine
        nearer = front[violation < self._violation[-1]]
        at = int(np.append(nearer, front[better & ~equal]).max(initial=-1)) + 1
        self._move_down(at, np.flatnonzero(worse & ~equal), front[peers])

    def _move_down(self, at: int, beaten: _Ints, peers: _Ints) -> None:
        """Put the last score into a front.

        Args:
            at: The front.
            beaten: The places of the scores that it dominates: no others can move.
            peers: The fronts of all scores of the same violation.
        """
        beaten = beaten[np.argsort(_short(self._front[beaten]), kind="stable")]
        ends = np.searchsorted(self._front[beaten], np.arange(at, at + len(beaten) + 2)).tolist()
        sizes = np.bincount(peers[peers >= at] - at, minlength=len(beaten) + 2).tolist()
        movers = np.array([len(self._front) - 1])
        for level in range(len(beaten) + 1):
            here = beaten[ends[level] : ends[level + 1]]
            down = here[self._dominated(here, movers)] if len(here) else here
            if len(down) == sizes[level]:  # all of a front, or there is none: those below move as they are
                self._front += self._front >= at + level
            self._front[movers] = at + level
            if not len(down) or len(down) == sizes[level]:
                return
            movers = down

    def _dominated(self, places: _Ints, by: _Ints) -> _Ints:
        """Return which places are dominated by at least one of others."""
        mine, theirs = self._rank[:, places], self._rank[:, by]
        worse = mine.sum(axis=0)[:, None] > theirs.sum(axis=0)[None, :]
        for one, other in zip(mine, theirs, strict=True):
            worse &= one[:, None] >= other[None, :]
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
        for losses, rank in zip(self._losses, self._rank, strict=True):
            along = np.argsort(_short(rank), kind="stable")
            along = along[np.argsort(front[along], kind="stable")]
            values, fronts = losses[along], front[along]
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
        self._violation, self._losses = self._violation[places], self._losses[:, places]
        self._rank, self._front = self._rank[:, places], self._front[places]


def _short(numbers: _Ints) -> _Ints:
    return numbers.astype(np.uint16) if len(numbers) < _SHORT else numbers
