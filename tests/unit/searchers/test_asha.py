"""Promotion ASHA against the paper: Li et al., "A System for Massively Parallel Hyperparameter Tuning", algorithm 2."""

from __future__ import annotations

import math
from typing import Any

import pytest

from detlab_hub.core.searchers import (
    ConcurrencySet,
    CreateTrial,
    Decision,
    Extended,
    PauseTrial,
    PromotionRequested,
    ResumeTrial,
    Searcher,
    Shutdown,
    Started,
    SteeringRefused,
    StopRequested,
    StopTrial,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    ValidationReported,
    make_searcher,
)

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}


class Course:
    """A search, and its trials by the order of their creation."""

    def __init__(self, **fields: Any) -> None:
        block = {"name": "asha", "metric": "loss", "time_metric": "step", "max_time": 9, "divisor": 3, **fields}
        self.search: Searcher = make_searcher(block, SPACE, 7)
        self.ids: list[str] = []
        self.take(Started())

    def take(self, event: Any) -> list[str]:
        """Give the search an event; return its decisions as words with numbers of trials."""
        return [self._said(decision) for decision in self.search.step(event)]

    def report(self, number: int, loss: float, step: float) -> list[str]:
        return self.take(ValidationReported(self.ids[number], loss, step))

    def _said(self, decision: Decision) -> str:
        match decision:
            case CreateTrial(request_id):
                self.ids.append(request_id)
                return f"create {len(self.ids) - 1}"
            case StopTrial(request_id, finished):
                return f"{'finish' if finished else 'stop'} {self.ids.index(request_id)}"
            case PauseTrial(request_id):
                return f"pause {self.ids.index(request_id)}"
            case ResumeTrial(request_id):
                return f"resume {self.ids.index(request_id)}"
            case Shutdown():
                return "over"
            case _:
                raise AssertionError(decision)


def test_asha_promotes_the_best_third_when_it_is_known_and_fills_free_places_with_new_trials() -> None:
    course = Course(max_trials=9, max_concurrent_trials=1)
    assert course.report(0, 0.5, 1) == ["pause 0", "create 1"]
    assert course.report(1, 0.7, 1) == ["pause 1", "create 2"]
    # Of three, the best one trains on: it is a paused one, which gets the place of the third.
    assert course.report(2, 0.6, 1) == ["pause 2", "resume 0"]
    assert course.report(0, 0.4, 3) == ["pause 0", "create 3"]
    assert course.report(3, 0.9, 1) == ["pause 3", "create 4"]
    # Better than all: it is among the best fifth, and trains on without leaving.
    assert course.report(4, 0.1, 1) == []
    assert course.report(4, 0.1, 3) == ["pause 4", "create 5"]


def test_asha_ends_when_nothing_can_be_promoted_any_more() -> None:
    course = Course(max_trials=3, max_concurrent_trials=3, num_rungs=2)
    assert course.report(0, 0.3, 3) == ["pause 0"]
    assert course.report(1, 0.1, 3) == ["pause 1"]
    # The last one of the rung: one is promoted, the others have lost.
    assert course.report(2, 0.2, 3) == ["pause 2", "resume 1", "stop 0", "stop 2"]
    assert course.take(TrialExited(course.ids[0])) == []
    assert course.report(1, 0.1, 8) == []
    assert course.report(1, 0.1, 9) == ["finish 1"]
    assert course.take(TrialExited(course.ids[2])) == []
    assert course.take(TrialExited(course.ids[1])) == ["over"]


def test_asha_late_report_passes_every_rung_at_which_it_is_among_the_best() -> None:
    course = Course(max_trials=9, max_concurrent_trials=3)
    assert course.report(0, 0.5, 1) == ["pause 0", "create 3"]
    assert course.report(1, 0.6, 1) == ["pause 1", "create 4"]
    assert course.report(2, 0.1, 9) == ["pause 2", "create 5"], "second rung: one of one is not the best third"


def test_asha_reports_of_a_trial_that_is_to_leave_do_not_count() -> None:
    course = Course(max_trials=9, max_concurrent_trials=1)
    course.report(0, 0.5, 1)
    assert course.report(0, 0.0, 3) == []
    assert course.take(TrialPaused(course.ids[0])) == []
    assert [len(rung["entries"]) for rung in course.search.method.state()["brackets"][0]["rungs"]] == [1, 0, 0]


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_asha_diverged_trials_rank_last(bad: float) -> None:
    course = Course(max_trials=9, max_concurrent_trials=1)
    course.report(0, bad, 1)
    course.report(1, 5.0, 1)
    assert course.report(2, 6.0, 1) == ["pause 2", "resume 1"]


def test_asha_failed_trial_counts_as_the_worst_and_its_place_is_given_away() -> None:
    course = Course(max_trials=9, max_concurrent_trials=1)
    course.report(0, 0.5, 1)
    course.report(1, 0.6, 1)
    assert course.take(TrialExitedEarly(course.ids[2], "errored")) == ["resume 0"]
    assert course.take(TrialExited(course.ids[2])) == []


