"""A whole search ends at its goal, without improvement, or when no point of its space is left."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from detlab.schemas.space import distinct
from detlab.schemas.space.relations import Relation
from detlab.schemas.wire.searches import level_of
from detlab_hub.core.searchers import (
    CreateTrial,
    Extended,
    PointsAdded,
    Searcher,
    Shutdown,
    SpaceEdited,
    Started,
    SteeringRefused,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    make_searcher,
    replay,
)
from detlab_hub.core.searchers.simulation import ObjectiveError, simulate
from detlab_hub.testing.searchers import SearchMethodContract

LINE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}
FOUR = {"x": {"type": "int", "minval": 1, "maxval": 2}, "y": {"type": "categorical", "vals": ["a", "b"]}}
RANDOM = {"name": "random", "metric": "loss", "max_trials": 20, "max_concurrent_trials": 2}


class Run:
    """A search whose trials are named by their place."""

    def __init__(self, config: dict[str, Any], space: dict[str, Any] = LINE) -> None:
        self.config, self.space = config, space
        self.search: Searcher = make_searcher(config, space, 3)
        self.journal: list[Any] = []
        self.decided: list[list[Any]] = []
        self.ids: list[str] = []
        self.take(Started())

    def take(self, event: Any) -> list[Any]:
        self.journal.append(event)
        decisions = self.search.step(event)
        self.decided.append(decisions)
        for one in decisions:
            if isinstance(one, CreateTrial):
                self.ids.append(one.request_id)
                self.take(TrialCreated(one.request_id))
        return decisions

    def report(self, trial: int, loss: float, **values: float) -> list[Any]:
        return self.take(ValidationReported(self.ids[trial], loss, None, values))

    def exit(self, trial: int) -> list[Any]:
        return self.take(TrialExited(self.ids[trial]))

    def ran(self, trial: int, loss: float) -> list[Any]:
        self.report(trial, loss)
        return self.exit(trial)

    def replayed(self) -> None:
        again, _ = replay(self.config, self.space, 3, self.journal, self.decided)
        assert again.fingerprint() == self.search.fingerprint()


def stops(decisions: list[Any]) -> list[str]:
    return [one.request_id for one in decisions if isinstance(one, StopTrial)]


@pytest.mark.parametrize(("larger", "good", "bad"), [(False, 0.1, 0.11), (True, 0.9, 0.89)])
def test_a_search_ends_at_its_goal_and_stops_what_runs(larger: bool, good: float, bad: float) -> None:
    run = Run(RANDOM | {"goal": 0.9 if larger else 0.1, "smaller_is_better": not larger})
    assert run.report(0, bad) == []
    told = run.report(1, good)
    assert sorted(stops(told)) == sorted(run.ids)
    assert len(run.ids) == 2
    assert all(f"loss has reached the goal of {good}: it is {good}" in one.evidence for one in told)
    assert run.exit(0) == []
    assert run.exit(1) == [Shutdown(cancel=False, failure=False)]
    assert run.search.notes() == [f"the search has ended early: loss has reached the goal of {good}: it is {good}"]
    assert level_of(run.search.notes()[0]) == "note"
    with pytest.raises(SteeringRefused, match="reached the goal"):
        run.search.step(Extended(3))
    run.replayed()


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_goal_is_not_reached_by_what_is_no_result(value: float) -> None:
    run = Run(RANDOM | {"goal": 0.1})
    assert run.report(0, value) == []


def test_a_goal_is_not_reached_by_a_trial_that_breaks_a_constraint() -> None:
    run = Run(RANDOM | {"goal": 0.1, "constraints": {"ms": {"max": 10}}})
    assert run.report(0, 0.05, ms=20) == []
    assert stops(run.report(0, 0.05, ms=9))


def test_with_several_seeds_the_mean_reaches_the_goal() -> None:
    run = Run(RANDOM | {"goal": 0.1, "seeds": 2})
    assert run.report(0, 0.01) == []
    assert run.report(1, 0.3) == []
    assert run.report(0, 0.02) == []
    assert stops(run.report(1, 0.1))
    run.replayed()


def test_a_search_ends_when_trials_have_not_improved_it() -> None:
    run = Run(RANDOM | {"patience": 3, "min_improvement": 0.1})
    run.ran(0, 0.5)
    run.ran(1, 0.45)
    run.ran(2, 0.35)  # better by more than 0.1 than 0.5, so that the count begins again
    for trial in (3, 4):
        assert not stops(run.ran(trial, 0.3))
    told = run.ran(5, 0.4)
    assert stops(told) == [run.ids[6]]
    assert len(run.ids) == 7, "none is made only to be stopped"
    assert "the last 3 trials have not improved loss beyond 0.35 by more than 0.1" in run.search.notes()[0]
    assert run.exit(6) == [Shutdown(cancel=False, failure=False)]
    run.replayed()


def test_trials_that_say_nothing_do_not_wear_out_the_patience() -> None:
    run = Run(RANDOM | {"patience": 2})
    run.ran(0, 0.5)
    for trial, reason in zip(itertools.count(1), ("errored", "user_canceled", "invalid_hp", "errored"), strict=False):
        run.take(TrialExitedEarly(run.ids[trial], reason))
        assert not stops(run.exit(trial))
    run.ran(5, 0.6)
    assert stops(run.ran(6, 0.6))


def test_each_report_is_journaled_where_patience_counts_by_it() -> None:
    run = Run(RANDOM | {"patience": 2})
    before = run.search.revision
    run.report(0, 0.5)
    assert run.search.revision == before + 1


def points(config: dict[str, Any], space: dict[str, Any], value: Callable[[Any, int], float]) -> list[dict[str, Any]]:
    return [one.trial.hparams for one in simulate(make_searcher(config, space, 5), value, 1, 9)]


LEARNING = {"metric": "loss", "max_trials": 30, "max_concurrent_trials": 2, "repeat_points": False}
HALVING = {**LEARNING, "time_metric": "step", "max_time": 9, "divisor": 3}


@pytest.mark.parametrize(
    "config",
    [
        RANDOM | {"repeat_points": False},
        {"name": "sobol", **LEARNING},
        {"name": "tpe", **LEARNING},
        {"name": "cmaes", **LEARNING},
        {"name": "nsga2", **LEARNING},
        {"name": "asha", **HALVING},
        {"name": "async_halving", "num_rungs": 2, **HALVING},
        {"name": "adaptive_asha", **HALVING},
    ],
    ids=lambda config: config["name"],
)
@pytest.mark.parametrize("require", [[], ["x + 1 >= 2"]])
def test_every_point_of_a_small_space_is_tried_once_and_the_search_ends(
    config: dict[str, Any], require: list[str]
) -> None:
    search = make_searcher(config | {"require": require}, FOUR, 5)
    found = [one.trial.hparams for one in simulate(search, lambda trial, step: trial.hparams["x"] / step, 1, 9)]
    assert search.trials_total == 4
    assert search.notes() == ["every point of the space has been tried"]
    assert level_of(search.notes()[0]) == "note"
    assert sorted((one["x"], one["y"]) for one in found) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_points_repeat_where_that_is_asked_for_and_in_older_journals() -> None:
    for again in ({}, {"repeat_points": True}):
        assert len(points(RANDOM | again, FOUR, lambda trial, step: 1.0)) == 20


def test_a_space_of_one_point_is_tried_as_often_as_asked_for() -> None:
    assert len(points(RANDOM | {"repeat_points": False}, {"x": 1}, lambda trial, step: 1.0)) == 20


def test_an_invalid_point_is_not_replaced_when_no_point_is_left() -> None:
    def value(trial: CreateTrial, step: int) -> float:
        if trial.hparams["y"] == "a":
            raise ObjectiveError("no", invalid=True)
        return 1.0

    for name in ("random", "tpe", "asha", "sobol"):
        config = (HALVING if name == "asha" else LEARNING) | {"name": name}
        search = make_searcher(config, FOUR, 5)
        found = [one.trial.hparams for one in simulate(search, value, 1, 9)]
        assert len(found) == 4, name
        assert search.notes() == ["every point of the space has been tried"], name
        assert search.progress() == 1.0


def test_a_search_without_points_is_extended_by_given_points_only() -> None:
    run = Run(RANDOM | {"repeat_points": False}, FOUR)
    for trial in range(3):
        run.exit(trial)
    with pytest.raises(SteeringRefused, match="every point of the space has been tried: add points"):
        run.search.step(Extended(2))
    run.take(PointsAdded(({"x": 1, "y": "a"},)))
    assert len(run.ids) == 5
    run.take(SpaceEdited({**FOUR, "x": {"type": "int", "minval": 1, "maxval": 3}}))
    run.take(Extended(2))
    run.exit(3)
    run.exit(4)
    made = [one.hparams for decisions in run.decided for one in decisions if isinstance(one, CreateTrial)]
    assert [one["x"] for one in made[5:]] == [3, 3]
    run.replayed()


def test_conditions_and_weights_leave_no_point_out() -> None:
    space = {
        "opt": {"type": "categorical", "vals": ["sgd", "adam"], "weights": [99, 1]},
        "momentum": {"type": "double", "minval": 0.0, "maxval": 1.0, "step": 0.5, "when": {"opt": "sgd"}},
    }
    found = points(RANDOM | {"repeat_points": False}, space, lambda trial, step: 1.0)
    assert len(found) == 4
    assert [one for one in found if one["opt"] == "adam"] == [{"opt": "adam"}]


DIGITS = {f"x{place}": {"type": "categorical", "vals": list(range(10))} for place in range(4)}


def test_points_that_are_left_are_listed_once_however_many_trials_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    keyed = distinct._key
    monkeypatch.setattr(distinct, "_key", lambda point: looked.append(point) or keyed(point))
    config = {**LEARNING, "name": "tpe", "max_trials": 10_000, "max_concurrent_trials": 300}
    search = make_searcher(config, DIGITS, 5)
    assert len(search.step(Started())) == 300
    assert len(looked) <= 10_000 + 2 * 300


def test_points_whose_relations_take_long_are_neither_listed_nor_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    holds = Relation.holds
    monkeypatch.setattr(Relation, "holds", lambda one, values: judged.append(one.text) or holds(one, values))
    long = " and ".join(["x0 * x1 + x2 >= -1"] * 20)
    config = RANDOM | {"repeat_points": False, "require": [f"{long} and x3 > -{n}" for n in range(1, 51)]}
    search = make_searcher(config, DIGITS, 5)
    assert search.step(Started())
    assert search.trials_total == 20
    assert sum(map(len, judged)) < 2_000_000
    short = make_searcher(config | {"require": ["x0 < x1"], "max_trials": 9000}, DIGITS, 5)
    assert short.trials_total == 4500


class _SmallContract(SearchMethodContract):
    space: ClassVar[dict[str, Any]] = FOUR

    def test_points_lie_in_the_space(self) -> None:
        for seed in self.seeds:
            driven = self.driven(seed)
            tried = [(one.hparams["x"], one.hparams["y"]) for one in driven.created.values()]
            assert len(set(tried)) == len(tried) <= 4


class TestSmallRandom(_SmallContract):
    config: ClassVar[dict[str, Any]] = {**RANDOM, "repeat_points": False}


class TestSmallSobol(_SmallContract):
    config: ClassVar[dict[str, Any]] = {"name": "sobol", **LEARNING}


@pytest.mark.slow
class TestSmallTPE(_SmallContract):
    config: ClassVar[dict[str, Any]] = {"name": "tpe", **LEARNING}
    seeds: ClassVar[range] = range(4)


class TestSmallASHA(_SmallContract):
    config: ClassVar[dict[str, Any]] = {"name": "asha", **HALVING}


class TestSmallTournament(_SmallContract):
    config: ClassVar[dict[str, Any]] = {"name": "adaptive_asha", **HALVING}


def test_with_several_seeds_the_mean_of_the_largest_numbers_is_one() -> None:
    run = Run(RANDOM | {"seeds": 2, "goal": -1.6e308})
    assert stops(run.report(0, 1.7e308)) == []
    assert stops(run.report(1, 1.7e308)) == []
    run.report(0, -1.7e308)
    assert stops(run.report(1, -1.7e308)) != []
    run.replayed()
