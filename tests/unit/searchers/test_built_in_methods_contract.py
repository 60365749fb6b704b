"""Every built-in search method passes the contract of its seam."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, ClassVar

from detlab_hub.testing.searchers import SearchMethodContract

HALVING = {"metric": "loss", "time_metric": "step", "max_time": 9, "divisor": 3, "max_trials": 12}
MB = {"metric": "loss", "max_trials": 12, "max_concurrent_trials": 3, "startup_trials": 4}


class TestSingle(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "single", "metric": "loss"}


class TestRandom(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {
        "name": "random",
        "metric": "loss",
        "max_trials": 12,
        "max_concurrent_trials": 3,
    }


class TestSobol(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "sobol", "metric": "loss", "max_trials": 12, "max_concurrent_trials": 3}


class TestGrid(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "grid", "metric": "loss", "max_concurrent_trials": 4}


class TestGridOfSome(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "grid", "metric": "loss", "max_concurrent_trials": 4, "max_trials": 7}


class TestRandomWithGoal(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {
        "name": "random",
        "metric": "loss",
        "max_trials": 12,
        "max_concurrent_trials": 3,
        "goal": 0.2,
        "patience": 4,
    }


class TestRepeatedWithGoal(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {**TestRandomWithGoal.config, "seeds": 2, "max_trials": 6}


class TestAsyncHalving(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "async_halving", **HALVING, "num_rungs": 3, "max_concurrent_trials": 4}


class TestAdaptiveAsha(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "adaptive_asha", **HALVING, "max_concurrent_trials": 4}


class TestAshaByPromotion(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "asha", **HALVING, "max_concurrent_trials": 4}


class TestAshaByStopping(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {**TestAshaByPromotion.config, "variant": "stopping"}


class TestHyperband(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "hyperband", **HALVING, "max_concurrent_trials": 4}


class TestBOHB(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {**TestHyperband.config, "name": "bohb", "max_trials": 16}
    seeds = range(2)


class TestDEHB(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {**TestHyperband.config, "name": "dehb", "max_trials": 30}


class TestPBT(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {
        "name": "pbt",
        "metric": "loss",
        "time_metric": "step",
        "population_size": 8,
        "num_rounds": 4,
        "length_per_round": 2,
        "replace_function": {"truncate_fraction": 0.3},
    }


class TestPB2(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {**TestPBT.config, "name": "pb2"}
    seeds = range(4)


class TestTPE(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "tpe", **MB}
    seeds = range(2)


class TestGP(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "gp", **MB, "max_trials": 8}
    seeds = range(1)
    lost_answers = 0.7


class TestCMA(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "cmaes", **MB}
    seeds = range(2)


class TestNSGA2(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "nsga2", **MB, "population": 3}
    seeds = range(2)


class TestBayesian(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "bayesian", **MB, "max_trials": 8}
    seeds = range(1)
    lost_answers = 0.7


def test_all_methods_are_under_contract() -> None:
    ours = {entry.name for entry in entry_points(group="detlab.searchers") if entry.value.startswith("detlab_hub.")}
    tested = {one.config["name"] for one in SearchMethodContract.__subclasses__() if "config" in vars(one)}
    assert ours <= tested