def test_asha_promoted_by_hand_beyond_the_places() -> None:
    course = Course(max_trials=9, max_concurrent_trials=1)
    course.report(0, 0.5, 1)
    assert course.take(PromotionRequested(course.ids[0], "ann")) == ["resume 0"]
    assert course.report(1, 0.9, 1) == ["pause 1"], "the place is taken"
    assert course.report(0, 0.5, 3) == ["pause 0", "create 2"]
    assert course.take(PromotionRequested(course.ids[2], "ann")) == []
    assert course.report(2, 1.0, 1) == [], "chosen while it trained"
    with pytest.raises(SteeringRefused, match="has ended"):
        course.take(StopRequested(course.ids[2])) and course.take(PromotionRequested(course.ids[2]))


def test_asha_places_and_trials_can_be_added() -> None:
    course = Course(max_trials=2, max_concurrent_trials=1, num_rungs=3)
    assert course.take(ConcurrencySet(2)) == ["create 1"]
    assert course.take(Extended(trials=1)) == []
    assert course.report(0, 0.5, 1) == ["pause 0", "create 2"]
    assert course.search.trials_total == 3


def test_asha_stopping_variant_is_async_halving() -> None:
    course = Course(max_trials=9, max_concurrent_trials=1, variant="stopping")
    assert course.report(0, 0.5, 1) == []
    assert course.report(0, 0.5, 3) == []
    assert course.report(0, 0.5, 9) == ["finish 0", "create 1"]
    assert course.report(1, 0.6, 1) == ["stop 1", "create 2"]


def test_asha_a_trial_promoted_twice_is_lifted_one_rung() -> None:
    course = Course(max_trials=9, max_concurrent_trials=1)
    course.report(0, 0.5, 1)
    assert course.search.promotes_to(course.ids[0]) == 3
    assert course.take(PromotionRequested(course.ids[0], "ann", 3)) == ["resume 0"]
    with pytest.raises(SteeringRefused, match="promoted to 3 step already"):
        course.take(PromotionRequested(course.ids[0], "ann"))
    assert course.report(0, 0.5, 3) == ["pause 0"], "it waits at the rung to which it was promoted"
    assert course.take(PromotionRequested(course.ids[0], "ann")) == ["resume 0"], "from there on it may be again"


def test_asha_a_trial_that_trains_is_promoted_once() -> None:
    course = Course(max_trials=9, max_concurrent_trials=1)
    assert course.take(PromotionRequested(course.ids[0], "ann", 3)) == []
    for _ in range(2):
        with pytest.raises(SteeringRefused, match="promoted to 3 step already"):
            course.take(PromotionRequested(course.ids[0], "ann"))
        course.report(0, 0.5, 1)
    assert course.report(0, 0.5, 3) == ["pause 0", "create 1"]
    with pytest.raises(SteeringRefused, match="cannot be promoted to 3"):
        course.take(PromotionRequested(course.ids[0], "ann", 3))


def test_asha_the_reason_of_a_pause_is_the_rule_that_caused_it() -> None:
    course = Course(max_trials=4, max_concurrent_trials=1, num_rungs=3)
    why = course.search.method.explain
    course.report(0, 0.5, 1)
    assert why(course.ids[0]) == "at step 1: place 1 of 1, 1 of 3 continues, 2 more results are needed"
    course.report(1, 0.6, 1)
    assert why(course.ids[1]) == "at step 1: place 2 of 2, 1 of 3 continues, 1 more result is needed"
    assert course.report(2, 0.7, 1) == ["pause 2", "resume 0"]
    assert why(course.ids[2]) == "at step 1: place 3 of 3, the best 1 continue"
    assert course.report(0, 0.5, 3) == ["pause 0", "create 3"]
    assert course.report(3, 0.9, 1) == ["pause 3", "stop 1", "stop 2", "stop 3", "stop 0"]
    assert why(course.ids[0]) == "at step 3: place 1 of 1, 1 of 3 continues, 2 more results would have been needed"
    assert why(course.ids[3]) == "at step 1: place 4 of 4, the best 1 continue"


@pytest.mark.parametrize("name", ["async_halving", "adaptive_asha", "hyperband", "bohb", "asha"])
def test_a_trial_promoted_twice_is_lifted_one_rung_by_every_method_with_rungs(name: str) -> None:
    rungs = {"num_rungs": 3} if name in ("async_halving", "asha") else {}
    course = Course(name=name, max_trials=9, max_concurrent_trials=9, seeds=2, **rungs)
    one = course.ids[0]
    to = course.search.promotes_to(one)
    assert course.take(PromotionRequested(one, "ann", to)) == []
    with pytest.raises(SteeringRefused, match=f"promoted to {to} step already"):
        course.take(PromotionRequested(one, "ann", to))


def test_async_halving_a_promoted_trial_is_judged_at_the_rung_to_which_it_was_promoted() -> None:
    course = Course(name="async_halving", num_rungs=3, max_trials=9, max_concurrent_trials=9)
    for number in range(3):
        assert course.report(number, 0.1, 1) == []
        assert course.report(number, 0.1, 3) == []
    course.take(PromotionRequested(course.ids[3], "ann"))
    assert course.report(3, 0.9, 1) == []
    with pytest.raises(SteeringRefused, match="promoted to 3 step already"):
        course.take(PromotionRequested(course.ids[3], "ann"))
    assert course.report(3, 0.9, 3) == ["stop 3"]
