"""kill -9 of the master while searches pause, promote and clone trials: they decide as in a calm run."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from spine_lab import Lab, lab_of, until

from detlab.client.resources import Experiment
from detlab.errors import DetlabError
from testbed.cluster import running_cluster

pytestmark = [pytest.mark.hub, pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(900)]

BETWEEN = 3.0
"""Seconds from the answer of one master to its end."""
COMMON = {"metric": "error", "smaller_is_better": True, "time_metric": "step"}
RUNGS = {"max_time": 8, "divisor": 2, "max_trials": 6, "max_concurrent_trials": 1}
SEARCHES: dict[str, dict[str, Any]] = {
    "asha": {"name": "asha", **COMMON, **RUNGS, "num_rungs": 3},
    "bohb": {"name": "bohb", **COMMON, **RUNGS},
    "pbt": {
        "name": "pbt",
        **COMMON,
        "population_size": 4,
        "num_rounds": 3,
        "length_per_round": 3,
        "replace_function": {"truncate_fraction": 0.25},
        "explore_function": {"resample_probability": 0.2, "perturb_factor": 0.2},
    },
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A cluster of one slot: so the order of reports, and with it every decision, follows from the seed."""
    with running_cluster(tmp_path, slots=1) as cluster, lab_of(cluster) as lab:
        yield lab


@pytest.mark.parametrize("method", SEARCHES)
def test_a_search_whose_master_is_killed_again_and_again_decides_as_in_a_calm_run(lab: Lab, method: str) -> None:
    stormy = lab.submit(config(method, 0.4))
    killed = 0
    while not is_over(stormy):
        time.sleep(BETWEEN)  # the storm's rhythm, not a wait for anything
        pid = lab.cluster.pid("master")
        with suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                killed += 1
    ended = lab.completed(stormy, 120)
    calm = lab.completed(lab.submit(config(method, 0.02)), 240)
    assert killed >= 3, "the search was over before the storm"
    assert decisions(lab, ended) == decisions(lab, calm)
    assert outcome(ended) == outcome(calm)


def config(method: str, pause: float) -> dict[str, Any]:
    """A search whose trials train for up to `max_time` steps, and save after each."""
    return {
        "name": method,
        "entrypoint": ["python3", "toy.py"],
        "searcher": SEARCHES[method],
        "hyperparameters": {
            "x": {"type": "double", "minval": 0.1, "maxval": 1.0},
            "steps": 400,
            "pause": pause,
            "save_every": 1,
        },
        "max_restarts": 100,
        "reproducibility": {"experiment_seed": 11},
    }


def decisions(lab: Lab, experiment: Experiment) -> list[Any]:
    """What the search decided, in order; but for how fast it was to go, and the names of checkpoints."""
    query = "SELECT decisions FROM searcher_journal WHERE experiment_id = ? ORDER BY seq"
    decided = [decision for row in lab.rows(query, experiment.id) for decision in json.loads(row["decisions"])]
    for decision in decided:
        decision.get("hparams", {}).pop("pause", None)
        if "parent" in decision:
            decision["parent"] = "a checkpoint"
    return decided


def outcome(experiment: Experiment) -> list[tuple[Any, ...]]:
    """How a search went, trial by trial."""
    return [
        (
            trial.view.index,
            trial.view.request_id,
            trial.hparams["x"],
            trial.view.seed,
            trial.state,
            trial.view.end_reason,
        )
        for trial in experiment.list_trials()
    ]


def is_over(experiment: Experiment) -> bool:
    """Whether a search has ended; asked until the cluster answers."""

    def look() -> Experiment | None:
        try:
            return experiment.reload()
        except DetlabError:
            return None

    return until("an answer", look, 90).state.terminal
