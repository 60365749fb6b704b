"""What the benches of the master and the client share: options, processes, peers' environments, and the table.

A figure is a number beside its goal. A peer is measured by a small program of ours under `bench/peers/`, run by the
Python of an environment of its own (`.venv-bench-NAME`, made by `make bench-peers`), which prints one JSON object.
Where that environment is missing, its rows say so, and our own rows are measured all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
LABEL = 62


@dataclass(frozen=True)
class Figure:
    """One row of a table.

    Attributes:
        label: What was measured.
        value: The number, as a rule a median of rounds; None where it could not be measured (`note` says why).
        unit: Its unit.
        at_most: The goal, if less is better.
        at_least: The goal, if more is better.
        note: Spread, floor, or why there is no number.
    """

    label: str
    value: float | None
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether there is a goal that the value does not reach."""
        if self.value is None:
            return False
        over = self.at_most is not None and self.value > self.at_most
        return over or (self.at_least is not None and self.value < self.at_least)

    def __str__(self) -> str:
        number = "not measured" if self.value is None else f"{_short(self.value)} {self.unit}"
        goal = ""
        if self.value is not None and (self.at_most is not None or self.at_least is not None):
            sign, bound = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
            goal = f"goal {sign} {_short(bound or 0.0):6} {'MISSED' if self.missed else 'ok'}"
        note = f"  ({self.note})" if self.note else ""
        return f"  {self.label:{LABEL}} {number:>20}   {goal:24}{note}".rstrip()


def _short(number: float) -> str:
    size = abs(number)
    return f"{number:,.0f}" if size >= 100 else f"{number:.1f}" if size >= 10 else f"{number:.3g}"


def options(doc: str, more: Callable[[argparse.ArgumentParser], object] = lambda parser: None) -> argparse.Namespace:
    """Return what the command line says: `--rounds`, `--quick`, `--json`, `--check`, and what `more` adds."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="medians are of so many (default 5)")
    parser.add_argument("--quick", action="store_true", help="little of everything, one round: is it in order?")
    parser.add_argument("--no-peers", action="store_true", help="leave out what is measured beside us")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    more(parser)
    given = parser.parse_args()
    if given.quick:
        given.rounds = 1
    return given


def conclude(title: str, figures: Sequence[Figure], given: argparse.Namespace) -> int:
    """Print the table; return the exit status that the options ask for."""
    print(f"\n{title}")
    for figure in figures:
        print(figure)
    if given.json:
        print(json.dumps({"title": title, "figures": [asdict(figure) for figure in figures]}))
    missed = [figure.label for figure in figures if figure.missed]
    if missed and given.check:
        print(f"{len(missed)} of {len(figures)} rows miss their goal", file=sys.stderr)
    return int(bool(missed) and given.check)


def beside(goal: float, then: float, now: float | None, *, more: bool = False) -> float:
    """Return a goal, or what has the same ratio to the peer on this machine, if that is easier.

    Args:
        goal: The absolute goal.
        then: The peer's figure when the goal was set, on a machine of the reference kind.
        now: The peer's figure here; None if it was not measured.
        more: Whether more is better.
    """
    if now is None:
        return goal
    return min(goal, goal / then * now) if more else max(goal, goal / then * now)


def median_of(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Iterable[float], percent: float) -> float:
    """Return a percentile (0 to 100), interpolated."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float]) -> str:
    """Return the least and the greatest as text."""
    return f"{_short(min(values))} … {_short(max(values))}" if len(values) > 1 else ""


# --- processes --------------------------------------------------------------------------------------------


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_of(pids: Iterable[int], *, descendants: bool = True) -> float:
    """Return the CPU seconds that processes have taken so far, with children that have ended and were waited for."""
    total = 0.0
    for pid in pids:
        for process in family(pid) if descendants else family(pid)[:1]:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
    return total


def memory_of(pids: Iterable[int]) -> float:
    """Return the resident memory of processes and their descendants, in MB."""
    return sum(process.memory_info().rss for pid in pids for process in family(pid)) / 1e6


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that we started, and all that descend from it."""
    for one in reversed(family(process.pid)):
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


@contextmanager
def program(command: Sequence[str], log: Path, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program with its output in a file; at the end it and its children are gone."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, **more)
    try:
        yield process
    finally:
        end(process)


def until(ready: Callable[[], bool], what: str, seconds: float = 120.0) -> float:
    """Wait until something is so; return the seconds that it took.

    Raises:
        SystemExit: It did not become so in time.
    """
    began = time.perf_counter()
    while not ready():
        if time.perf_counter() - began > seconds:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.01)
    return time.perf_counter() - began


# --- peers ------------------------------------------------------------------------------------------------


OURS = "detlab"
"""The environment that has TensorBoard: this one."""


def peer_python(name: str) -> Path | None:
    """Return the Python of a peer's environment, None if it is not installed."""
    path = Path(sys.executable) if name == OURS else ROOT / f".venv-bench-{name}" / "bin" / "python"
    return path if path.exists() else None


def absent(name: str, given: argparse.Namespace) -> str:
    """Return why a peer is not measured; empty if it is."""
    if given.no_peers:
        return "peers are left out"
    return "" if peer_python(name) else f"not installed: make bench-peers PEERS={name}"


def ask_peer(name: str, script: str, *arguments: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a program of `bench/peers` in the peer's environment; return the JSON object of its last line.

    Raises:
        SystemExit: It failed; the end of its output is in the message.
    """
    command = [str(peer_python(name)), str(PEERS / script), *arguments]
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        output = (done.stdout + done.stderr)[-2000:]
        raise SystemExit(f"{script} in .venv-bench-{name} failed ({done.returncode}):\n{output}") from None
    return found
