"""Which checkpoints a policy keeps."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab_hub.core.collection import CheckpointRetention, Saved, decide
from detlab_hub.core.collection.deciding import NO_METRIC, NO_RULE, OUTDATED

_WORKED = (
    (1, [(1, None), (2, None), (3, 0.6), (4, 0.5), (5, 0.4)]),
    (2, [(6, None), (7, 0.2), (8, 0.3), (9, None), (10, None)]),
)
TABLE = [
    ((0, 0, 0), ""),
    ((2, 0, 0), "8 7"),
    ((5, 0, 0), "8 7 5 4 3"),
    ((0, 1, 0), "7 5"),
    ((0, 3, 0), "8 7 5 4 3"),
    ((0, 0, 1), "10 5"),
    ((0, 0, 3), "10 9 8 5 4 3"),
    ((2, 1, 0), "8 7 5"),
    ((2, 0, 1), "10 8 7 5"),
    ((0, 1, 1), "10 7 5"),
    ((2, 1, 1), "10 8 7 5"),
]
"""Determined's worked example: (experiment best, trial best, trial latest) and what is kept."""


def worked(sign: float = 1.0) -> list[Saved]:
    return [
        Saved(str(name), trial, name, None if metric is None else sign * metric)
        for trial, found in _WORKED
        for name, metric in found
    ]


def kept(
    policy: CheckpointRetention, saved: list[Saved], pins: tuple[str, ...] = (), *, smaller: bool = True
) -> set[str]:
    return {one.uuid for one in decide(policy, saved, pins, smaller_is_better=smaller) if one.keep}


@pytest.mark.parametrize(("numbers", "stays"), TABLE)
def test_determineds_worked_table(numbers: tuple[int, int, int], stays: str) -> None:
    assert kept(CheckpointRetention(*numbers), worked()) == set(stays.split())


@pytest.mark.parametrize(("numbers", "stays"), TABLE)
def test_the_table_upside_down(numbers: tuple[int, int, int], stays: str) -> None:
    assert kept(CheckpointRetention(*numbers), worked(-1.0), smaller=False) == set(stays.split())


def test_each_decision_says_why() -> None:
    why = {one.uuid: one.why for one in decide(CheckpointRetention(2, 1, 1), worked())}
    assert why["7"] == ("best of the experiment (1 of 2)", "best of its trial (1 of 1)")
    assert why["10"] == ("latest of its trial (1 of 1)",)
    assert why["9"] == ("no rule of the policy keeps it", NO_METRIC)


def test_a_decision_says_why_a_checkpoint_is_not_among_the_best() -> None:
    """Of one saved between two validations its owner would not know."""
    saved = [
        Saved("measured", 1, 1, 0.5),
        Saved("better", 1, 2, 0.1),
        Saved("between", 1, 3),
        Saved("before", 1, 4, current=False),
        Saved("last", 1, 5),
    ]

    def why(policy: CheckpointRetention) -> dict[str, tuple[str, ...]]:
        return {one.uuid: one.why for one in decide(policy, saved)}

    told = why(CheckpointRetention(0, 1, 1))
    assert told["measured"] == (NO_RULE,)
    assert told["between"] == (NO_RULE, NO_METRIC)
    assert told["before"] == (NO_RULE, OUTDATED)
    assert why(CheckpointRetention(0, 0, 1))["between"] == (NO_RULE,), "no rule asks for the best"


def test_a_pin_keeps_and_takes_no_place() -> None:
    decisions = {one.uuid: one for one in decide(CheckpointRetention(2, 0, 0), worked(), {"1", "7"})}
    assert {uuid for uuid, one in decisions.items() if one.keep} == {"8", "7", "1"}
    assert decisions["1"].pinned
    assert not decisions["7"].pinned, "a rule keeps it anyway"


def test_equal_metrics_rank_by_trial_and_steps() -> None:
    same = [Saved("c", 2, 1, 0.5), Saved("b", 1, 2, 0.5), Saved("a", 1, 1, 0.5)]
    assert kept(CheckpointRetention(1, 0, 0), same) == {"a"}
    assert kept(CheckpointRetention(0, 1, 0), same) == {"a", "c"}


