"""The shared file to which attempts append, and the checker: what it and the master say must be one history.

Each rank of an attempt writes a line when it begins, one before a step is reported, one once a checkpoint is committed,
one when it has left or ended, and now and then one that says that it lives, each by a single write with O_APPEND. Its
token is its allocation's id; its peers are the tokens of those with which it is in step. No step is reported before all
ranks have done it. What the master says is, of each trial, whose report of which step counts.
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
    rank: int
    agent: str
    slots: tuple[str, ...]
    pid: int
    peers: tuple[str, ...]
    step: int
    time: float


@dataclass(frozen=True)
class Course:
    """A trial as it should have been, and as the master has it.

    Attributes:
        ranks: So many processes has each attempt.
        steps: So many steps has the trial.
        points: (step, run) of the reports that count.
    """

    ranks: int
    steps: int
    points: Sequence[tuple[int, int]]


def read_book(path: Path) -> list[Line]:
    """The lines, as they stand; a torn one is a mistake of the file system and raises."""
    rows = map(json.loads, path.read_text().splitlines())
    return [Line(**{**row, "slots": tuple(row["slots"]), "peers": tuple(row["peers"])}) for row in rows]


def violations(lines: Sequence[Line], courses: Mapping[int, Course]) -> list[str]:
    """Everything that contradicts one effective run of each trial, whole and in order.

    Args:
        lines: The book.
        courses: The trials, by id.
    """
    strangers = sorted({line.trial for line in lines} - set(courses))
    if strangers:
        return [f"the trials {strangers} are in the book, and nobody has asked for them"]
    found = [*_attempts(lines), *_slots(lines), *_saved(lines)]
    for trial, course in courses.items():
        mine = [line for line in lines if line.trial == trial]
        found += [*_gangs(mine, course), *_effects(mine, trial, course)]
    return found


def _attempts(lines: Sequence[Line]) -> Iterable[str]:
    begun = Counter((line.token, line.rank) for line in lines if line.what == "begin")
    seen = {(line.token, line.rank) for line in lines}
    yield from (f"rank {rank} of attempt {token} began {n} times" for (token, rank), n in begun.items() if n > 1)
    yield from (f"rank {rank} of attempt {token} never began" for token, rank in sorted(seen - set(begun)))
    processes, tokens = defaultdict(set), defaultdict(set)
    for line in lines:
        processes[line.token, line.rank].add((line.agent, line.pid))
        tokens[line.trial, line.run].add(line.token)
    yield from (
        f"rank {rank} of attempt {token} is {len(found)} processes"
        for (token, rank), found in processes.items()
        if len(found) > 1
    )
    yield from (
        f"run {run} of trial {trial} is {len(found)} attempts"
        for (trial, run), found in tokens.items()
        if len(found) > 1
    )


def _slots(lines: Sequence[Line]) -> Iterable[str]:
    """Look for a slot that had two living owners, ranks of one attempt included.

    Each lives from its first line to its last at least, also while it does nothing but wait for a rank that is gone.
    """
    owned: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for slot in line.slots:
            owned[line.agent, slot][f"{line.token} (rank {line.rank})"].append(line.time)
    for (agent, slot), owners in owned.items():
        spans = sorted((min(times), max(times), token) for token, times in owners.items())
        for (_, ended, first), (began, _, second) in pairwise(spans):
            if began < ended:
                yield f"slot {slot} of {agent} had {first} and {second} at once, for {ended - began:.3f} s"


def _saved(lines: Sequence[Line]) -> Iterable[str]:
    """Look for an attempt that went on from before what an earlier one had saved, when it was preempted or at all."""
    begins = {(trial, run): steps[0] for (trial, run, _), steps in _done(lines).items()}
    kept = {(line.trial, line.run, line.step, line.what) for line in lines if line.what in {"saved", "preempted"}}
    for trial, run, step, what in sorted(kept):
        later = {other: first for (of, other), first in begins.items() if of == trial and other > run}
        yield from (
            f"run {run} of trial {trial} was {what} at step {step}, and run {other} went on with step {first}"
            for other, first in later.items()
            if first <= step
        )


def _gangs(lines: Sequence[Line], course: Course) -> Iterable[str]:
    """Look, in one trial, for ranks of different attempts that trained together, and for ranks that went alone.

    A rank does a step after one that all have done: none is further ahead than that, and all begin at the same one.
    """
    tokens = {line.run: line.token for line in lines}
    for line in lines:
        if not line.rank < course.ranks:
            yield f"attempt {line.token} of {course.ranks} ranks has a rank {line.rank}"
        asked = line.what not in {"begin", "lives"} or line.peers
        if asked and line.peers != (line.token,) * course.ranks:
            yield f"rank {line.rank} of attempt {line.token} did '{line.what}' together with {list(line.peers)}"
    done = _done(lines)
    for run, token in tokens.items():
        steps = [done.get((lines[0].trial, run, rank), []) for rank in range(course.ranks)]
        longest, shortest = max(steps, key=len), min(steps, key=len)
        first = longest[0] if longest else 0
        if longest != list(range(first, first + len(longest))):
            yield f"attempt {token} did the steps {longest}, not one after the other"
        if len(longest) - len(shortest) > 1 or any(one != longest[: len(one)] for one in steps):
            yield f"the ranks of attempt {token} were not in step: {steps}"


def _effects(lines: Sequence[Line], trial: int, course: Course) -> Iterable[str]:
    done = Counter((line.run, line.step, line.rank) for line in lines if line.what == "step")
    if [step for step, _ in course.points] != list(range(1, course.steps + 1)):
        yield f"trial {trial} has the steps {[step for step, _ in course.points]}, not each of {course.steps} once"
    runs = [run for _, run in course.points]
    if runs != sorted(runs):
        yield f"trial {trial}: an earlier run counts after a later one: {runs}"
    yield from (
        f"trial {trial}: step {step} of run {run} counts and was done {done[run, step, rank]} times by rank {rank}"
        for step, run in course.points
        for rank in range(course.ranks)
        if done[run, step, rank] != 1
    )
    last = max((line.run for line in lines if line.what == "end"), default=0)
    if not runs or runs[-1] != last:
        yield f"trial {trial}: run {last} is the last that came to the end, and {runs[-1:]} counts"
    ended = Counter(line.rank for line in lines if line.what == "end" and line.run == last)
    if ended != Counter(range(course.ranks)):
        yield f"trial {trial}: of run {last} the ranks {sorted(ended.elements())} came to the end"


def _done(lines: Sequence[Line]) -> dict[tuple[int, int, int], list[int]]:
    """The steps by trial, run and rank, in the order in which they were done."""
    found = defaultdict(list)
    for line in lines:
        if line.what == "step":
            found[line.trial, line.run, line.rank].append(line.step)
    return dict(found)


def length(lines: Sequence[Line], trial: int) -> int:
    """At which step the last attempt of a trial that came to the end did so; 0 if none did."""
    ends = [(line.run, line.step) for line in lines if line.trial == trial and line.what == "end"]
    return max(ends, default=(0, 0))[1]


def resumed(lines: Sequence[Line], trial: int) -> int:
    """How often a trial was preempted and its next attempt did the very next step."""
    begins = {run: steps[0] for (of, run, rank), steps in _done(lines).items() if of == trial and rank == 0}
    left = {line.run: line.step for line in lines if (line.trial, line.what, line.rank) == (trial, "preempted", 0)}
    later = ((step, [other for other in begins if other > run]) for run, step in left.items())
    return sum(bool(others) and begins[min(others)] == step + 1 for step, others in later)
