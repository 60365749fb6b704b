"""What `Trainer.fit` costs over a loop written by hand, beside other frameworks; two processes; a checkpoint's stall.

    make bench                        all of it, with the frameworks installed
    python bench/trainer/trainer.py           the same, with the frameworks that are there
    python bench/trainer/trainer.py --quick   short turns and 50 MB, under a minute: is everything in order?
    python bench/trainer/trainer.py --rows hand-written,detlab --parts step --cases "MLP; CNN"
    python bench/trainer/trainer.py --parts paired --cases CNN      two loops in one process: a finer difference

All rows train the same model on the same data with the same torch `DataLoader` (detlab with its own, with the same
arguments), on one thread, and report their loss every 100 batches. They take turns, so that whatever else the machine
does hits all alike; `hand-written again` is the same loop in a second process: what it differs by is noise. The data is
a dataset that gives sample by sample, so that all loaders do the same work; the case "TensorDataset" shows what detlab
saves by taking whole batches where it can. `CPU us` is the processor time of all of a row's threads, `least` that of
its fastest turn: on a machine that has other things to do these are the steadier numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trainer_gate import BATCH, ENVIRONMENT, NEEDS, Course, Row, RowFailedError, Taken, take_turns, warm_up

CASES = ("MLP", "CNN", "MLP, long epochs", "MLP, TensorDataset")
STEP_GOAL = 30.0
"""Microseconds per step over the loop written by hand."""
DDP_GOAL = 3.0
"""Per cent per step over DDP written by hand."""


def quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return low, middle, high


def less(values: list[float], others: list[float]) -> list[float]:
    return [value - other for value, other in zip(values, others, strict=True)]


def table(title: str, found: dict[str, Taken], skipped: dict[str, str]) -> str:
    """One line per row: time per step, what it takes more than the loop written by hand did in the same turn."""
    over = "over hand-written (quartiles)"
    lines = [
        f"\n{title}",
        f"  {'row':20}{'us/step':>9}{over:>34}{'ratio':>8}{'CPU us':>9}{'over':>9}{'least':>9}{'over':>9}{'loss':>9}",
    ]
    base = found["hand-written"]
    for name, taken in found.items():
        wall, cpu = statistics.median(taken.wall), statistics.median(taken.cpu)
        low, middle, high = quartiles(less(taken.wall, base.wall))
        ratio = statistics.median(mine / hand for mine, hand in zip(taken.wall, base.wall, strict=True))
        more = "" if taken is base else f"{middle:+.1f} ({low:+.1f} … {high:+.1f})"
        more_cpu = "" if taken is base else f"{statistics.median(less(taken.cpu, base.cpu)):+.1f}"
        least = min(taken.cpu)
        more_least = "" if taken is base else f"{least - min(base.cpu):+.1f}"
        lines.append(
            f"  {name:20} {wall:8.1f} {more:>33} {ratio:7.3f} {cpu:8.1f} {more_cpu:>8} {least:8.1f} {more_least:>8}"
            f" {taken.loss:8.4f}"
        )
    lines += [f"  {name:20}skipped: {why}" for name, why in skipped.items()]
    return "\n".join(lines)


def missing(names: list[str]) -> dict[str, str]:
    """Rows that cannot run here -> why."""
    return {
        name: f"{NEEDS[name]} is not installed (make bench-trainer)"
        for name in names
        if importlib.util.find_spec(NEEDS[name].partition(".")[0]) is None
    }


class Rows:
    """The processes of the rows that run here; those that do not are in `skipped`, with the reason."""

    def __init__(self, names: list[str], folder: Path, *, ranks: int = 1) -> None:
        folder.mkdir()
        self.skipped = missing(names)
        self.there = [Row(name, folder, ranks=ranks) for name in names if name not in self.skipped]
        self._each(Row.meet)

    def _each(self, do: Callable[[Row], None]) -> None:
        for row in list(self.there):
            try:
                do(row)
            except RowFailedError as error:
                print(f"\n{row.name}: {error}\n{error.words}", file=sys.stderr)
                self.skipped[row.name] = str(error)
                self.there.remove(row)
                row.close()

    def train(self, course: Course) -> dict[str, Taken]:
        """Let all rows train a course, in turns."""
        self._each(lambda row: warm_up(row, course))
        return take_turns(self.there, course)

    def close(self) -> None:
        for row in self.there:
            row.close()


def measure(names: list[str], courses: dict[str, Course], folder: Path, *, rounds: int, ranks: int = 1) -> None:
    """Print a table for each titled course; every round has new processes, since each is a little faster or slower."""
    found: dict[str, dict[str, Taken]] = {title: {} for title in courses}
    seconds: dict[str, float] = {}
    skipped: dict[str, str] = {}
    folder.mkdir()
    for number in range(rounds):
        with contextlib.closing(Rows(names, folder / str(number), ranks=ranks)) as rows:
            for title, course in courses.items():
                begun = time.monotonic()
                for name, taken in rows.train(course).items():
                    found[title].setdefault(name, Taken()).join(taken)
                seconds[title] = max(time.monotonic() - begun, seconds.get(title, 0.0))
            skipped |= rows.skipped
    for title, course in courses.items():
        turns = f"{rounds} rounds of {course.blocks} turns of {course.steps} steps, {seconds[title]:.0f} s each"
        complete = {name: taken for name, taken in found[title].items() if name not in skipped}
        print(table(f"{title}, batch size {BATCH}; medians of {turns}", complete, skipped), flush=True)


def step(names: list[str], cases: list[str], folder: Path, *, steps: int, blocks: int, rounds: int) -> None:
    courses = {f"Step: {case}, one thread": Course(case=case, steps=steps, blocks=blocks) for case in cases}
    measure(names, courses, folder / "step", rounds=rounds)
    print(f"  goal: detlab at most {STEP_GOAL:.0f} us over hand-written")


def two_processes(names: list[str], folder: Path, *, steps: int, blocks: int, rounds: int) -> None:
    names = [name for name in names if name.startswith("hand-written") or name == "detlab"]
    title = "Two processes: DDP over gloo, MLP 64-512-512-10, one thread each"
    courses = {title: Course(case="wide MLP", steps=steps, blocks=blocks)}
    measure(names, courses, folder / "ddp", rounds=rounds, ranks=2)
    print(f"  goal: detlab at most {DDP_GOAL:.0f} % over hand-written")


def paired(folder: Path, cases: list[str], *, steps: int, turns: int) -> None:
    script = Path(__file__).with_name("trainer_paired.py")
    # One heap for all threads, as a single loop has it.
    environment = {**os.environ, **ENVIRONMENT, "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, script, *map(str, (steps, turns)), *cases]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, cwd=folder, env=environment)


def checkpoint(folder: Path, *, megabytes: int, times: int, period: int) -> None:
    script = Path(__file__).with_name("trainer_checkpoint.py")
    command = [sys.executable, script, folder, *map(str, (megabytes, times, period))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, cwd=folder, env=environment)


def machine() -> str:
    packages = [name for name in ("torch", "lightning", "accelerate", "transformers") if importlib.util.find_spec(name)]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, {versions}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: is everything in order?")
    parser.add_argument("--rows", default=",".join(NEEDS), help="which, by commas; hand-written is always there")
    parser.add_argument("--cases", default=None, help=f"which, by semicolons: {'; '.join(CASES)}")
    parser.add_argument("--parts", default="step,paired,ddp,checkpoint", help="which, by commas")
    parser.add_argument("--blocks", type=int, default=8, help="turns of each row in a round (8)")
    parser.add_argument("--steps", type=int, default=500, help="of a turn (step part): short ones see calmer noise")
    parser.add_argument("--rounds", type=int, default=3, help="each with new processes (3)")
    options = parser.parse_args()
    wanted = {"hand-written", *options.rows.split(",")}
    names = [name for name in NEEDS if name in wanted]
    parts = options.parts.split(",")
    quick = options.quick
    turns = {"blocks": 2, "rounds": 1} if quick else {"blocks": options.blocks, "rounds": options.rounds}
    cases = options.cases.split("; ") if options.cases else list(CASES[:1] if quick else CASES)
    print(f"Trainer bench: {machine()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        folder = Path(name)
        if "step" in parts:
            step(names, cases, folder, steps=100 if quick else options.steps, **turns)
        if "paired" in parts:
            (folder / "paired").mkdir()
            paired(folder / "paired", cases[:2], steps=20, turns=30 if quick else 600)
        if "ddp" in parts:
            two_processes(names, folder, steps=50 if quick else 200, **turns)
        if "checkpoint" in parts:
            (folder / "checkpoint").mkdir()
            megabytes, times, period = (50, 2, 200) if quick else (500, 7, 2000)
            checkpoint(folder / "checkpoint", megabytes=megabytes, times=times, period=period)
    return 0


if __name__ == "__main__":
    sys.exit(main())
