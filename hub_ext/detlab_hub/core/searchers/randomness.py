"""The random numbers of a search: NumPy's legacy generator, whose stream never changes.

NumPy guarantees the stream of `RandomState` forever (NEP 19), and Determined's master ports the same
generator, so a search there and here with the same seed draws the same numbers bit for bit.
"""

import hashlib
import uuid

import numpy as np

TRIAL_SEED_LIMIT = 2**31


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

    def fingerprint(self) -> str:
        """Hash of the generator's state."""
        _, key, position, *_ = self._state.get_state(legacy=True)
        return hashlib.sha256(np.asarray(key, dtype="<u4").tobytes() + str(position).encode()).hexdigest()
