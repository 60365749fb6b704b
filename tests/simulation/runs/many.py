"""Many seeds one after the other, in a process of their own."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from simulation.bench import Bench
from simulation.world import Outcome
from simulation.worlds import world_of


def processes(number: int) -> ProcessPoolExecutor:
    """So many at a time, each for one task: a bench changes seams of the product, which a second one would find."""
    return ProcessPoolExecutor(number, mp_context=get_context("spawn"), max_tasks_per_child=1)


def chunk(first: int, last: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run seeds from one to before another, and return what was counted."""
    bench = Bench()
    faults, checks = Counter[str](), Counter[str]()
    problems: dict[int, str] = {}
    digests: dict[int, str] = {}
    least = dict[str, int]()
    try:
        for seed in range(first, last):
            outcome = bench.run(seed, calm=options.calm, kind=world_of(seed, options.world))
            faults.update(outcome.faults)
            checks.update(outcome.checks)
            digests[seed] = outcome.digest
            for name, number in _of_each(outcome).items():
                least[name] = min(number, least.get(name, number))
            if outcome.problem:
                problems[seed] = outcome.problem
                print(f"seed {seed}: {outcome.problem}", file=sys.stderr, flush=True)
                if options.stop:
                    break
    finally:
        bench.close()
    return {
        "faults": faults,
        "checks": checks,
        "problems": problems,
        "digests": digests,
        **least,
    }


def _of_each(outcome: Outcome) -> dict[str, int]:
    """What each seed has to have enough of."""
    return {
        "least_faults": sum(outcome.faults.values()),
        "least_asha_trials": outcome.asha_trials,
        "least_asha_agents": outcome.asha_agents,
    }
