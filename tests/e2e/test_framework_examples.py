"""The searches of examples/frameworks on a cluster, with the frameworks: rungs stop trials, the best is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab

from detlab.client.resources import Experiment
from detlab.schemas.wire import EndReason

pytestmark = [pytest.mark.hub, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
EXAMPLES = ROOT / "examples" / "frameworks"
DOORS = {"transformers": "eval_accuracy", "lightning": "val_accuracy", "keras": "accuracy"}
EPOCHS = 4
STEPS = 18 * EPOCHS


@pytest.fixture(scope="module")
def searches(lab: Lab) -> dict[str, Experiment]:
    """All of them, submitted at once."""
    if not PYTHON.exists():
        assert "CI" not in os.environ, "make setup-test makes .venv-frameworks"
        pytest.skip("no .venv-frameworks: make setup-test")
    return {door: lab.client.create_experiment(config_of(door), EXAMPLES) for door in DOORS}


def config_of(door: str) -> dict[str, Any]:
    """What a search's yaml says, run by the Python that has the frameworks."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{door}.yaml").read_text(encoding="utf-8"))
    assert found["entrypoint"] == f"python3 {door}_digits.py"
    variables = [f"PYTHONPATH={ROOT / 'harness'}", "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1", "STEP_SECONDS=0.03"]
    return {**found, "entrypoint": ["env", *variables, str(PYTHON), f"{door}_digits.py"]}


@pytest.mark.parametrize("door", DOORS)
def test_a_search_stops_trials_at_rungs_and_stores_the_best(
    door: str, lab: Lab, searches: dict[str, Experiment]
) -> None:
    experiment = lab.completed(searches[door], 500)
    trials = experiment.list_trials()
    assert len(trials) == 4
    assert {trial.view.restarts for trial in trials} == {0}
    through = [trial for trial in trials if trial.view.steps_completed == STEPS]
    stopped = [trial for trial in trials if trial not in through]
    assert through
    assert stopped
    assert {trial.view.end_reason for trial in stopped} == {EndReason.STOPPED}
    assert all(trial.list_checkpoints() for trial in trials)
    for trial in through:
        assert lab.steps(trial, "validation", DOORS[door]) == [18, 36, 54, 72]
        assert list(lab.curve(trial, "validation", "epochs").values()) == [1, 2, 3, 4]
    assert experiment.view.best is not None
    assert experiment.top_checkpoint().view.trial_id in {trial.id for trial in trials}
