"""Searches that are right as they are written and would not do what they are meant to: warnings at submit."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.schemas.expconf import check

ASHA = {"metric": "loss", "time_metric": "epoch", "max_trials": 9}
PBT = {"name": "pbt", "metric": "loss", "time_metric": "epoch", "num_rounds": 3, "length_per_round": 1}


def told(searcher: dict[str, Any], level: str = "warning", **config: Any) -> dict[str, str]:
    """Return what is said of a search, by path."""
    space = {"lr": {"type": "double", "minval": 0, "maxval": 1}}
    found = check({"hyperparameters": space, "searcher": searcher, **config})
    return {one.path: one.message for one in found if one.level == level}


@pytest.mark.parametrize("name", ["asha", "async_halving"])
@pytest.mark.parametrize(("rungs", "fits"), [(2, True), (3, False), (9, False)])
def test_rungs_that_do_not_fit_into_max_time_earn_a_warning(name: str, rungs: int, fits: bool) -> None:
    said = told({**ASHA, "name": name, "max_time": 9, "divisor": 4, "num_rungs": rungs})
    assert ("searcher.num_rungs" not in said) is fits
    if not fits:
        assert said["searcher.num_rungs"].startswith(f"is {rungs}, but 2 fit")


@pytest.mark.parametrize(("trials", "reaches"), [(6, False), (8, False), (9, True), (None, True)])
def test_so_few_trials_that_none_reaches_max_time_earn_a_warning(trials: int | None, reaches: bool) -> None:
    asha = {**ASHA, "name": "asha", "max_time": 27, "divisor": 3, "num_rungs": 3, "max_trials": trials}
    said = told(asha).get("searcher.num_rungs", "")
    assert ("none is promoted beyond rung 2" in said) is not reaches
    assert "searcher.num_rungs" not in told({**asha, "variant": "stopping"})
    assert "searcher.num_rungs" not in told({key: value for key, value in asha.items() if key != "num_rungs"})


def test_brackets_with_rungs_that_do_not_fit_are_named() -> None:
    said = told({**ASHA, "name": "adaptive_asha", "max_time": 27, "divisor": 3, "bracket_rungs": [4, 5]})
    assert said.keys() == {"searcher.bracket_rungs[1]"}


@pytest.mark.parametrize(
    ("size", "share", "replaces"), [(4, None, False), (5, None, True), (4, 0.25, True), (4, 0, True)]
)
def test_population_too_small_for_its_share_to_be_a_trial_earns_a_warning(
    size: int, share: float | None, replaces: bool
) -> None:
    function = {} if share is None else {"replace_function": {"truncate_fraction": share}}
    said = told({**PBT, "population_size": size, **function})
    assert ("searcher.replace_function.truncate_fraction" not in said) is replaces


@pytest.mark.parametrize("name", ["pbt", "pb2", "asha", "hyperband", "bohb"])
def test_methods_that_resume_trials_warn_of_a_policy_without_checkpoints(name: str) -> None:
    block = {**PBT, "population_size": 5} if name in ("pbt", "pb2") else {**ASHA, "max_time": 27}
    said = told({**block, "name": name}, checkpoint_policy="none")
    assert f"{name} needs checkpoints" in said["checkpoint_policy"]
    assert "checkpoint_policy" not in told({**block, "name": name}, checkpoint_policy="best")


def test_asha_that_stops_needs_no_checkpoints() -> None:
    block = {**ASHA, "name": "asha", "max_time": 27, "variant": "stopping"}
    assert "checkpoint_policy" not in told(block, checkpoint_policy="none")


def test_budget_without_a_limit_earns_a_warning_and_one_of_nothing_is_refused() -> None:
    random = {"name": "random", "metric": "loss", "max_trials": 3}
    assert told({**random, "budget": {}}) == {"searcher.budget": "limits nothing"}
    assert told({**random, "budget": {"wall_clock": "2h"}}) == {}
    refused = told({**random, "budget": {"slot_hours": 0, "wall_clock": 0}}, "error")
    assert refused.keys() == {"searcher.budget.slot_hours", "searcher.budget.wall_clock"}


def test_letters_in_another_order_are_a_near_name() -> None:
    found = check({"searcher": {"name": "tep", "metric": "loss"}})
    assert [one.hint for one in found if one.path == "searcher.name"] == ["did you mean `tpe`?"]


@pytest.mark.parametrize(
    ("seeds", "limit", "warned"),
    [(5, 2, True), (2, 2, False), (17, None, True), (16, None, False), (5, 0, False), (1, 1, False), (None, 1, False)],
)
def test_more_seeds_than_trials_at_a_time_are_said_to_exceed_the_limit(
    seeds: int | None, limit: int | None, warned: bool
) -> None:
    block: dict[str, Any] = {"name": "random", "metric": "loss", "max_trials": 9}
    block |= {} if seeds is None else {"seeds": seeds}
    said = told(block | ({} if limit is None else {"max_concurrent_trials": limit})).get("searcher.seeds", "")
    assert (f"is {seeds}, more than" in said) is warned


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_a_population_has_no_limit_that_seeds_exceed(name: str) -> None:
    assert "searcher.seeds" not in told({**PBT, "name": name, "population_size": 20, "seeds": 20})
