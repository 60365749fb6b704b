"""The random numbers of a search: NumPy's legacy generator, whose stream never changes.

NumPy guarantees the stream of `RandomState` forever (NEP 19), and Determined's master ports the same
generator, so a search there and here with the same seed draws the same numbers bit for bit.
"""

from __future__ import annotations

import copy
import hashlib
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from detlab.schemas.space import Space

TRIAL_SEED_LIMIT = 2**31
COSTLY = 20
"""Random points of which one meets the relations, from which on points are drawn before."""


class SearchRandom:
    """The one stream of random numbers of a search.

    Args:
        seed: 0 to 2**32 - 1, the experiment's seed.
    """

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed)

    def below(self, n: int) -> int:
        """Draw an integer in [0, n) by masked rejection; n = 1 draws nothing from the stream."""
        return int(self._state.randint(0, n, dtype=np.int64))

    def uniform(self, low: float, high: float) -> float:
        """Draw a float in [low, high) with 53 random bits."""
        return float(self._state.uniform(low, high))

    def request_id(self) -> str:
        """Draw 16 bytes as a UUIDv4 (six bits are the version's and variant's)."""
        return str(uuid.UUID(bytes=self._state.bytes(16), version=4))

    def trial_seed(self) -> int:
        """Draw a trial's seed in [0, 2**31)."""
        return self.below(TRIAL_SEED_LIMIT)

    def become(self, other: SearchRandom) -> None:
        """Take over the state of others, which are not used any more."""
        self._state = other._state

    def fingerprint(self) -> str:
        """Hash of the generator's state."""
        _, key, position, *_ = self._state.get_state(legacy=True)
        return hashlib.sha256(np.asarray(key, dtype="<u4").tobytes() + str(position).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A point, and the state before and after it was drawn."""

    point: dict[str, Any]
    memory: Any
    rng: SearchRandom
    memory_after: Any


class PointsAhead:
    """The next points of a search, drawn before it asks for them: where relations are rare, one takes 0.1 s.

    What a search draws depends on the state of its random numbers and of its space alone. So a point that was drawn
    from a copy of both is the one that the search would draw in the same state, and nothing of its decisions depends
    on whether it was there in time.

    `refill` may run beside everything else, in one thread at a time; `take` belongs to the search.

    Args:
        space: The space.
        rng: The random numbers of the search, in their present state.
        trials: Whether each point becomes a trial at once, whose id and seed are drawn after it.
    """

    def __init__(self, space: Space, rng: SearchRandom, *, trials: bool) -> None:
        self._of, self._trials = space, trials
        self._space, self._rng = copy.copy(space), copy.deepcopy(rng)
        self._known: dict[str, _Drawn] = {}

    def refill(self, count: int) -> None:
        """Draw points until there are so many."""
        while len(self._known) < count:
            key, memory = self._rng.fingerprint(), self._space.memory
            point = self._space.sample(self._rng)
            self._known[key] = _Drawn(point, memory, copy.deepcopy(self._rng), self._space.memory)
            if self._trials:
                self._rng.request_id()
                self._rng.trial_seed()

    def take(self, space: Space, rng: SearchRandom) -> dict[str, Any] | None:
        """Return the point that would be drawn now, with the same effect; None: it is not known."""
        if space is not self._of or not self._known:
            return None
        known = self._known.pop(rng.fingerprint(), None)
        if known is None or known.memory != space.memory:
            return None
        rng.become(known.rng)
        space.memory = known.memory_after
        return known.point
