"""Configs that would keep the master busy for ever."""

import random
from pathlib import Path

import pytest

from detlab.errors import ConfigError
from detlab.schemas.wire import CreateExperiment
from detlab_hub.services.admission.preparing import prepare
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.lifecycle.launching import _operators_directories

RANDOM = {"name": "random", "metric": "loss"}
ASHA = {"name": "adaptive_asha", "metric": "loss", "time_metric": "batches", "max_time": 10**14, "max_trials": 10**6}
GRID = {"name": "grid", "metric": "loss"}


def judge(searcher):
    count = {"type": "int", "minval": 0, "maxval": 10**6, "count": 1000}
    config = {
        "name": "x",
        "entrypoint": "true",
        "searcher": searcher,
        "hyperparameters": {"a": count, "b": {**count, "count": 100}},
    }
    settings = Settings(state_dir=Path("/tmp"), bundles_dir=Path("/tmp"))
    return prepare(CreateExperiment(config=config), settings, random.Random(1))


@pytest.mark.parametrize(
    "searcher",
    [
        {**RANDOM, "max_trials": 10**9, "max_concurrent_trials": 10**9},
        {**RANDOM, "max_trials": 10**9, "max_concurrent_trials": 0},
        {**GRID, "max_concurrent_trials": 0},
        {**ASHA, "max_concurrent_trials": 10**6},
        {**ASHA, "divisor": 1.0001, "max_rungs": 10**6, "mode": "conservative"},
        {**ASHA, "bracket_rungs": [1] * 10_001},
    ],
)
def test_a_search_of_a_billion_trials_at_once_is_refused(searcher):
    """They are made in one transaction: it held the only writer until the memory was full."""
    with pytest.raises(ConfigError, match=r"trials at a time|rungs or brackets"):
        judge(searcher)


def test_large_hyperparameters_of_many_trials_at_once_are_refused():
    config = {
        "entrypoint": "python3 train.py",
        "searcher": {**RANDOM, "max_trials": 10_000, "max_concurrent_trials": 0},
        "hyperparameters": {"table": {"type": "const", "val": "x" * 100_000}},
    }
    settings = Settings(state_dir=Path("/tmp"), bundles_dir=Path("/tmp"))
    with pytest.raises(
        ConfigError, match=r"10,000 trials at a time; at most 335 with hyperparameters of 100,\d+ bytes"
    ):
        prepare(CreateExperiment(config=config), settings, random.Random(1))
    config["searcher"] = {**RANDOM, "max_trials": 10_000, "max_concurrent_trials": 300}
    assert prepare(CreateExperiment(config=config), settings, random.Random(1)).config["searcher"]


@pytest.mark.parametrize(
    "searcher",
    [
        {**RANDOM, "max_trials": 10**9},
        {**RANDOM, "max_trials": 10_000, "max_concurrent_trials": 0},
        {**GRID, "max_concurrent_trials": 10_000},
        {**ASHA, "max_rungs": 10**6, "mode": "conservative"},
    ],
)
def test_a_long_search_of_a_few_at_a_time_is_taken(searcher):
    assert judge(searcher).config["searcher"]["name"] == searcher["name"]


@pytest.mark.parametrize(
    ("storage", "reached"),
    [
        ({"type": "shared_fs", "host_path": "/srv/ck"}, ["/srv/ck"]),
        ({"type": "shared_fs", "host_path": "/srv/ck", "storage_path": "mine"}, ["/srv/ck"]),
        ({"type": "shared_fs", "host_path": "/srv/ck/../../home/alice/open"}, []),
        ({"type": "directory", "container_path": "/home/alice/open"}, []),
        ({}, []),
    ],
)
def test_agents_open_closed_directories_for_the_operators_storage_only(storage, reached):
    default = {"type": "shared_fs", "host_path": "/srv/ck"}
    assert _operators_directories({"checkpoint_storage": storage}, default) == reached
