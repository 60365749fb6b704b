"""`det config import` of W&B sweeps: methods, every distribution, nested parameters, commands, mistakes."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import ConfigError
from detlab.schemas.expconf import load_yaml, resolve
from detlab.schemas.imports import Imported, import_config
from detlab.schemas.imports.wandb.spaces import DISTRIBUTIONS
from detlab.schemas.space import FixedDraws, Space

FILES = Path(__file__).parent / "files"
START = ["python3", "-m", "detlab.launch.hparams", "--"]


def imported(name: str) -> Imported:
    return import_config(load_yaml((FILES / f"{name}.yaml").read_text(encoding="utf-8"))[0])


def sweep(parameter: Any, **keys: Any) -> dict[str, Any]:
    return {"method": "random", "metric": {"name": "loss"}, "parameters": {"x": parameter}, **keys}


def searched(**parameter: Any) -> Any:
    return import_config(sweep(parameter)).config["hyperparameters"]["x"]


def mistakes(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        import_config(raw)
    return {problem.path: problem.message for problem in refused.value.problems}


def test_a_sweep_without_a_command_runs_its_program_with_all_arguments():
    config = imported("wandb_bayes").config
    assert config["entrypoint"] == [*START, "python3", "train.py", "${args}"]
    assert (config["workspace"], config["project"], config["name"]) == ("lab", "speech", "vowels")
    optimizer = {"type": "categorical", "vals": ["adam", "sgd"], "weights": [0.7, 0.3]}
    assert config["hyperparameters"]["optimizer"]["name"] == optimizer
    assert config["hyperparameters"]["optimizer"]["momentum"] == 0.9


def test_the_macros_of_a_command_are_translated():
    config = imported("wandb_random").config
    words = ["NAME=${env.USER}", "python3", "-u", "main.py", "fit", "${args_no_boolean_flags}", "${args_json}"]
    assert config["entrypoint"] == [*START, *words]


def test_hyperband_becomes_halving_with_the_same_rungs():
    searcher = imported("wandb_random").config["searcher"]
    assert searcher == {
        "name": "async_halving",
        "metric": "acc",
        "smaller_is_better": False,
        "max_trials": 100,
        "time_metric": "steps",
        "max_time": 27,
        "divisor": 3,
        "num_rungs": 3,
    }
    bayes = imported("wandb_bayes").config["searcher"]
    assert bayes["name"] == "bohb"
    assert (bayes["max_time"], bayes["max_trials"]) == (81, 40)
    stop = {"type": "hyperband", "min_iter": 3}
    sweep = {"metric": {"name": "loss"}, "parameters": {"x": {"values": [1, 2]}}, "early_terminate": stop}
    for method, rungs in (("random", "num_rungs"), ("bayes", "max_rungs")):
        made = import_config({"method": method, **sweep})
        searcher = made.config["searcher"]
        assert (searcher["max_time"], searcher["divisor"], searcher[rungs]) == (81, 3, 4), "none ends before step 3"
        (note,) = (one for one in made.notes if one.path == "early_terminate.min_iter")
        assert "the first of 4 rungs" in note.why


def test_a_grid_has_every_point_of_the_sweep():
    config = imported("wandb_grid").config
    assert config["hyperparameters"] == {
        "width": {"type": "categorical", "vals": [8, 16]},
        "depth": {"type": "int", "minval": 1, "maxval": 3, "count": 3},
        "rate": {"type": "double", "minval": 0.1, "maxval": 0.5, "count": 3},
        "fixed": 3,
    }
    assert config["searcher"] == {"name": "grid", "metric": "loss", "smaller_is_better": True, "max_trials": 5}
    (note,) = (note for note in imported("wandb_grid").notes if note.path == "run_cap")
    assert (note.outcome, "at random" in note.why) == ("changed", True)
    uncapped = {"method": "grid", "metric": {"name": "loss"}, "parameters": {"x": {"values": [1, 2]}}}
    assert "max_trials" not in import_config(uncapped).config["searcher"]


def prior(center: float) -> dict[str, float]:
    return {"center": center, "confidence": 1}


EXACT = {
    "uniform": ({"min": 0, "max": 2}, {"type": "double", "minval": 0.0, "maxval": 2.0}),
    "int_uniform": ({"min": 0, "max": 2}, {"type": "int", "minval": 0, "maxval": 2}),
    "log_uniform": ({"min": -9, "max": -2}, {"type": "log", "base": math.e, "minval": -9.0, "maxval": -2.0}),
    "inv_log_uniform": ({"min": 1, "max": 3}, {"type": "log", "base": math.e, "minval": -3.0, "maxval": -1.0}),
    "log_uniform_values": ({"min": 0.01, "max": 1}, {"type": "log", "base": 10, "minval": -2.0, "maxval": 0.0}),
    "inv_log_uniform_values": ({"min": 0.01, "max": 1}, {"type": "log", "base": 10, "minval": -2.0, "maxval": 0.0}),
    "constant": ({"value": {"a": 1}}, {"type": "const", "val": {"a": 1}}),
    "categorical": ({"values": [1, None]}, {"type": "categorical", "vals": [1, None]}),
    "categorical_w_probabilities": (
        {"values": [1, 2], "probabilities": [0.1, 0.9]},
        {"type": "categorical", "vals": [1, 2], "weights": [0.1, 0.9]},
    ),
    "q_log_uniform": ({"min": 0, "max": 2, "q": 1}, {"type": "int", "minval": 1, "maxval": 7, "log": True}),
    "q_log_uniform_values": (
        {"min": 16, "max": 20, "q": 1},
        {"type": "int", "minval": 16, "maxval": 20, "log": True},
    ),
}
NEAR = {
    "q_log_uniform_values": ({"min": 16, "max": 64, "q": 8}, {"type": "int", "minval": 16, "maxval": 64, "step": 8}),
    "q_log_uniform": ({"min": -2, "max": 2, "q": 1}, {"type": "int", "minval": 0, "maxval": 7}),
    "normal": ({"mu": 5, "sigma": 1}, {"type": "double", "minval": 2.0, "maxval": 8.0, "prior": prior(5.0)}),
    "q_normal": (
        {"mu": 5, "sigma": 1, "q": 0.5},
        {"type": "double", "minval": 2.0, "maxval": 8.0, "step": 0.5, "prior": prior(5.0)},
    ),
    "log_normal": ({"sigma": 1}, {"type": "log", "base": math.e, "minval": -3.0, "maxval": 3.0, "prior": prior(1.0)}),
    "q_log_normal": ({"sigma": 1}, {"type": "log", "base": math.e, "minval": -3.0, "maxval": 3.0, "prior": prior(1.0)}),
    "beta": ({"a": 2, "b": 3}, {"type": "double", "minval": 0.0, "maxval": 1.0}),
}
STEPS = {"q_uniform": {"min": 0, "max": 1, "q": 0.25}, "q_beta": {"q": 0.25}}


def test_every_distribution_is_in_a_table_here():
    assert set(EXACT) | set(NEAR) | set(STEPS) == set(DISTRIBUTIONS)


@pytest.mark.parametrize("name", EXACT)
def test_a_distribution_that_there_is_stays_as_it_is(name):
    keys, spec = EXACT[name]
    result = import_config(sweep({"distribution": name, **keys}))
    assert result.config["hyperparameters"]["x"] == spec
    assert {note.outcome for note in result.notes if note.path.startswith("parameters.")} == {"kept"}


@pytest.mark.parametrize("name", NEAR)
def test_a_distribution_that_there_is_not_becomes_the_nearest_and_says_so(name):
    keys, spec = NEAR[name]
    result = import_config(sweep({"distribution": name, **keys}))
    assert result.config["hyperparameters"]["x"] == spec
    assert {note.outcome for note in result.notes if note.path.startswith("parameters.")} - {"kept"}


@pytest.mark.parametrize("name", STEPS)
def test_a_lattice_has_a_step(name):
    spec = searched(distribution=name, **STEPS[name])
    assert spec == {"type": "double", "minval": 0.0, "maxval": 1.0, "step": 0.25}


def test_what_w_and_b_takes_for_granted():
    assert searched(min=1, max=3) == {"type": "int", "minval": 1, "maxval": 3}
    assert searched(min=1.0, max=3) == {"type": "double", "minval": 1.0, "maxval": 3.0}
    assert searched(value=None) == {"type": "const", "val": None}
    result = import_config(sweep({"value": 1}))
    assert [note.to for note in result.with_outcome("added")] == ["searcher.max_trials"]


def test_all_mistakes_are_named_at_once():
    raw = sweep({"min": 3, "max": 1}, run_cap=0, early_terminate={"type": "median"}, metric={"name": "a", "goal": "up"})
    raw["parameters"] |= {
        "a": {"distribution": "log_uniform_values", "min": 0, "max": 1},
        "b": {"distribution": "unifrom", "min": 0, "max": 1},
        "c": {"distribution": "normal", "sigma": -1},
        "d": {"parameters": {"type": {"value": 1}, "when": {"value": 1}}},
        "e": 3,
        "f": {},
        "g": {"min": 1},
        "h": {"values": []},
    }
    assert set(mistakes(raw)) == {
        *("metric.goal", "run_cap", "early_terminate.type", "parameters.x", "parameters.a.min"),
        *(
            "parameters.b.distribution",
            "parameters.c.sigma",
            "parameters.d.parameters.type",
            "parameters.d.parameters.when",
            "parameters.e",
        ),
        *("parameters.f", "parameters.g.max", "parameters.h.values"),
    }


def test_a_method_of_ones_own_is_refused():
    assert list(mistakes(sweep({"value": 1}, method="custom"))) == ["method"]


def test_a_normal_distribution_of_whole_numbers_stays_one_of_whole_numbers() -> None:
    found = searched(distribution="q_normal", mu=40, sigma=4, q=1)
    assert found == {"type": "int", "minval": 28, "maxval": 52, "prior": prior(40)}
    assert searched(distribution="q_normal", mu=40, sigma=0.01, q=8) == 40


def test_a_normal_distribution_is_drawn_with_its_deviation() -> None:
    space = Space(
        resolve({"hyperparameters": {"x": searched(distribution="normal", mu=5, sigma=2)}})["hyperparameters"]
    )
    draws = FixedDraws()
    values = [space.sample(draws)["x"] for _ in range(2000)]
    assert statistics.mean(values) == pytest.approx(5, abs=0.2)
    assert statistics.stdev(values) == pytest.approx(2, abs=0.1)


def test_a_logarithmic_normal_distribution_of_whole_numbers_stays_one_of_whole_numbers() -> None:
    found = searched(distribution="q_log_normal", mu=4, sigma=0.5, q=1)
    assert found == {"type": "int", "minval": 12, "maxval": 245, "log": True, "prior": prior(55)}
    assert searched(distribution="q_log_normal", mu=4, sigma=0.5, q=8)["type"] == "log"
    assert searched(distribution="q_log_normal", mu=4, sigma=2, q=1)["type"] == "log"


def test_a_target_ends_the_whole_search_and_says_what_becomes_of_running_trials() -> None:
    result = imported("wandb_bayes")
    assert result.config["searcher"]["goal"] == 0.1
    assert "stopping" not in result.config
    (note,) = (note for note in result.notes if note.path == "metric.target")
    assert (note.outcome, note.to, "are stopped" in note.why) == ("changed", "searcher.goal", True)


def test_a_grid_tries_each_choice_whatever_its_weight() -> None:
    result = import_config(sweep({"values": [1, 2], "probabilities": [0.1, 0.9]}, method="grid"))
    assert result.config["hyperparameters"]["x"] == {"type": "categorical", "vals": [1, 2]}
    (note,) = (note for note in result.notes if note.path == "parameters.x.probabilities")
    assert (note.outcome, "a grid tries each" in note.why) == ("left_out", True)


def test_earlier_runs_and_a_length_that_is_said_twice_are_left_to_do() -> None:
    stop = {"type": "hyperband", "min_iter": 3}
    raw = sweep({"min": 0, "max": 1}, prior_runs=["a/b/c"], early_terminate=stop)
    raw["parameters"]["epochs"] = {"value": 30}
    result = import_config(raw)
    assert [line for line in result.to_do if "`searcher.warm_start`" in line and line.startswith("prior_runs")]
    assert [line for line in result.to_do if line.startswith("epochs is 30, but `searcher.max_time` 81")]
    (note,) = (note for note in result.notes if note.path.startswith("prior_runs"))
    assert (note.outcome, "searcher.warm_start" in note.why) == ("left_out", True)
    raw["parameters"]["epochs"] = {"value": 81}
    assert [line for line in import_config(raw).to_do if line.startswith("epochs")] == []


@pytest.mark.parametrize("value", [10**400, float("nan"), "\0"])
def test_values_that_no_config_holds_are_refused(value: Any) -> None:
    assert mistakes(sweep({"value": value}))


def test_aliases_that_stand_for_too_much_or_for_themselves_are_refused() -> None:
    bomb: list[Any] = ["x"] * 9
    for _ in range(9):
        bomb = [bomb] * 9
    assert "more than 50,000 values" in mistakes(sweep({"value": bomb}))[""]
    around = sweep({"value": 1})
    around["again"] = around
    assert "levels deep" in mistakes(around)[""]
