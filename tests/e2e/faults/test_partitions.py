"""Four nodes in network namespaces, TLS between them and the master; kills, pauses, pulled cables, preemption.

Each rank of each attempt appends its token to a shared file: of a trial on one node, of one over two, and of one that
is more urgent and has all nodes for a while. Afterwards that file and the master's history must be one: each step of
each trial was done by every rank of the attempt whose report counts, and by ranks of no other; none began twice, no
slot had two owners, nothing that was saved was done again, nothing is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from partition_lab import ENDLESS, NODES, URGENT, Nemesis, Place, a_place

from detlab.client.operations import experiments
from detlab.client.resources import Experiment, Trial
from detlab.schemas.wire import ExperimentState
from testbed.network.islands import why_not
from testbed.token_book import Course, Line, length, read_book, resumed, violations


@pytest.fixture
def place(tmp_path: Path, meeting_place: Path) -> Iterator[Place]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with a_place(tmp_path, meeting_place) as found:
        yield found


def _points(place: Place, trial: Trial) -> list[tuple[int, int]]:
    """The reports of a trial that count."""
    series = place.client.session.run(experiments.trial_metrics(trial.id, group="training", max_points=10_000))
    (curve,) = [one for one in series if one.name == "run"]
    return [(int(step), int(value)) for step, value in zip(curve.steps, curve.values, strict=True)]


def _runs_that_spoke(trial: Trial) -> list[int]:
    """The attempts whose output the master took, line by line in the order in which it did.

    Reports of an attempt that is over are refused by the store as well; what it prints, by the fence alone.
    """
    found = (re.fullmatch(r"run (\d+) (?:does step \d+|lives)", line.text) for line in trial.logs())
    return [int(match[1]) for match in found if match]


def _course(place: Place, experiment: Experiment) -> dict[int, Course]:
    """Wait for the end of an experiment; what there is to check its trial by."""
    experiment.wait(120)
    ended = experiment.reload()
    assert ended.state is ExperimentState.COMPLETED, place.tell()
    (trial,) = ended.list_trials()
    said = _runs_that_spoke(trial)
    assert said == sorted(said), f"an attempt that was over was heard: {said}\n{place.tell()}"
    steps = length(read_book(place.book), trial.id)
    return {trial.id: Course(place.ranks[trial.id], steps, _points(place, trial))}


@pytest.mark.soak
@pytest.mark.hub
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_each_trial_runs_once_in_effect_under_kill_pause_partition_and_preemption(place: Place) -> None:
    alone, gang = place.submit("alone", 1, ENDLESS), place.submit("gang", 2, ENDLESS)
    one, two = place.ranks
    place.settle()
    nemesis = Nemesis(place, [one, two])
    nemesis.rage()
    place.settle()
    place.calm.touch()
    assert nemesis.urgent is not None
    assert nemesis.killed is not None
    courses: dict[int, Course] = {}
    for experiment in (alone, gang, nemesis.urgent):
        courses |= _course(place, experiment)
    lines = read_book(place.book)
    assert violations(lines, courses) == [], place.tell()
    assert [course.ranks for course in courses.values()] == [1, 2, NODES]
    assert [*courses.values()][-1].steps == URGENT
    assert (nemesis.killed.trial, nemesis.killed.run + 1) in {(line.trial, line.run) for line in lines}, place.tell()
    assert set(nemesis.fenced) == {one, two}, place.tell()
    for trial in (one, two):
        assert courses[trial].steps > 10, "it did not go on for long"
        assert resumed(lines, trial) == 1, (
            f"trial {trial} was not preempted, or did not go on from there\n{place.tell()}"
        )
    _moved(lines, place.ranks, nemesis.fenced)


def _moved(lines: list[Line], ranks: dict[int, int], lost: dict[int, Line]) -> None:
    """Each trial had as many nodes as ranks, and went on without the one that it lost."""
    assert {line.agent for line in lines} == {f"node-{number}" for number in range(1, NODES + 1)}
    nodes: dict[tuple[int, int], set[str]] = {}
    for line in lines:
        nodes.setdefault((line.trial, line.run), set()).add(line.agent)
    for (trial, run), found in nodes.items():
        assert len(found) <= ranks[trial], f"run {run} of trial {trial} was on {found}"
    for trial, line in lost.items():
        before, after = nodes[trial, line.run], nodes[trial, line.run + 1]
        assert line.agent in before - after, f"trial {trial} never lost a node: {nodes}"
        assert len(before) == len(after) == ranks[trial], f"trial {trial} of {ranks[trial]} ranks: {nodes}"


def _writes(run: int, rank: int, node: int, at: float, words: str, ranks: int = 1) -> list[Line]:
    """What a rank writes from a time on, a word a second: a number is a step."""
    token, step, lines = f"1.a.{run}", 0, []
    for time, word in enumerate(words.split()):
        step = int(word) if word.isdigit() else step
        what, peers = "step" if word.isdigit() else word, () if word == "begin" else (token,) * ranks
        pid = 10 * run + rank
        lines.append(Line(what, token, 1, run, rank, f"node-{node}", ("cpu0",), pid, peers, step, at + time))
    return lines


def _alone() -> list[Line]:
    """Two attempts of a trial on two nodes: the first is cut off after step 2, the second goes on from step 1."""
    return [*_writes(1, 0, 1, 0, "begin 1 2 3"), *_writes(2, 0, 2, 5, "begin 2 3 end")]


def _gang() -> list[Line]:
    """Three attempts of a trial over two nodes: the first loses one of them, the second is preempted."""
    return [
        *_writes(1, 0, 1, 0, "begin 1 2 saved 3 lives", 2),
        *_writes(1, 1, 2, 0, "begin 1 2 saved 3 lives lives lives lives lives lives lives lives lives", 2),
        *_writes(2, 0, 1, 10, "begin 3 4 saved preempted", 2),
        *_writes(2, 1, 3, 10, "begin 3 4 saved preempted", 2),
        *_writes(3, 0, 2, 20, "begin 5 end", 2),
        *_writes(3, 1, 3, 20, "begin 5 end", 2),
    ]


def _course_of(*runs: int, ranks: int = 1, steps: int = 0) -> dict[int, Course]:
    """The master's history: of each step, whose report counts."""
    return {1: Course(ranks, steps or len(runs), list(enumerate(runs, 1)))}


