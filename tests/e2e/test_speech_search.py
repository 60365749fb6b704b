"""examples/speech_search on a real cluster: a small search, and its best model on utterances that no trial saw."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab

from detlab.schemas.expconf import errors_of
from detlab.schemas.expconf.checks.check import check_yaml

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "speech_search"
MINUTE = 60
EPOCHS = 9
TRIALS = 9


def small_search() -> dict[str, Any]:
    """The example's search with fewer and shorter trials, at one thread per process."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / "search.yaml").read_text(encoding="utf-8"))
    config["hyperparameters"]["max_epochs"] = EPOCHS
    config["environment"] = {"environment_variables": ["OMP_NUM_THREADS=1"]}
    config["searcher"] |= {"max_time": EPOCHS, "max_trials": TRIALS, "max_concurrent_trials": 2}
    return config


@pytest.mark.soak
def test_the_search_stops_trials_and_its_best_model_knows_the_speakers(lab: Lab, tmp_path: Path) -> None:
    experiment = lab.completed(lab.client.create_experiment(small_search(), EXAMPLE), 4 * MINUTE)
    trials = experiment.list_trials()
    assert len(trials) == TRIALS
    steps = [trial.view.steps_completed for trial in trials]
    assert min(steps) < max(steps), "no trial was stopped early"
    folder = experiment.top_checkpoint().download(tmp_path / "best")
    for name in ("score.py", "vowels.npz"):
        shutil.copy(EXAMPLE / name, tmp_path)
    done = subprocess.run(
        [sys.executable, "score.py", str(folder)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=MINUTE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("accuracy ")[1].split(",")[0]) >= 0.8


@pytest.mark.parametrize("name", ["const", "search"])
def test_the_configs_are_complete(name: str) -> None:
    _, problems = check_yaml((EXAMPLE / f"{name}.yaml").read_text(encoding="utf-8"), name, complete=True)
    assert errors_of(problems) == []
