"""How many chunks of seeds `make test` has time for on this machine: `python -m simulation.speed` prints it.

All 2,000 seeds take 25 minutes of a core that counts a million times in 0.05 s, and an hour and a half of one that
takes 0.2 s, where everything else takes as much longer. The output of the tests says which seeds ran; a seed is
the same run on any machine.
"""

from __future__ import annotations

import os
import time

ALL, FEW = 20, 8
"""Chunks of 100 seeds."""
CORES = 4
"""With so many there is time for all."""
QUICK = 0.1
"""CPU seconds for a million turns of a loop: a core that takes less has time for all, too."""


def turns(number: int = 1_000_000) -> float:
    """CPU seconds for so many turns of a loop; what else the machine does hardly counts."""
    began = time.process_time()
    total = 0
    for value in range(number):
        total += value * value % 7
    return time.process_time() - began


def chunks(cores: int, seconds: float) -> int:
    """How many chunks, by the number of cores and the seconds that `turns` took."""
    return ALL if cores >= CORES or seconds <= QUICK else FEW


if __name__ == "__main__":
    print(chunks(len(os.sched_getaffinity(0)), min(turns() for _ in range(5))))
