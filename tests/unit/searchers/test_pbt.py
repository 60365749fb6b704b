"""PBT against the paper: Jaderberg et al., "Population Based Training of Neural Networks", and Determined's rounds."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from detlab_hub.core.searchers import (
    CheckpointCommitted,
    Continued,
    CreateTrial,
    Decision,
    Extended,
    PauseSearch,
    PauseTrial,
    PointsAdded,
    ResumeTrial,
    Searcher,
    SearcherConfigError,
    SpaceEdited,
    Started,
    SteeringRefused,
    StopTrial,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    ValidationReported,
    make_searcher,
)
from detlab_hub.core.searchers.population.explore import Explore
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.testing.searchers import drive

SPACE: dict[str, Any] = {
    "act": {"type": "categorical", "vals": ["relu", "tanh"]},
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "net": {"width": {"type": "int", "minval": 2, "maxval": 20}},
    "same": 3,
}
BLOCK = {"name": "pbt", "metric": "loss", "time_metric": "step", "length_per_round": 10}
NONE = {"truncate_fraction": 0}


class Course:
    """A search, and its trials by the order of their creation."""

    def __init__(self, **fields: Any) -> None:
        self.search: Searcher = make_searcher({**BLOCK, **fields}, SPACE, 7)
        self.trials: list[CreateTrial] = []
        self.take(Started())

    def take(self, event: Any) -> list[str]:
        return [self._said(decision) for decision in self.search.step(event)]

    def name(self, number: int) -> str:
        return self.trials[number].request_id

    def round(self, number: int, loss: float, step: float) -> list[str]:
        """Let a trial end its round as a whole: it reports, is paused, saves and leaves."""
        said = self.take(ValidationReported(self.name(number), loss, step))
        assert said == [f"pause {number}"]
        self.take(CheckpointCommitted(self.name(number), f"of {number} at {step:g}", int(step)))
        return self.take(TrialPaused(self.name(number)))

    def _number(self, request_id: str) -> int:
        return [trial.request_id for trial in self.trials].index(request_id)

    def _said(self, decision: Decision) -> str:
        match decision:
            case CreateTrial(_, _, _, index, parent):
                self.trials.append(decision)
                return f"clone {index} from {parent}" if parent else f"create {index}"
            case StopTrial(request_id, finished):
                return f"{'finish' if finished else 'stop'} {self._number(request_id)}"
            case PauseTrial(request_id):
                return f"pause {self._number(request_id)}"
            case ResumeTrial(request_id):
                return f"resume {self._number(request_id)}"
            case PauseSearch():
                return "wait for somebody"
            case _:
                return type(decision).__name__


def test_pbt_replaces_the_worst_by_clones_of_the_best_that_start_from_their_checkpoints() -> None:
    course = Course(population_size=4, num_rounds=2, replace_function={"truncate_fraction": 0.25})
    assert course.round(0, 0.4, 10) == []
    assert course.round(1, 0.1, 10) == []
    assert course.round(2, 0.9, 10) == []
    assert course.round(3, 0.2, 10) == ["stop 2", "resume 1", "resume 3", "resume 0", "clone 4 from of 1 at 10"]
    assert course.take(ValidationReported(course.name(1), 0.1, 19)) == []
    assert course.take(ValidationReported(course.name(1), 0.1, 20)) == ["finish 1"]


@pytest.mark.parametrize(("first", "last"), [(15, 20), (5, 10)], ids=["its parent's count", "a count of its own"])
def test_pbt_clone_trains_one_round_whether_it_counts_from_its_parent_or_from_zero(first: int, last: int) -> None:
    course = Course(population_size=2, num_rounds=2, replace_function={"truncate_fraction": 0.5})
    course.round(0, 0.4, 10)
    assert course.round(1, 0.1, 10) == ["stop 0", "resume 1", "clone 2 from of 1 at 10"]
    assert course.take(ValidationReported(course.name(2), 0.3, first)) == []
    assert course.take(ValidationReported(course.name(2), 0.3, last - 1)) == []
    assert course.take(ValidationReported(course.name(2), 0.3, last)) == ["finish 2"]


def test_pbt_trial_that_leaves_without_a_checkpoint_pauses_the_search_and_trains_its_round_again() -> None:
    course = Course(population_size=2, num_rounds=2, replace_function={"truncate_fraction": 0.5})
    course.round(0, 0.4, 10)
    assert course.take(ValidationReported(course.name(1), 0.1, 10)) == ["pause 1"]
    assert course.take(TrialPaused(course.name(1))) == ["wait for somebody"]
    assert course.take(Continued("ann")) == ["resume 1"]
    assert course.round(1, 0.5, 10) == ["stop 1", "resume 0", "clone 2 from of 0 at 10"]


def test_pbt_says_of_a_replaced_trial_which_place_it_had_in_its_round() -> None:
    course = Course(population_size=4, num_rounds=2, replace_function={"truncate_fraction": 0.5})
    for number, loss in enumerate((0.4, 0.1, 0.9, 0.2)):
        course.round(number, loss, 10)
    why = [course.search.method.explain(course.name(number)) for number in range(4)]
    told = "in round 1: the worst 2 are replaced by clones of the best 2"
    assert why == [f"place 3 of 4 {told}", "", f"place 4 of 4 {told}", ""]
    one = Course(population_size=2, num_rounds=2, replace_function={"truncate_fraction": 0.5})
    one.round(0, 0.4, 10)
    one.round(1, 0.1, 10)
    assert one.search.method.explain(one.name(0)) == "place 2 of 2 in round 1: replaced by a clone of the best"


def test_pbt_failed_trial_is_among_the_worst_and_an_invalid_one_is_replaced() -> None:
    course = Course(population_size=2, num_rounds=2, replace_function={"truncate_fraction": 0.5})
    assert course.take(TrialExitedEarly(course.name(0), "invalid_hp")) == ["stop 0", "create 2"]
    course.round(1, math.inf, 10)
    assert course.take(TrialExitedEarly(course.name(2), "errored")) == ["stop 1"], "infinite is worse than failed"


@pytest.mark.parametrize("saved_first", [True, False])
def test_pbt_of_several_seeds_goes_on_from_another_replica_if_the_first_failed(saved_first: bool) -> None:
    """Its own checkpoint never comes; the search paused after each round for ever."""
    search = make_searcher(
        {**BLOCK, "population_size": 2, "num_rounds": 2, "seeds": 2, "replace_function": NONE}, SPACE, 7
    )
    made = [one.request_id for one in search.step(Started()) if isinstance(one, CreateTrial)]
    failed, other = made[0], made[1]
    ends = [TrialExitedEarly(failed, "errored"), TrialExited(failed)]
    saves = [CheckpointCommitted(other, "of-the-other", 10)]
    events: list[Any] = [*saves, *ends] if saved_first else [*ends, *saves]
    events += [ValidationReported(one, 0.5, 10.0) for one in made[1:]]
    events += [CheckpointCommitted(one, f"of-{one}", 10) for one in made[2:]]
    events += [TrialPaused(one) for one in made[1:]]
    said = [decision for event in events for decision in search.step(event)]
    assert [one for one in said if isinstance(one, PauseSearch)] == []
    assert not [one for one in said if isinstance(one, PauseTrial) and one.request_id == failed]
    assert {one.request_id for one in said if isinstance(one, ResumeTrial)} >= {other}


def test_pbt_nothing_is_replaced_with_a_fraction_of_zero() -> None:
    course = Course(population_size=2, num_rounds=2, replace_function={"truncate_fraction": 0.0})
    course.round(0, 0.4, 10)
    assert course.round(1, 0.1, 10) == ["resume 1", "resume 0"]
    assert course.search.trials_total == 2


def test_pbt_rounds_can_be_added_and_trials_cannot() -> None:
    course = Course(population_size=1, num_rounds=1)
    course.take(Extended(units=10))
    assert course.round(0, 0.4, 10) == ["resume 0"]
    with pytest.raises(SteeringRefused, match="keeps its size"):
        course.take(PointsAdded(({"lr": 0.1},)))
    assert course.take(ValidationReported(course.name(0), 0.3, 20)) == ["finish 0"]
    with pytest.raises(SteeringRefused, match="has finished the last round"):
        course.take(Extended(units=10))


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"replace_function": {"truncate_fraction": 0.6}}, "searcher.replace_function.truncate_fraction: "),
        ({"explore_function": {"resample_probability": 2}}, "searcher.explore_function.resample_probability: "),
        ({"population_size": 0}, "searcher.population_size: "),
    ],
)
def test_pbt_config_errors_name_their_path(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(SearcherConfigError, match=path):
        make_searcher({**BLOCK, "population_size": 2, "num_rounds": 2, **fields}, SPACE, 1)


def test_pbt_explores_by_perturbing_numbers_inside_of_their_range() -> None:
    explore, rng = Explore(resample=0.0, factor=0.5), SearchRandom(1)
    parent = {"act": "tanh", "lr": 0.01, "net": {"width": 3}, "same": 3}
    found = [explore.changed(SPACE, parent, rng) for _ in range(50)]
    assert {round(one["lr"], 9) for one in found} == {0.005, 0.015}
    assert {one["net"]["width"] for one in found} == {2, 5}, "1 is below the range"
    assert {one["act"] for one in found} == {"tanh"}
    drawn = [Explore(resample=1.0, factor=0.5).changed(SPACE, parent, rng) for _ in range(50)]
    assert len({one["lr"] for one in drawn}) == 50
    assert {one["act"] for one in drawn} == {"relu", "tanh"}


@pytest.mark.parametrize("value", ["relu", None, True, [1]])
def test_pbt_draws_a_number_anew_whose_parent_had_none(value: Any) -> None:
    """Bounds may be edited while a population trains: a choice becomes a range."""
    space = {"x": {"type": "int", "minval": 3, "maxval": 5}}
    explore = Explore(resample=0.0, factor=0.2)
    assert explore.changed(space, {"x": value}, SearchRandom(3))["x"] in (3, 4, 5)


@pytest.mark.slow
@pytest.mark.parametrize("schedules", [200, pytest.param(1000, marks=pytest.mark.soak)])
def test_pbt_no_parent_is_lost_over_many_schedules_that_delete_what_may_be_deleted(schedules: int) -> None:
    block = {**BLOCK, "population_size": 4, "num_rounds": 3, "length_per_round": 1}
    block["replace_function"] = {"truncate_fraction": 0.5}
    clones = sum(_clones_of_one_schedule(block, seed) for seed in range(schedules))
    assert clones > 2 * schedules


def _clones_of_one_schedule(block: dict[str, Any], seed: int) -> int:
    """Delete, after each event, every checkpoint that the search does not need; check each clone's parent."""
    driven = drive(block, SPACE, seed)
    search = make_searcher(block, SPACE, seed)
    draw = random.Random(seed)
    stored: set[str] = set()
    begins_from: dict[str, str] = {}
    clones = 0
    for event in driven.journal:
        if isinstance(event, CheckpointCommitted):
            stored.add(event.uuid)
        if isinstance(event, CheckpointCommitted | TrialExited | TrialExitedEarly):
            begins_from.pop(event.request_id, None)
        for decision in search.step(event):
            if isinstance(decision, CreateTrial) and decision.parent is not None:
                assert decision.parent in stored, "the checkpoint of a clone's parent is gone"
                begins_from[decision.request_id] = decision.parent
                clones += 1
            if isinstance(decision, StopTrial):
                begins_from.pop(decision.request_id, None)
        needed = search.needs_checkpoints()
        assert set(begins_from.values()) <= needed or search.shutdown is not None
        stored -= {uuid for uuid in sorted(stored - needed) if draw.random() < 0.8}
    return clones


