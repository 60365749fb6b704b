"""The shared file to which attempts append, and the checker: what it and the master say must be one history.

An attempt writes a line when it begins, one before it reports a step, and one at its end, each by a single write with
O_APPEND; its token is its allocation's id. What the master says is, of each trial, whose report of which step counts.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One line of the book."""

    what: str
    token: str
    trial: int
    run: int
    agent: str
    slots: tuple[str, ...]
    pid: int
    step: int
    time: float


def read_book(path: Path) -> list[Line]:
    """The lines, as they stand; a torn one is a mistake of the file system and raises."""
    return [Line(**{**row, "slots": tuple(row["slots"])}) for row in map(json.loads, path.read_text().splitlines())]


def violations(lines: Sequence[Line], effective: Mapping[int, Sequence[tuple[int, int]]], steps: int) -> list[str]:
    """Everything that contradicts one effective run of each trial, whole and in order.

    Args:
        lines: The book.
        effective: Of each trial, (step, run) of the reports that count, as the master has them.
        steps: So many steps has each trial.
    """
    return [*_attempts(lines), *_slots(lines), *_effects(lines, effective, steps)]


def _attempts(lines: Sequence[Line]) -> Iterable[str]:
    begun = Counter(line.token for line in lines if line.what == "begin")
    yield from (f"attempt {token} began {times} times" for token, times in begun.items() if times > 1)
    yield from (f"attempt {token} never began" for token in sorted({line.token for line in lines} - set(begun)))
    runs: dict[tuple[int, int], set[str]] = defaultdict(set)
    for line in lines:
        runs[line.trial, line.run].add(line.token)
    yield from (
        f"run {run} of trial {trial} is {len(seen)} attempts" for (trial, run), seen in runs.items() if len(seen) > 1
    )


def _slots(lines: Sequence[Line]) -> Iterable[str]:
    """Look for a slot that had two living owners: each lives from its first line to its last at least."""
    owned: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for slot in line.slots:
            owned[line.agent, slot][line.token].append(line.time)
    for (agent, slot), owners in owned.items():
        spans = sorted((min(times), max(times), token) for token, times in owners.items())
        for (_, ended, first), (began, _, second) in pairwise(spans):
            if began < ended:
                yield f"slot {slot} of {agent} had {first} and {second} at once, for {ended - began:.3f} s"


def _effects(lines: Sequence[Line], effective: Mapping[int, Sequence[tuple[int, int]]], steps: int) -> Iterable[str]:
    done = Counter((line.trial, line.run, line.step) for line in lines if line.what == "step")
    for trial, points in effective.items():
        if [step for step, _ in points] != list(range(1, steps + 1)):
            yield f"trial {trial} has the steps {[step for step, _ in points]}, not each of {steps} once"
        runs = [run for _, run in points]
        if runs != sorted(runs):
            yield f"trial {trial}: an earlier run counts after a later one: {runs}"
        yield from (
            f"trial {trial}: step {step} of run {run} counts and was done {done[trial, run, step]} times"
            for step, run in points
            if done[trial, run, step] != 1
        )
        last = max((line.run for line in lines if line.trial == trial and line.what == "end"), default=0)
        if not runs or runs[-1] != last:
            yield f"trial {trial}: run {last} is the last that came to the end, and {runs[-1:]} counts"
