"""Where the randomness of the process comes from while a seed runs."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def determined(seed: int) -> Iterator[None]:
    """All randomness of the process comes from the seed, and no garbage is collected in the middle."""
    random.seed(seed)
    gc.disable()
    try:
        with _source(random.Random(f"entropy {seed}").randbytes):
            yield
    finally:
        gc.enable()


@contextmanager
def apart() -> Iterator[None]:
    """What a check draws is not missing in the seed: however much is checked, its run is the same."""
    with _source(random.Random("checks").randbytes):
        yield


@contextmanager
def _source(randbytes: Callable[[int], bytes]) -> Iterator[None]:
    kept = os.urandom, random._urandom
    os.urandom = random._urandom = randbytes  # the seam of `random` and `uuid`
    try:
        yield
    finally:
        os.urandom, random._urandom = kept