RANGE = {"type": "int", "minval": 1, "maxval": 3}
CHOICE = {"type": "categorical", "vals": [1, 2]}


@pytest.mark.parametrize("name", ["pbt", "pb2", "random", "async_halving"])
@pytest.mark.parametrize(
    ("edit", "wrong"),
    [
        ({"act": RANGE}, ["act: was categorical and cannot become int"]),
        ({"act": {"type": "ordinal", "vals": ["a", "b"]}}, ["act: was categorical and cannot become ordinal"]),
        ({"lr": CHOICE}, ["lr: was log and cannot become categorical"]),
        ({"lr": {"min": 0.001, "max": 0.1}}, ["lr: is not in the new block"]),
        ({"net": {}}, ["net.width: is not in the new block"]),
        ({"bs": CHOICE, "x": {"y": RANGE}}, ["bs: is new", "x.y: is new"]),
        ({"act": RANGE, "net": 3, "x": RANGE}, ["act: was", "net.width: is not", "x: is new"]),
    ],
    ids=str,
)
def test_edited_bounds_are_of_the_same_hyperparameters(name: str, edit: dict[str, Any], wrong: list[str]) -> None:
    sizes = {"max_trials": 4, "num_rungs": 1} if name not in ("pbt", "pb2") else {"population_size": 4, "num_rounds": 2}
    search = make_searcher({**BLOCK, "name": name, "max_time": 9, **sizes}, SPACE, 7)
    search.step(Started())
    before = search.fingerprint()
    with pytest.raises(SteeringRefused) as refused:
        search.step(SpaceEdited({**SPACE, **edit}))
    assert all(one in str(refused.value) for one in wrong)
    assert len(str(refused.value).split("; ")) == len(wrong)
    assert search.fingerprint() == before


