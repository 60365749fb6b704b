"""A search of many small trials, whose jobs are submitted together, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab import SlurmLab, slurm_lab
from spine_lab import until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(480)]

MINUTE = 60


@pytest.fixture(scope="module")
def place() -> Iterator[SlurmLab]:
    with slurm_lab("--slurm-array-size", "20") as made:
        yield made


def test_a_search_of_many_small_trials_is_submitted_as_arrays(place: SlurmLab) -> None:
    config = {
        "name": "toy",
        "entrypoint": "python3 toy.py",
        "runtime": "slurm",
        "hyperparameters": {"x": {"type": "double", "minval": 0.1, "maxval": 1.0}, "steps": 4, "pause": 0.1},
        "searcher": {"name": "random", "metric": "error", "max_trials": 10, "max_concurrent_trials": 10},
        "resources": {"resource_pool": "slurm", "slots_per_trial": 1},
        "max_restarts": 0,
    }
    made = place.lab.client.create_experiment(config, Path(__file__).parents[1] / "trials")
    trials = place.lab.completed(made, 4 * MINUTE).list_trials()
    assert [(trial.view.run, trial.view.restarts) for trial in trials] == [(1, 0)] * 10, place.agent.log[-3000:]
    assert all(place.lab.steps(trial) == [1, 2, 3, 4] for trial in trials), "no metric is lost or doubled"
    submitted = set(place.slurm.ask("squeue", "-h", "--states=all", "-o", "%F").split())
    assert len(submitted) <= 3, "as each becomes ready on its own, a few may come late"
    until("no job is left", lambda: not place.slurm.jobs(), MINUTE)