ALONE, GANG = _course_of(1, 2, 2), _course_of(1, 1, 2, 2, 3, ranks=2)


def _but(lines: Sequence[Line], what: str, run: int, rank: int | None = None, /, **changes: Any) -> list[Line]:
    """The lines, some of them changed: of a kind (or all: an empty text) and a run, by one rank or by all."""
    meant = [line.run == run and what in ("", line.what) and rank in (None, line.rank) for line in lines]
    assert any(meant)
    return [replace(line, **changes) if hit else line for line, hit in zip(lines, meant, strict=True)]


def _without(lines: Sequence[Line], what: str, run: int, rank: int | None = None) -> list[Line]:
    kept = _but(lines, what, run, rank, what="")
    return [line for line in kept if line.what]


def test_the_checker_lets_a_partitioned_attempt_pass_whose_reports_do_not_count() -> None:
    assert violations(_alone(), ALONE) == []
    assert (length(_alone(), 1), resumed(_alone(), 1)) == (3, 0)


def test_the_checker_lets_a_gang_pass_that_loses_a_node_and_is_preempted() -> None:
    assert violations(_gang(), GANG) == []
    assert (length(_gang(), 1), resumed(_gang(), 1)) == (5, 1)


def test_the_checker_finds_what_is_planted() -> None:
    lines = _alone()
    begin, step = lines[4], lines[5]
    overlapping = [replace(line, agent="node-1", time=line.time - 3) if line.run == 2 else line for line in lines]
    cases: list[tuple[list[Line], dict[int, Course], str]] = [
        ([*lines, begin], ALONE, "began 2 times"),
        (lines[1:], ALONE, "never began"),
        ([*lines, replace(begin, token="1.a.2b")], ALONE, "is 2 attempts"),
        (overlapping, ALONE, "at once"),
        (lines, {1: Course(1, 3, [(1, 1), (3, 2)])}, "not each of 3 once"),
        (lines, {1: Course(1, 3, [(1, 1), (2, 2), (2, 2), (3, 2)])}, "not each of 3 once"),
        (lines, _course_of(2, 1, 2), "counts after a later one"),
        (lines, _course_of(2, 2, 2), "done 0 times"),
        ([*lines, step], ALONE, "done 2 times"),
        (lines, _course_of(1, 1, 1), "run 2 is the last"),
        (lines, _course_of(steps=3), "not each of 3 once"),
        (lines, {}, "nobody has asked for them"),
    ]
    _are_found(cases)