def test_pbt_takes_every_edit_of_bounds_that_is_accepted() -> None:
    """Numbers stay numbers, choices stay choices; hyperparameters become constants, and constants ranges."""
    edited: dict[str, Any] = {
        "act": {"type": "categorical", "vals": ["gelu"]},
        "lr": {"type": "int", "minval": 1, "maxval": 9},
        "net": {"width": {"type": "double", "minval": 0.25, "maxval": 0.5, "step": 0.25}},
        "same": {"type": "ordinal", "vals": ["s", "m"]},
        "note": "new constants are taken",
    }
    course = Course(population_size=2, num_rounds=3, replace_function={"truncate_fraction": 0.5})
    course.search.step(SpaceEdited(edited))
    course.round(0, 0.4, 10)
    assert course.round(1, 0.1, 10) == ["stop 0", "resume 1", "clone 2 from of 1 at 10"]
    made = course.trials[2].hparams
    assert (made["act"], made["note"]) == ("gelu", edited["note"])
    assert made["lr"] in range(1, 10)
    assert made["net"]["width"] in (0.25, 0.5)
    assert made["same"] in ("s", "m")


@pytest.mark.parametrize("value", ["adam", True, [1], None, 1e308])
def test_pbt_explores_beside_a_value_of_another_kind(value: Any) -> None:
    space = {kind: {"type": kind, "minval": 1, "maxval": 3, "base": 10} for kind in ("int", "double", "log")}
    parent = dict.fromkeys(space, value)
    for seed in range(20):
        made = Explore(resample=0.0, factor=0.5).changed(space, parent, SearchRandom(seed))
        assert all(1 <= made[kind] <= 1000 for kind in space)
