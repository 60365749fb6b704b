"""Points of spaces with conditions, relations, steps, priors, starting points and repeated seeds."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest

from detlab.schemas.expconf import check, errors_of
from detlab.schemas.space import Space
from detlab_hub.core.searchers import (
    BudgetSpent,
    CheckpointCommitted,
    CreateTrial,
    Event,
    PauseSearch,
    PauseTrial,
    PointsAdded,
    ResumeTrial,
    SearcherConfigError,
    SetPoint,
    SpaceEdited,
    Started,
    SteeringRefused,
    StopTrial,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    TrialPlaced,
    ValidationReported,
    make_searcher,
    replay,
)
from detlab_hub.core.searchers.hyperparameters import SpaceGrid
from detlab_hub.core.searchers.model_based.axes import axes_of, coordinates
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.core.searchers.suggesting import answer, to_json
from detlab_hub.testing.searchers import SearchMethodContract, drive

TREE: dict[str, Any] = {
    "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
    "momentum": {"type": "double", "minval": 0.5, "maxval": 0.9, "when": {"optimizer": "sgd"}, "count": 3},
    "adam": {
        "when": {"optimizer": ["adam"]},
        "beta": {"type": "ordinal", "vals": [0.9, 0.99, 0.999]},
        "amsgrad": {"type": "categorical", "vals": [True, False]},
        "late": {"type": "int", "minval": 1, "maxval": 3, "when": {"adam.amsgrad": True}, "count": 3},
    },
    "depth": {"type": "int", "minval": 1, "maxval": 3, "count": 3},
    "second": {"type": "int", "minval": 8, "maxval": 24, "step": 8, "when": {"depth": [2, 3]}},
    "fixed": 7,
}
RELATIONS = ["second % 16 != 0 or depth == 3", "fixed > depth"]


def is_of_tree(point: dict[str, Any]) -> bool:
    """Whether a point has exactly the hyperparameters that its own values call for."""
    sgd = point["optimizer"] == "sgd"
    keys = {"optimizer", "depth", "fixed", "momentum" if sgd else "adam"} | (
        {"second"} if point["depth"] > 1 else set()
    )
    if point.keys() != keys:
        return False
    if not sgd and ("late" in point["adam"]) != point["adam"]["amsgrad"]:
        return False
    return point["depth"] == 1 or point["second"] in ((8, 24) if point["depth"] == 2 else (8, 16, 24))


def draws(space: dict[str, Any], count: int = 2000, *, require: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    rng, made = SearchRandom(1), Space(space, require)
    return [made.sample(rng) for _ in range(count)]


# --- conditions and relations


def test_draws_have_what_their_conditions_call_for() -> None:
    found = draws(TREE, require=tuple(RELATIONS))
    assert all(is_of_tree(point) for point in found)
    assert {point["optimizer"] for point in found} == {"sgd", "adam"}
    assert list(found[0]) == sorted(found[0])


def test_order_of_draws_is_sorted_where_no_condition_says_otherwise() -> None:
    plain = {name: {"type": "double", "minval": 0, "maxval": 1} for name in "dbca"}
    rng = SearchRandom(3)
    assert Space(plain).sample(SearchRandom(3)) == {name: rng.uniform(0, 1) for name in "abcd"}


def test_grid_multiplies_only_axes_that_exist() -> None:
    grid = SpaceGrid(TREE)
    points = [grid.point(at) for at in range(grid.size)]
    assert grid.size == (3 + 3 * (3 + 1)) * (1 + 3 + 3)
    assert len({repr(point) for point in points}) == grid.size
    filtered = SpaceGrid(TREE, RELATIONS)
    kept = [filtered.point(at) for at in range(filtered.size)]
    assert all(is_of_tree(point) for point in kept)
    assert filtered.size == (3 + 3 * (3 + 1)) * (1 + 2 + 3)
    assert kept == [point for point in points if is_of_tree(point)]


def test_grid_of_many_axes_with_conditions_needs_no_recursion() -> None:
    space: dict[str, Any] = {f"p{at:04}": {"type": "categorical", "vals": [at]} for at in range(3000)}
    space["q"] = {"type": "categorical", "vals": [1, 2], "when": {"p0000": 0}}
    assert SpaceGrid(space).size == 2


def test_impossible_grid_is_refused() -> None:
    with pytest.raises(SearcherConfigError, match="no point of the grid"):
        SpaceGrid(TREE, ["depth > 3"])


@pytest.mark.parametrize(
    ("space", "require", "words"),
    [
        ({"a": {"type": "int", "minval": 0, "maxval": 1, "when": {"b": 1}}}, [], "hyperparameters.a.when: there is no"),
        ({"a": {"type": "int", "minval": 0, "maxval": 1, "when": {"a": 1}}}, [], "form a cycle: a -> a"),
        ({"a": {"type": "int", "minval": 0, "maxval": 1}}, ["a +"], r"require\[0\]: 'a \+' is not an expression"),
        ({"a": {"type": "int", "minval": 0, "maxval": 1}}, ["b > 1"], r"searcher.require\[0\]: there is no"),
        ({"a": {"type": "int", "minval": 0, "maxval": 1, "step": 0}}, [], "hyperparameters.a: step 0"),
    ],
)
def test_stored_spaces_are_checked_again(space: dict[str, Any], require: list[str], words: str) -> None:
    with pytest.raises(SearcherConfigError, match=words):
        make_searcher({"name": "random", "metric": "m", "max_trials": 3, "require": require}, space, 1)


def test_suggestion_that_breaks_a_relation_is_replaced() -> None:
    config = {"name": "tpe", "metric": "m", "max_trials": 9, "max_concurrent_trials": 1, "startup_trials": 1}
    space = {"w": {"type": "int", "minval": 0, "maxval": 9}}
    search = make_searcher(config | {"require": ["w % 2 == 0"]}, space, 1)
    (first,) = search.step(Started())
    assert isinstance(first, CreateTrial)
    assert isinstance(search.step(TrialPlaced(first.request_id))[0], SetPoint)
    search.step(ValidationReported(first.request_id, 1.0))
    (second,) = search.step(TrialExited(first.request_id))
    assert isinstance(second, CreateTrial)
    assert search.step(TrialPlaced(second.request_id)) == [Suggest(0, 1)]
    (drawn,) = search.step(Suggested(0, ({"w": 3},)))
    assert isinstance(drawn, SetPoint)
    assert drawn.hparams["w"] % 2 == 0


# --- steps, ordinals, priors


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ({"type": "int", "minval": 8, "maxval": 30, "step": 8}, [8, 16, 24]),
        ({"type": "double", "minval": 0.1, "maxval": 0.4, "step": 0.1}, [0.1, 0.2, 0.3, 0.4]),
        ({"type": "log", "base": 10, "minval": -2, "maxval": 0, "step": 0.5}, [0.01, 10**-1.5, 0.1, 10**-0.5, 1.0]),
        ({"type": "ordinal", "vals": ["s", "m", "l"]}, ["s", "m", "l"]),
    ],
)
def test_stepped_values_are_drawn_walked_and_found_again(spec: dict[str, Any], values: list[Any]) -> None:
    space = {"h": spec}
    assert {point["h"] for point in draws(space, 300)} == set(values)
    grid = SpaceGrid(space)
    assert [grid.point(at)["h"] for at in range(grid.size)] == values
    if spec["type"] != "ordinal":
        few = SpaceGrid({"h": spec | {"count": 2}})
        assert [few.point(at)["h"] for at in range(few.size)] == [values[0], values[-1]]
    (axis,) = axes_of(space)
    assert [axis.value(at) for at in range(len(values))] == values
    assert [coordinates([axis], {"h": value}) for value in values] == [[at] for at in range(len(values))]


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        ({"type": "int", "minval": 0, "maxval": 100, "prior": {"center": 20, "confidence": 1}}, 0, 70),
        ({"type": "double", "minval": 0, "maxval": 1, "prior": {"center": 0.2, "confidence": 1}}, 0, 0.7),
        (
            {"type": "log", "base": 10, "minval": -4, "maxval": 0, "prior": {"center": 1e-3, "confidence": 1}},
            1e-4,
            1e-1,
        ),
        ({"type": "int", "minval": 0, "maxval": 100, "step": 10, "prior": {"center": 20, "confidence": 1}}, 0, 70),
        ({"type": "categorical", "vals": [1, 2, 3], "prior": {"center": 2, "confidence": 1}}, 2, 2),
    ],
)
def test_draws_lie_around_the_center_of_a_sure_prior(spec: dict[str, Any], low: float, high: float) -> None:
    center, found = spec["prior"]["center"], [point["h"] for point in draws({"h": spec})]
    space = Space({"h": spec})
    assert all(not space.problems({"h": value}) for value in found)
    assert sum(low <= value <= high for value in found) >= 0.99 * len(found)
    below = sum(value < center for value in found), sum(value > center for value in found)
    assert low == high or min(below) > 0.25 * len(found)


def test_confidence_is_the_share_of_draws_near_the_center() -> None:
    spec = {"type": "categorical", "vals": list(range(10)), "prior": {"center": 3, "confidence": 0.5}}
    found = [point["h"] for point in draws({"h": spec}, 4000)]
    assert found.count(3) / 4000 == pytest.approx(0.5 + 0.05, abs=0.03)


# --- starting points, priors and known results of methods that learn


def created(search: Any, count: int) -> list[dict[str, Any]]:
    """Return the hyperparameters of the first trials, each of which ends with a result before the next."""
    made = [one for one in search.step(Started()) if isinstance(one, CreateTrial)]
    for place in range(count):
        if place >= len(made):
            break
        search.step(ValidationReported(made[place].request_id, 1.0, 1.0))
        made += [one for one in search.step(TrialExited(made[place].request_id)) if isinstance(one, CreateTrial)]
    return [one.hparams for one in made[:count]]


@pytest.mark.parametrize("name", ["random", "tpe", "cmaes", "nsga2"])
def test_starting_points_are_tried_first_and_completed(name: str) -> None:
    config: dict[str, Any] = {"name": name, "metric": "m", "max_trials": 9, "max_concurrent_trials": 1}
    points = [
        {"depth": 3, "optimizer": "adam"},
        {"adam": {"beta": 0.99}, "optimizer": "adam"},
        {"second": 8, "depth": 2},
    ]
    config["starting_points"] = points
    found = created(make_searcher(config, TREE, 4), 3)
    assert all(is_of_tree(point) for point in found)
    assert (found[0]["depth"], found[0]["optimizer"]) == (3, "adam")
    assert found[1]["adam"]["beta"] == 0.99
    assert (found[2]["depth"], found[2]["second"]) == (2, 8)


def test_starting_point_that_no_draw_can_complete_is_dropped() -> None:
    space = {name: {"type": "int", "minval": 1, "maxval": 9} for name in "ab"}
    config = {"name": "random", "metric": "m", "max_trials": 1, "starting_points": [{"a": 9}], "require": ["b > a"]}
    (found,) = created(make_searcher(config, space, 1), 1)
    assert found["b"] > found["a"]


def test_centers_of_priors_are_tried_first_by_methods_that_learn() -> None:
    space = {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0, "prior": {"center": 0.01}},
        "net": {"w": {"type": "int", "minval": 1, "maxval": 9, "prior": {"center": 4}}},
    }
    config = {"name": "tpe", "metric": "m", "max_trials": 9, "max_concurrent_trials": 2}
    assert created(make_searcher(config, space, 1), 1) == [{"lr": 0.01, "net": {"w": 4}}]


def test_known_results_replace_random_trials_and_lead_the_first_suggestion() -> None:
    space = {"x": {"type": "double", "minval": 0, "maxval": 1}}
    draw = random.Random(2)
    results = [{"hparams": {"x": x}, "metric": -((x - 0.8) ** 2)} for x in (draw.random() for _ in range(60))]
    results.append({"hparams": {"x": 7.0}, "metric": 9.0})  # of another space
    config = {"name": "tpe", "metric": "m", "max_trials": 9, "max_concurrent_trials": 4, "smaller_is_better": False}
    search = make_searcher(config | {"results": results}, space, 1)
    first, *_ = search.step(Started())
    assert isinstance(first, CreateTrial)
    assert search.step(TrialPlaced(first.request_id)) == [Suggest(0, 1)]
    (question,) = search.questions()
    assert len(question.known["ended"]) == 60
    points = answer(to_json("tpe", question))
    assert all(abs(point["x"] - 0.8) < 0.3 for point in points)


def test_points_that_users_add_are_checked_against_the_space() -> None:
    search = make_searcher({"name": "random", "metric": "m", "max_trials": 1}, TREE, 1)
    search.step(Started())
    with pytest.raises(SteeringRefused, match="point 1: depth: is 9, not from 1 to 3"):
        search.step(PointsAdded(({"depth": 2}, {"depth": 9})))


# --- seeds


REPEATED = {"name": "random", "metric": "m", "max_trials": 3, "max_concurrent_trials": 3, "seeds": 3}
PLAIN = {"w": {"type": "int", "minval": 0, "maxval": 99}}


def test_replicas_share_their_point_and_differ_in_their_seed() -> None:
    search = make_searcher(REPEATED, PLAIN, 1)
    assert search.trials_total == 9
    made = [one for one in search.step(Started()) if isinstance(one, CreateTrial)]
    assert [one.index for one in made] == [0, 1, 2]
    assert len({one.hparams["w"] for one in made}) == 1
    assert len({one.trial_seed for one in made}) == 3


def halving(**more: Any) -> tuple[Any, list[str]]:
    """Return a search of one point at a time in rungs, with the replicas of its first points."""
    config = {"name": "async_halving", "metric": "m", "time_metric": "t", "max_time": 4, "num_rungs": 2, "divisor": 2}
    config |= {"max_trials": 4, "max_concurrent_trials": 8, "seeds": 2}
    search = make_searcher(config | more, PLAIN, 1)
    return search, [one.request_id for one in search.step(Started()) if isinstance(one, CreateTrial)]


def test_report_counts_when_all_replicas_made_theirs_and_the_mean_decides() -> None:
    search, made = halving()
    firsts, seconds = made[::2], made[1::2]
    assert search.step(ValidationReported(firsts[0], 0.0, 2.0)) == []
    assert search.step(ValidationReported(seconds[0], 10.0, 2.0)) == []  # mean 5
    search.step(ValidationReported(firsts[1], 1.0, 2.0))
    search.step(ValidationReported(seconds[1], 1.0, 2.0))  # mean 1
    assert search.step(ValidationReported(firsts[2], 3.0, 2.0)) == []
    stops = [one for one in search.step(ValidationReported(seconds[2], 3.0, 2.0)) if isinstance(one, StopTrial)]
    assert {one.request_id for one in stops} == {firsts[2], seconds[2]}


def test_replica_that_ended_is_not_waited_for() -> None:
    search, made = halving()
    firsts, seconds = made[::2], made[1::2]
    for place, metric in ((0, 1.0), (1, 1.0)):
        search.step(ValidationReported(firsts[place], metric, 2.0))
        search.step(ValidationReported(seconds[place], metric, 2.0))
    assert search.step(ValidationReported(firsts[2], 3.0, 2.0)) == []
    search.step(TrialExitedEarly(seconds[2], "errored"))
    stops = [one for one in search.step(TrialExited(seconds[2])) if isinstance(one, StopTrial)]
    assert [one.request_id for one in stops] == [firsts[2]]


def test_point_is_invalid_only_if_all_its_replicas_are() -> None:
    search = make_searcher(REPEATED | {"max_trials": 1}, PLAIN, 1)
    made = [one.request_id for one in search.step(Started()) if isinstance(one, CreateTrial)]
    again: list[Any] = []
    for request_id in made:
        search.step(TrialCreated(request_id))
        search.step(TrialExitedEarly(request_id, "invalid_hp"))
        again = search.step(TrialExited(request_id))
    assert len([one for one in again if isinstance(one, CreateTrial)]) == 3


# --- contracts


class _TreeContract(SearchMethodContract):
    """The contract over a space with conditions, relations and steps."""

    config: ClassVar[dict[str, Any]]
    space = TREE

    def test_points_lie_in_the_space(self) -> None:
        """Each trial has what its conditions call for."""
        for seed in self.seeds:
            created = drive(self.config, self.space, seed).created.values()
            assert created
            assert all(is_of_tree(trial.hparams) for trial in created)


MB = {"metric": "m", "max_trials": 14, "max_concurrent_trials": 3, "startup_trials": 4, "require": RELATIONS}


@pytest.mark.slow
class TestRandomTree(_TreeContract):
    config: ClassVar[dict[str, Any]] = {"name": "random", "metric": "m", "max_trials": 12, "require": RELATIONS}


@pytest.mark.slow
class TestGridTree(_TreeContract):
    config: ClassVar[dict[str, Any]] = {"name": "grid", "metric": "m", "require": RELATIONS}
    seeds = range(3)


@pytest.mark.slow
class TestTPETree(_TreeContract):
    config: ClassVar[dict[str, Any]] = {"name": "tpe", **MB}
    seeds = range(2)


class TestCMATree(_TreeContract):
    config: ClassVar[dict[str, Any]] = {"name": "cmaes", **MB}
    seeds = range(2)


class TestNSGA2Tree(_TreeContract):
    config: ClassVar[dict[str, Any]] = {"name": "nsga2", **MB, "population": 3}
    seeds = range(2)


@pytest.mark.slow
class TestRepeatedRandom(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "random", "metric": "m", "max_trials": 5, "seeds": 3}


@pytest.mark.slow
class TestRepeatedHalving(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {
        "name": "adaptive_asha",
        "metric": "loss",
        "max_trials": 12,
        "time_metric": "batches",
        "max_time": 9,
        "divisor": 3,
        "max_concurrent_trials": 6,
        "seeds": 2,
    }


class TestRepeatedTPE(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {
        "name": "tpe",
        "metric": "m",
        "max_trials": 6,
        "startup_trials": 2,
        "max_concurrent_trials": 4,
        "seeds": 2,
    }
    seeds = range(1)


# --- spaces that few points of are allowed

SQUARE: dict[str, Any] = {name: {"type": "double", "minval": 0.0, "maxval": 1.0} for name in ("b", "lr")}


@pytest.mark.parametrize("seed", [4, 5])
def test_rare_points_do_not_end_a_search_that_the_check_has_accepted(seed: int) -> None:
    """Of some seeds none of 10,000 draws meets a relation that one in 10,000 points does."""
    block = {"name": "random", "metric": "loss", "max_trials": 3, "require": ["lr < 0.0001"]}
    assert not errors_of(check({"hyperparameters": SQUARE, "searcher": block}))
    search = make_searcher(block, SQUARE, seed)
    points = [one.hparams for one in search.step(Started()) if isinstance(one, CreateTrial)]
    assert len(points) == 3
    assert all(point["lr"] < 0.0001 for point in points)
    said = "searcher.require: none of 10,000 random points met it, so a known one was used again"
    assert search.notes() == [said]


@pytest.mark.parametrize("seed", [1, 5])
def test_an_edit_to_rare_points_is_survived_by_the_end_of_a_trial(seed: int) -> None:
    block = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 1, "require": ["lr < b"]}
    edited = {**SQUARE, "b": {"type": "double", "minval": 0.0, "maxval": 0.00016}}
    assert not errors_of(check({"hyperparameters": edited, "searcher": block}))
    events: list[Event] = [Started()]
    search = make_searcher(block, SQUARE, seed)
    (first,) = search.step(Started())
    assert isinstance(first, CreateTrial)
    events += [SpaceEdited(edited), TrialExited(first.request_id)]
    decided = [[first], search.step(events[1]), search.step(events[2])]
    (made,) = decided[2]
    assert isinstance(made, CreateTrial)
    assert made.hparams["lr"] < made.hparams["b"] <= 0.00016
    again, _ = replay(block, SQUARE, seed, events, decided)
    assert again.fingerprint() == search.fingerprint()


# --- seeds beside methods that pause


POPULATION = {
    "name": "pbt",
    "metric": "m",
    "time_metric": "step",
    "population_size": 2,
    "num_rounds": 3,
    "length_per_round": 2,
    "replace_function": {"truncate_fraction": 0.5},
    "seeds": 2,
}


def population() -> tuple[Any, list[str]]:
    search = make_searcher(POPULATION, PLAIN, 1)
    return search, [one.request_id for one in search.step(Started()) if isinstance(one, CreateTrial)]


@pytest.mark.parametrize("saved_before", [True, False])
def test_checkpoints_of_another_seed_count_once_the_first_has_failed(saved_before: bool) -> None:
    """The search paused after each round, for ever: it had no checkpoint of the first replica."""
    search, (first, second, *others) = population()
    decided: list[Any] = []
    if saved_before:
        search.step(CheckpointCommitted(second, "of-second", 2))
    search.step(TrialExitedEarly(first, "errored"))
    search.step(TrialExited(first))
    for trial in (second, *others):
        search.step(CheckpointCommitted(trial, f"late-{trial}", 2)) if trial != second or not saved_before else None
        decided += search.step(ValidationReported(trial, 0.5, 2.0))
    for trial in (second, *others):
        decided += search.step(TrialPaused(trial))
    assert not [one for one in decided if isinstance(one, PauseSearch)]
    assert any(isinstance(one, ResumeTrial) for one in decided)


def test_checkpoints_of_another_seed_count_once_the_code_of_the_first_is_done() -> None:
    search, (first, *others) = population()
    decided: list[Any] = search.step(ValidationReported(first, 0.5, 2.0))
    search.step(TrialExited(first))
    for trial in others:
        search.step(CheckpointCommitted(trial, f"of-{trial}", 2))
        decided += search.step(ValidationReported(trial, 0.5, 2.0))
    for trial in others:
        decided += search.step(TrialPaused(trial))
    assert not [one for one in decided if isinstance(one, PauseSearch)]
    assert any(isinstance(one, ResumeTrial) for one in decided)


def test_a_seed_that_ends_is_not_paused_or_resumed() -> None:
    search, (first, second, *_) = population()
    search.step(ValidationReported(second, 0.5, 2.0))
    search.step(TrialExitedEarly(first, "errored"))
    decided = search.step(ValidationReported(first, 0.5, 2.0))
    assert [one.request_id for one in decided if isinstance(one, PauseTrial)] == [second]


def test_a_search_without_budget_pauses_no_trial() -> None:
    search, (first, second, *_) = population()
    search.step(ValidationReported(second, 0.5, 2.0))
    search.step(BudgetSpent("the budget is used up"))
    assert search.step(ValidationReported(first, 0.5, 2.0)) == []


def test_clones_are_of_the_choices_that_a_space_was_edited_to() -> None:
    """The parent's value was copied although it is no choice any more; another kind of values is refused."""
    space = {"act": {"type": "categorical", "vals": ["relu", "tanh"]}, **PLAIN}
    config = {**POPULATION, "population_size": 4, "explore_function": {"resample_probability": 0}}
    del config["seeds"]
    search = make_searcher(config, space, 1)
    trials = [one.request_id for one in search.step(Started()) if isinstance(one, CreateTrial)]
    with pytest.raises(SteeringRefused, match="act: was categorical and cannot become int"):
        search.step(SpaceEdited({**space, "act": {"type": "int", "minval": 0, "maxval": 2}}))
    search.step(SpaceEdited({**space, "act": {"type": "categorical", "vals": ["gelu"]}}))
    decided: list[Any] = []
    for place, trial in enumerate(trials):
        search.step(CheckpointCommitted(trial, f"of-{place}", 2))
        search.step(ValidationReported(trial, float(place), 2.0))
    for trial in trials:
        decided += search.step(TrialPaused(trial))
    clones = [one.hparams["act"] for one in decided if isinstance(one, CreateTrial)]
    assert clones == ["gelu", "gelu"]


class TestRepeatedPromotion(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {**TestRepeatedHalving.config, "name": "asha"}
    seeds = range(2)


class TestRepeatedPopulation(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {**POPULATION, "metric": "loss", "population_size": 4}
    seeds = range(2)
