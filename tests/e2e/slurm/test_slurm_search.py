"""The digits search, and what happens to its jobs, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from slurm_lab import SlurmLab, slurm_lab
from spine_lab import until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(480)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_trial"
MINUTE = 60


@pytest.fixture(scope="module")
def place() -> Iterator[SlurmLab]:
    with slurm_lab() as made:
        yield made


def config_of(name: str, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text(encoding="utf-8"))
    config |= {"runtime": "slurm", "environment": {"environment_variables": ["OMP_NUM_THREADS=1"]}}
    config["resources"] = {**(config.get("resources") or {}), "resource_pool": "slurm"}
    return config | more


def test_the_digits_search_runs_as_jobs_and_leaves_none(place: SlurmLab) -> None:
    config = config_of("search")
    config["hyperparameters"]["max_epochs"] = 4
    config["searcher"] |= {"max_time": 4, "max_trials": 4, "max_concurrent_trials": 3}
    made = place.lab.client.create_experiment(config, EXAMPLE)
    until("a job", place.slurm.jobs, MINUTE)
    trials = place.lab.completed(made, 4 * MINUTE).list_trials()
    assert {trial.view.state for trial in trials} <= {"COMPLETED", "STOPPED"}, trials
    assert {trial.view.restarts for trial in trials} == {0}
    assert {trial.view.agent_id for trial in trials} == {"batch"}
    assert all(trial.view.latest_validation for trial in trials)
    until("no job is left", lambda: not place.slurm.jobs(), MINUTE)