def test_of_equal_steps_the_last_commit_is_the_latest() -> None:
    assert kept(CheckpointRetention(0, 0, 1), [Saved("b", 1, 5, created_at=1.0), Saved("a", 1, 5, created_at=2.0)]) == {
        "a"
    }


def test_what_was_before_a_trial_began_anew_is_not_its_latest() -> None:
    assert kept(CheckpointRetention(0, 0, 1), [Saved("before", 1, 50, current=False), Saved("after", 1, 5)]) == {
        "after"
    }


def test_what_diverged_is_never_the_best() -> None:
    saved = [Saved("nan", 1, 1, math.nan), Saved("inf", 1, 2, math.inf), Saved("none", 1, 3)]
    assert kept(CheckpointRetention(3, 3, 0), saved) == {"inf"}


@pytest.mark.parametrize("smaller", [True, False])
def test_what_is_better_than_any_number_has_diverged_and_displaces_no_best(smaller: bool) -> None:
    sign = 1.0 if smaller else -1.0
    saved = [Saved("diverged", 1, 1, sign * -math.inf), Saved("best", 1, 2, 0.5), Saved("last", 1, 3)]
    assert kept(CheckpointRetention(1, 1, 1), saved, smaller=smaller) == {"best", "last"}


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_a_negative_number_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 0"):
        CheckpointRetention(*numbers)


def test_nothing_saved() -> None:
    assert decide(CheckpointRetention(), []) == []


_metric = st.none() | st.sampled_from([0.0, 0.5, 1.0, math.inf, math.nan])
_saved = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), _metric, st.sampled_from([0.0, 1.0])), max_size=30)
_number = st.integers(0, 5)


@settings(max_examples=300, deadline=None)
@given(_saved, _number, _number, _number, st.sets(st.integers(0, 29)), st.booleans(), st.randoms())
def test_decisions_hold_what_they_promise(found, best, of_trial, latest, pinned, smaller, shuffle) -> None:
    saved = [Saved(f"{place:02}", *one) for place, one in enumerate(found)]
    pins = {f"{place:02}" for place in pinned}
    policy = CheckpointRetention(best, of_trial, latest)
    stays = kept(policy, saved, tuple(pins), smaller=smaller)
    # No pinned one goes, and a pin changes nothing about the others.
    assert pins & {one.uuid for one in saved} <= stays
    assert stays - pins == kept(policy, saved, smaller=smaller) - pins
    # The order in which they are given does not matter.
    mixed = list(saved)
    shuffle.shuffle(mixed)
    assert kept(policy, mixed, tuple(pins), smaller=smaller) == stays
    # What stays is decided the same when the rest is gone: collection can be repeated after a crash anywhere.
    left = [one for one in saved if one.uuid in stays]
    assert kept(policy, left, tuple(pins), smaller=smaller) == stays
    # A larger policy never lets go of more.
    more = kept(CheckpointRetention(best + 1, of_trial + 1, latest + 1), saved, tuple(pins), smaller=smaller)
    assert stays <= more
    # Each trial keeps as many of its latest as it may.
    for trial in {one.trial_id for one in saved}:
        own = [one for one in saved if one.trial_id == trial]
        assert len([one for one in own if one.uuid in stays]) >= min(latest, len(own))


@pytest.mark.alone
def test_a_hundred_thousand_checkpoints_are_decided_in_two_seconds() -> None:
    saved = [Saved(f"{n:08x}", n % 1000, n // 1000, (n * 7919 % 100_003) / 7.0) for n in range(100_000)]
    began = time.process_time()
    decisions = decide(CheckpointRetention(10, 2, 2), saved, {f"{n:08x}" for n in range(0, 100_000, 97)})
    assert time.process_time() - began <= 2.0
    assert sum(one.keep for one in decisions) < 6_000
