from typing import Any, ClassVar

from detlab.testing.searchers import SearchMethodContract

MB = {"metric": "loss", "max_trials": 12, "max_concurrent_trials": 3, "startup_trials": 4}


class TestTPE(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "tpe", **MB}
    seeds = range(2)


class TestGP(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "gp", **MB}
    seeds = range(1)


class TestCMA(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "cmaes", **MB}
    seeds = range(2)


class TestNSGA2(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "nsga2", **MB, "population": 3}
    seeds = range(2)


class TestBayesian(SearchMethodContract):
    config: ClassVar[dict[str, Any]] = {"name": "bayesian", **MB}
    seeds = range(1)