def test_the_checker_finds_what_is_planted_in_a_gang() -> None:
    gang = _gang()
    ahead = [*_without(gang, "step", 1), *_writes(1, 0, 1, 0, "1 2 3", 2), *_writes(1, 1, 2, 0, "1", 2)]
    jumps = [*_without(gang, "step", 1), *_writes(1, 0, 1, 0, "1 3", 2), *_writes(1, 1, 2, 0, "1 3", 2)]
    again = [*gang[:-6], *_writes(3, 0, 2, 20, "begin 4 5 end", 2), *_writes(3, 1, 3, 20, "begin 4 5 end", 2)]
    backwards = [*_without(gang, "step", 2), *_writes(2, 0, 1, 10, "2 3 4", 2), *_writes(2, 1, 3, 10, "2 3 4", 2)]
    cases: list[tuple[list[Line], str]] = [
        ([*gang, *_writes(1, 1, 2, 0, "begin", 2)], "rank 1 of attempt 1.a.1 began 2 times"),
        (_without(gang, "begin", 1, 1), "rank 1 of attempt 1.a.1 never began"),
        (_but(gang, "lives", 1, 1, pid=99), "rank 1 of attempt 1.a.1 is 2 processes"),
        (_but(gang, "saved", 1, 1, agent="node-4"), "rank 1 of attempt 1.a.1 is 2 processes"),
        (_but(gang, "", 3, 1, rank=2), "attempt 1.a.3 of 2 ranks has a rank 2"),
        # Whoever was cut off lives until second 13, and does nothing.
        (_but(gang, "", 1, 1, agent="node-3"), "had 1.a.1 (rank 1) and 1.a.2 (rank 1) at once"),
        (_but(gang, "", 2, 1, agent="node-1"), "had 1.a.2 (rank 0) and 1.a.2 (rank 1) at once"),
        (_but(gang, "step", 2, 1, peers=("1.a.1", "1.a.2")), "together with ['1.a.1', '1.a.2']"),
        (_but(gang, "step", 2, 1, peers=("1.a.2",)), "together with ['1.a.2']"),
        (_but(gang, "lives", 1, 1, peers=("1.a.1", "1.a.2")), "together with ['1.a.1', '1.a.2']"),
        (_without(gang, "step", 3, 1), "step 5 of run 3 counts and was done 0 times by rank 1"),
        ([*gang, *_writes(3, 1, 3, 21, "5", 2)], "step 5 of run 3 counts and was done 2 times by rank 1"),
        (ahead, "the ranks of attempt 1.a.1 were not in step"),
        (_but(gang, "step", 3, 1, step=6), "the ranks of attempt 1.a.3 were not in step"),
        (jumps, "attempt 1.a.1 did the steps [1, 3], not one after the other"),
        (backwards, "run 1 of trial 1 was saved at step 2, and run 2 went on with step 2"),
        (_without(again, "saved", 2), "run 2 of trial 1 was preempted at step 4, and run 3 went on with step 4"),
        (_without(gang, "end", 3, 1), "of run 3 the ranks [0] came to the end"),
    ]
    _are_found([(book, GANG, words) for book, words in cases])
    assert resumed(again, 1) == 0


def _are_found(cases: Sequence[tuple[list[Line], dict[int, Course], str]]) -> None:
    for book, courses, words in cases:
        found = violations(book, courses)
        assert any(words in one for one in found), f"{words}: {found}"
