"""Integers on a log scale, weighted choices, Sobol points and grids of which some points are tried."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from detlab.schemas import expconf
from detlab.schemas.space.grid import log_int_point
from detlab_hub.core.searchers import SearcherConfigError, make_searcher
from detlab_hub.core.searchers.hyperparameters import SpaceGrid
from detlab_hub.core.searchers.quasi_random.sobol import BITS, dimensions, element
from detlab_hub.core.searchers.simulation import simulate

WIDTH = {"width": {"type": "int", "minval": 1, "maxval": 4096, "log": True}}
OPT = {"opt": {"type": "categorical", "vals": ["a", "b", "c"], "weights": [6, 3, 1]}}
LEARNING = {"metric": "loss", "max_trials": 24, "max_concurrent_trials": 2}
HALVING = {**LEARNING, "time_metric": "step", "max_time": 9, "divisor": 3}
PBT = {
    "metric": "loss",
    "population_size": 12,
    "num_rounds": 3,
    "length_per_round": 3,
    "time_metric": "step",
    "replace_function": {"truncate_fraction": 0.25},
    "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.3},
}


def points(config: dict[str, Any], space: dict[str, Any], *, seed: int = 5) -> list[dict[str, Any]]:
    def value(trial: Any, step: int) -> float:
        return abs(math.log(trial.hparams.get("width", 1) / 60)) + 1 / step

    return [one.trial.hparams for one in simulate(make_searcher(config, space, seed), value, 1, 9)]


def problems(space: dict[str, Any], **searcher: Any) -> dict[str, str]:
    raw = {"hyperparameters": space, "searcher": {"name": "random", "metric": "loss", "max_trials": 3, **searcher}}
    return {one.path: one.message for one in expconf.check(raw) if one.level == "error"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "sobol"])
def test_draws_of_an_integer_on_a_log_scale_are_even_in_their_logarithms(name: str) -> None:
    found = points(LEARNING | {"name": name, "max_trials": 2048}, WIDTH)
    decades = Counter(int(math.log2(one["width"] + 0.5)) // 3 for one in found)
    assert set(map(type, (one["width"] for one in found))) == {int}
    assert all(400 < decades[place] < 650 for place in range(4)), decades


@pytest.mark.parametrize(
    "config",
    [
        {"name": "random", **LEARNING},
        {"name": "tpe", **LEARNING},
        {"name": "cmaes", **LEARNING},
        {"name": "nsga2", **LEARNING},
        {"name": "bohb", **HALVING},
        {"name": "dehb", **HALVING},
        {"name": "pbt", **PBT},
        {"name": "pb2", **{key: value for key, value in PBT.items() if key != "explore_function"}},
        {"name": "sobol", **LEARNING},
        {"name": "grid", "metric": "loss"},
    ],
    ids=lambda config: config["name"],
)
def test_every_method_keeps_an_integer_on_a_log_scale_whole_and_inside(config: dict[str, Any]) -> None:
    space = {**WIDTH, "other": {"type": "double", "minval": 0.0, "maxval": 1.0, "count": 2}}
    space["width"] = {**WIDTH["width"], "count": 13, "prior": {"center": 64, "confidence": 0.3}}
    found = [one["width"] for one in points(config, space)]
    assert all(type(one) is int and 1 <= one <= 4096 for one in found)
    assert sum(one < 512 for one in found) > len(found) / 2, "a linear scale has an eighth below 512"


def test_a_grid_of_an_integer_on_a_log_scale_has_different_values() -> None:
    grid = SpaceGrid({"width": {**WIDTH["width"], "count": 13}})
    assert sorted(grid.point(at)["width"] for at in range(grid.size)) == [2**power for power in range(13)]
    for low, high in [(1, 100), (1, 5), (3, 4000), (1, 2), (7, 9)]:
        for count in range(1, min(high - low + 1, 200) + 1):
            found = [log_int_point(low, high, count, place) for place in range(count)]
            assert found == sorted(set(found))
            assert low <= found[0] <= found[-1] <= high


def test_a_log_scale_from_zero_or_with_steps_is_refused_with_its_path() -> None:
    found = problems({"w": {"type": "int", "minval": 0, "maxval": 9, "log": True, "step": 2}})
    assert found["hyperparameters.w.minval"] == "is 0, but an integer on a log scale begins at 1 or more"
    assert found["hyperparameters.w.step"] == "does not go with `log`"
    with pytest.raises(SearcherConfigError, match=r"hyperparameters\.w: an int on a log scale begins at 1"):
        make_searcher(
            {"name": "random", "max_trials": 1}, {"w": {"type": "int", "minval": 0, "maxval": 9, "log": True}}, 0
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "sobol", "tpe", "cmaes"])
def test_choices_are_drawn_by_their_weights(name: str) -> None:
    config = LEARNING | {"name": name, "max_trials": 1000, "startup_trials": 1000, "max_concurrent_trials": 0}
    found = Counter(one["opt"] for one in points(config, {**OPT, "x": {"type": "double", "minval": 0, "maxval": 1}}))
    assert [round(found[choice] / 1000, 1) for choice in "abc"] == [0.6, 0.3, 0.1]


def test_wrong_weights_are_refused_with_their_path() -> None:
    assert problems({"o": {**OPT["opt"], "weights": [1, 2]}}) == {
        "hyperparameters.o.weights": "has 2 numbers for 3 choices"
    }
    assert "hyperparameters.o.weights[1]" in problems({"o": {**OPT["opt"], "weights": [1, 0, 2]}})
    assert "hyperparameters.o.weights" in problems({"o": {**OPT["opt"], "weights": [1e308, 1e308, 1e308]}})


def test_the_sequence_is_that_of_scipy() -> None:
    from scipy.stats import qmc

    expected = qmc.Sobol(dimensions(), scramble=False, bits=BITS).random_base2(9)
    assert all(
        element(place, at) / 2**BITS == expected[place][at] for place in range(512) for at in range(dimensions())
    )


def test_sobol_points_fill_each_part_of_the_space() -> None:
    space = {name: {"type": "double", "minval": 0.0, "maxval": 1.0} for name in "ab"}
    found = points(LEARNING | {"name": "sobol", "max_trials": 64}, space)
    cells = Counter((int(one["a"] * 8), int(one["b"] * 8)) for one in found)
    assert set(cells.values()) == {1}
    assert found != points(LEARNING | {"name": "sobol", "max_trials": 64}, space, seed=6)


def test_sobol_takes_given_points_first_keeps_relations_and_has_any_number_of_hyperparameters() -> None:
    space = {f"x{place:02}": {"type": "double", "minval": 0.0, "maxval": 1.0} for place in range(70)}
    config = LEARNING | {"name": "sobol", "starting_points": [{"x00": 0.7}], "require": ["x00 > 0.25"]}
    search = make_searcher(config, space, 5)
    found = [one.trial.hparams["x00"] for one in simulate(search, lambda trial, step: 1.0, 1, 1)]
    assert found[0] == 0.7
    assert min(found) > 0.25
    assert search.notes() == [
        "searcher sobol: only the first 64 hyperparameters are of the sequence, the others random"
    ]


def test_some_points_of_a_grid_are_different_and_chosen_by_the_seed() -> None:
    space = {name: {"type": "int", "minval": 1, "maxval": 1000, "count": 1000} for name in "abc"}
    config = {"name": "grid", "metric": "loss", "max_trials": 50}
    found = [tuple(one.values()) for one in points(config, space)]
    assert len(set(found)) == 50
    assert len({a for a, _, _ in found}) > 40, "every axis varies"
    assert found == [tuple(one.values()) for one in points(config, space)]
    assert found != [tuple(one.values()) for one in points(config, space, seed=6)]
    assert len(points(config, {"a": {"type": "int", "minval": 1, "maxval": 9, "count": 9}})) == 9


def test_a_large_grid_is_accepted_with_a_cap_unless_each_point_must_be_counted() -> None:
    space = {name: {"type": "int", "minval": 1, "maxval": 1000, "count": 1000} for name in "abc"}
    grid = {"name": "grid", "metric": "loss"}

    def refused(**more: Any) -> bool:
        raw = {"hyperparameters": space, "searcher": {**grid, **more}}
        return any("the grid has 1,000,000,000 points" in one.message for one in expconf.check(raw))

    assert refused()
    assert not refused(max_trials=50)
    assert refused(max_trials=50, require=["a < b"])


def test_what_ends_a_search_is_checked() -> None:
    two = [{"name": "loss"}, {"name": "ms"}]
    found = problems({"x": {"type": "int", "minval": 1, "maxval": 9}}, metrics=two, goal=0.1, patience=3)
    assert found.keys() == {"searcher.goal", "searcher.patience"}
    raw = {"searcher": {"name": "random", "metric": "loss", "max_trials": 3, "min_improvement": 0.1}}
    assert "has no effect without `patience`" in [one.message for one in expconf.check(raw)]
