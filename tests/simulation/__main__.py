"""`python -m simulation --seed N` replays one seed; `--seeds A:B` runs many, in several processes; `--awaits` lets the
master die at each of its awaits, one after the other."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulation.machines.faults import KINDS
from simulation.runs.told import LEAST


def main() -> int:
    """Run seeds; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one seed and print what happened")
    parser.add_argument("--seeds", help="A:B: from A to before B")
    parser.add_argument(
        "--awaits",
        type=int,
        nargs="?",
        const=0,
        metavar="N",
        help="let the master of a calm search die at each of its awaits; with N at so many, evenly spread",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--calm", action="store_true", help="without faults")
    worlds = ("search", "cluster", "elastic", "steered", "collected", "engines")
    parser.add_argument("--world", choices=worlds, help="else it is by the seed")
    parser.add_argument("--stop", action="store_true", help="end at the first failure")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of --seed")
    parser.add_argument("--json", type=Path, help="write the counts there")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts must have one order, or a seed would not be one run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]])
    if options.awaits is not None:
        return _awaits(options)
    if options.seed is not None:
        return _replay(options.seed, options)
    first, last = (int(part) for part in options.seeds.split(":"))
    return _many(first, last, options)


def _replay(seed: int, options: argparse.Namespace) -> int:
    from simulation.bench import Bench
    from simulation.worlds import world_of

    bench = Bench()
    try:
        started = time.process_time()
        outcome = bench.run(seed, calm=options.calm, kind=world_of(seed, options.world))
    finally:
        bench.close()
    for line in outcome.trace if options.trace else outcome.trace[-60:]:
        print(line)
    print(f"{outcome!r}\n{time.process_time() - started:.3f} s of CPU")
    print(outcome.problem or "all promises held")
    return 1 if outcome.problem else 0


def _awaits(options: argparse.Namespace) -> int:
    from simulation.awaits import sweep, total
    from simulation.runs.many import processes

    started = time.monotonic()
    with processes(options.jobs) as pool:
        jobs = [pool.submit(sweep, options.awaits, part, options.jobs) for part in range(options.jobs)]
        found = total([job.result() for job in jobs])
    if options.json:
        options.json.write_text(json.dumps(asdict(found)))
    for at, problem in sorted(found.problems.items())[:40]:
        print(f"the master died at callback {at}: {problem}")
    print(f"the master died at {found.tried} of its {found.awaits} awaits in {time.monotonic() - started:.1f} s")
    print(f"{len(found.problems)} failed; in {found.alike} every search was told all in the order of the calm run")
    return 1 if found.problems else 0


def _many(first: int, last: int, options: argparse.Namespace) -> int:
    from simulation.runs.many import chunk, processes

    started = time.monotonic()
    size = max(1, min(100, -(-(last - first) // options.jobs)))
    parts = [(start, min(start + size, last)) for start in range(first, last, size)]
    if len(parts) == 1:
        results = [chunk(*parts[0], options)]
    else:
        with processes(options.jobs) as pool:
            jobs = [pool.submit(chunk, *part, options) for part in parts]
            results = [job.result() for job in jobs]
    total = _summary(results)
    if options.json:
        options.json.write_text(json.dumps(total))
    world = f" --world {options.world}" if options.world else ""
    for seed, problem in sorted(total["problems"].items())[:40]:
        print(
            f"seed {seed}: {problem}\n    replay: PYTHONPATH=tests .venv/bin/python -m simulation --seed {seed}{world}"
            " --trace"
        )
    print(f"{last - first} seeds in {time.monotonic() - started:.1f} s, {len(total['problems'])} failed")
    print("in each at least", ", ".join(f"{total[key]} {name}" for key, name in LEAST.items()))
    print("faults:", ", ".join(f"{kind} {number}" for kind, number in sorted(total["faults"].items())))
    print("faults that never happened:", ", ".join(kind for kind in KINDS if not total["faults"].get(kind)) or "none")
    print("checks:", ", ".join(f"{kind} {number}" for kind, number in sorted(total["checks"].items())))
    return 1 if total["problems"] else 0


def _summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    faults, checks = Counter[str](), Counter[str]()
    problems: dict[int, str] = {}
    digests: dict[int, str] = {}
    for result in results:
        faults.update(result["faults"])
        checks.update(result["checks"])
        problems.update(result["problems"])
        digests.update(result["digests"])
    return {
        "faults": faults,
        "checks": checks,
        "problems": problems,
        "digests": digests,
        **{key: min(result[key] for result in results) for key in LEAST},
    }


if __name__ == "__main__":
    sys.exit(main())
