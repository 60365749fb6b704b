"""Jobs that are moved in their line: where they end, and whom they may pass."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

import pytest

from detlab_hub.core.scheduling import Job
from detlab_hub.core.scheduling.order import place_of_job
from detlab_hub.core.scheduling.reordering import Overtaking, move


def line(jobs: Collection[Job]) -> list[str]:
    return [job.id for job in sorted(jobs, key=place_of_job)]


def after(jobs: Collection[Job], positions: dict[str, float]) -> list[Job]:
    return [replace(job, position=positions.get(job.id, job.position)) for job in jobs]


def jobs(**submitted: float) -> list[Job]:
    return [Job(name, submitted=time) for name, time in submitted.items()]


def test_directly_ahead_and_directly_behind() -> None:
    four = jobs(a=1, b=2, c=3, d=4)
    assert line(after(four, move(four, "d", "b", ahead=True))) == ["a", "d", "b", "c"]
    assert line(after(four, move(four, "d", "a", ahead=True))) == ["d", "a", "b", "c"]
    assert line(after(four, move(four, "a", "c", ahead=False))) == ["b", "c", "a", "d"]
    assert line(after(four, move(four, "a", "d", ahead=False))) == ["b", "c", "d", "a"]


def test_again_changes_nothing() -> None:
    four = jobs(a=1, b=2, c=3, d=4)
    moved = after(four, move(four, "d", "b", ahead=True))
    assert move(moved, "d", "b", ahead=True) == {}
    assert move(moved, "d", "a", ahead=False) == {}


def test_between_two_of_one_position() -> None:
    same = jobs(a=5, b=5, c=5, d=5.0000005, e=9)
    moved = after(same, move(same, "e", "b", ahead=True))
    assert line(moved) == ["a", "e", "b", "c", "d"]


def test_any_moves_end_where_they_are_asked_to_and_leave_the_others_order() -> None:
    draw = random.Random(3)
    some = jobs(**{f"j{n}": 1.7e9 + draw.choice([0, 0, 1, 2, 1e-6]) for n in range(7)})
    for _ in range(400):
        moving, target = draw.sample([job.id for job in some], 2)
        ahead = draw.random() < 0.5
        before = [name for name in line(some) if name != moving]
        some = after(some, move(some, moving, target, ahead=ahead))
        found = line(some)
        assert [name for name in found if name != moving] == before
        assert found.index(target) - found.index(moving) == (1 if ahead else -1)


def test_nobody_overtakes_somebody_elses() -> None:
    four = jobs(a=1, b=2, c=3, d=4)
    with pytest.raises(Overtaking) as refused:
        move(four, "c", "a", ahead=True, mine={"c", "d"})
    assert refused.value.overtaken == "a"
    with pytest.raises(Overtaking) as refused:
        move(four, "d", "a", ahead=False, mine={"d"})
    assert refused.value.overtaken == "b"


def test_letting_others_pass_is_anybodys_right() -> None:
    four = jobs(a=1, b=2, c=3, d=4)
    assert line(after(four, move(four, "a", "c", ahead=False, mine={"a"}))) == ["b", "c", "a", "d"]


def test_ones_own_change_places_among_themselves() -> None:
    four = jobs(mine1=1, other=2, mine2=3, last=4)
    moved = after(four, move(four, "mine2", "mine1", ahead=True, mine={"mine1", "mine2"}))
    assert line(moved) == ["mine2", "other", "mine1", "last"]
    assert move(moved, "mine2", "mine1", ahead=True, mine={"mine1", "mine2"}) == {}


def test_whatever_people_move_the_others_keep_their_places() -> None:
    draw = random.Random(5)
    some = jobs(**{f"j{n}": float(n) for n in range(8)})
    for _ in range(300):
        mine = set(draw.sample([job.id for job in some], 3))
        moving, target = draw.choice(sorted(mine)), draw.choice([job.id for job in some])
        if moving == target:
            continue
        before = line(some)
        try:
            moved = after(some, move(some, moving, target, ahead=draw.random() < 0.5, mine=mine))
        except Overtaking:
            continue
        found = line(moved)
        for name in set(before) - mine:
            ahead_before = set(before[: before.index(name)]) & mine
            ahead_after = set(found[: found.index(name)]) & mine
            assert len(ahead_after) <= len(ahead_before)
        some = moved
