"""How many chunks of seeds `make test` runs on this machine: `python -m simulation.howmany` prints it.

Two thousand seeds, or as many as its processors run in about a quarter of an hour each, but no fewer than 800.
"""

from __future__ import annotations

import os
import sys
import time

MOST, LEAST = 20, 8
"""Chunks: 2,000 seeds, and 800."""
SECONDS = 1000.0
"""Of each processor, for all seeds."""
TRIED = range(1, 5)
"""Seeds by which it is judged: of a search and of a shared cluster, two each."""


def main() -> int:
    """Print the number."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "simulation.howmany"])
    from simulation.bench import Bench
    from simulation.chunks import CHUNK, CORES
    from simulation.worlds import world_of

    bench = Bench()
    try:
        bench.run(0)  # loads and compiles what all others use
        began = time.process_time()
        for seed in TRIED:
            bench.run(seed, kind=world_of(seed))
        each = (time.process_time() - began) / len(TRIED)
    finally:
        bench.close()
    print(max(LEAST, min(MOST, int(CORES * SECONDS / (CHUNK * each)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
