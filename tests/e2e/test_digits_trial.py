"""examples/digits_trial on a real cluster: one trial, two processes, a search; and its best model on unseen images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab, until

from detlab.client.resources import Experiment, Trial

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_trial"
MINUTE = 60
EPOCHS = 6
LONG = 30  # long enough to be paused in the middle


def config_of(name: str) -> dict[str, Any]:
    """What a yaml of the example says, with fewer epochs and one thread per process."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text(encoding="utf-8"))
    config["hyperparameters"]["max_epochs"] = LONG if name == "const" else EPOCHS
    config["environment"] = {"environment_variables": ["OMP_NUM_THREADS=1"]}
    if name == "search":
        config["searcher"] |= {"max_time": EPOCHS, "max_trials": 4, "max_concurrent_trials": 2}
    return config


@dataclass
class Runs:
    """The experiments, submitted at once; `paused` is `const` once more."""

    lab: Lab
    experiments: dict[str, Experiment]

    def ended(self, name: str) -> tuple[Experiment, list[Trial]]:
        experiment = self.lab.completed(self.experiments[name], 2 * MINUTE)
        return experiment, experiment.list_trials()


@pytest.fixture(scope="module")
def runs(lab: Lab) -> Runs:
    files = {"paused": "const", "const": "const", "search": "search", "distributed": "distributed"}
    return Runs(lab, {name: lab.client.create_experiment(config_of(file), EXAMPLE) for name, file in files.items()})


def accuracy_on_unseen_images(checkpoint: Path, anywhere: Path) -> float:
    """Load the trial from its checkpoint alone, with a copy of the example's script in a folder of its own."""
    shutil.copy(EXAMPLE / "score.py", anywhere)
    done = subprocess.run(
        [sys.executable, "score.py", str(checkpoint)],
        cwd=anywhere,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=MINUTE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split("accuracy ")[1].split(",")[0])


def test_a_pause_changes_no_digit(runs: Runs) -> None:
    lab, experiment = runs.lab, runs.experiments["paused"]
    lab.at_step(lab.first_trial(experiment), 18, 2 * MINUTE)
    experiment.pause()
    until("the pause", lambda: not lab.slots_of(experiment), 2 * MINUTE)
    experiment.activate()
    _, (trial,) = runs.ended("paused")
    _, (calm,) = runs.ended("const")
    assert (trial.view.run, trial.view.restarts) == (2, 0)
    for name in ("loss", "accuracy"):
        assert curve(lab, trial, "validation", name) == curve(lab, calm, "validation", name)
    # A pause within an epoch reports what was trained of it; together, the two parts are the calm epoch's mean.
    paused, expected = curve(lab, trial, "training", "loss"), curve(lab, calm, "training", "loss")
    parts = sorted(set(paused) - set(expected))
    for step in parts:
        first, last = step // 18 * 18, (step // 18 + 1) * 18
        mean = (paused[step] * (step - first) + paused.pop(last) * (last - step)) / 18
        assert mean == pytest.approx(expected.pop(last), rel=1e-9)
        del paused[step]
    assert len(parts) <= 1
    assert paused == expected


def curve(lab: Lab, trial: Trial, group: str, name: str) -> dict[int, float]:
    """All that a trial reported, by step."""
    with lab.api() as api:
        query = {"group": group, "name": name, "max_points": 1000}
        (series,) = api.get(f"trials/{trial.id}/metrics", params=query).json()["items"]
    return dict(zip(series["steps"], series["values"], strict=True))


def test_one_trial_reports_each_epoch_and_its_best_model_is_good(runs: Runs, tmp_path: Path) -> None:
    experiment, (trial,) = runs.ended("const")
    steps = [18 * epoch for epoch in range(1, LONG + 1)]  # 1150 images in batches of 64
    assert runs.lab.steps(trial) == steps
    assert runs.lab.steps(trial, "validation", "accuracy") == steps
    folder = experiment.top_checkpoint().download(tmp_path / "best")
    assert (folder / "model_0.safetensors").exists()
    assert not [path.name for path in folder.rglob("*") if path.suffix in {".pt", ".pth", ".pkl"}]
    assert accuracy_on_unseen_images(folder, tmp_path) >= 0.97


def test_two_processes_share_each_batch_and_learn_as_well(runs: Runs, tmp_path: Path) -> None:
    experiment, (trial,) = runs.ended("distributed")
    assert experiment.view.best is not None
    assert experiment.view.best.value >= 0.96
    # 36 batches of 32 an epoch, for two ranks: as many steps as one process takes.
    assert runs.lab.steps(trial)[-1] == 18 * EPOCHS
    best = experiment.top_checkpoint()
    assert accuracy_on_unseen_images(best.download(tmp_path / "best"), tmp_path) >= 0.97


def test_the_search_finds_a_good_model(runs: Runs, tmp_path: Path) -> None:
    experiment, trials = runs.ended("search")
    assert len(trials) == 4
    assert max(trial.view.steps_completed for trial in trials) >= EPOCHS * 18
    best = experiment.top_checkpoint()
    assert accuracy_on_unseen_images(best.download(tmp_path / "best"), tmp_path) >= 0.97


def local_environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    return {**kept, "HOME": str(home), "XDG_DATA_HOME": str(home), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param((), id="one"),
        pytest.param(
            ("-m", "detlab.launch.torch_distributed", "--nproc_per_node=2", "--"), id="two", marks=pytest.mark.soak
        ),
    ],
)
def test_it_runs_off_cluster_too(launch: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *launch, "train.py"],
        cwd=EXAMPLE,
        env=local_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=2 * MINUTE,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    found = re.findall(r"'accuracy': ([0-9.]+)", said)
    assert len(found) == 16
    assert float(found[-1]) >= 0.97
