"""The five stages of examples/core_api: on the cluster as their yaml says, and off it as plain scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab, asha, until

from detlab.client.resources import Experiment, Trial
from detlab.schemas.wire import EndReason

pytestmark = [pytest.mark.hub, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "core_api"
STAGES = ("0_start", "1_metrics", "2_checkpoints", "3_search", "4_distributed")
MINUTE = 60


@dataclass
class Stages:
    """All five, submitted at once: they share the cluster's slots and the time it takes."""

    lab: Lab
    experiments: dict[str, Experiment]

    def ended(self, stage: str) -> tuple[Experiment, list[Trial]]:
        """A stage's experiment, completed, and its trials."""
        experiment = self.lab.completed(self.experiments[stage], 2 * MINUTE)
        return experiment, experiment.list_trials()


def config_of(stage: str) -> dict[str, Any]:
    """What a stage's yaml says."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{stage}.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def stages(lab: Lab) -> Stages:
    configs = {stage: config_of(stage) for stage in STAGES}
    # Long enough epochs to be interrupted in the middle, as the README tells people to do.
    configs["2_checkpoints"]["environment"] = {"environment_variables": ["EPOCH_SECONDS=0.1"]}
    order = ("2_checkpoints", *(stage for stage in STAGES if stage != "2_checkpoints"))
    return Stages(lab, {stage: lab.client.create_experiment(configs[stage], EXAMPLES) for stage in order})


@pytest.mark.soak
def test_2_a_pause_in_the_middle_costs_no_epoch_and_repeats_none(stages: Stages) -> None:
    lab, experiment = stages.lab, stages.experiments["2_checkpoints"]
    lab.at_step(lab.first_trial(experiment), 3, MINUTE)
    experiment.pause()
    until("the pause", lambda: not lab.slots_of(experiment), MINUTE)
    stopped = lab.first_trial(experiment).view.steps_completed
    assert 3 <= stopped < 40
    experiment.activate()
    _, (trial,) = stages.ended("2_checkpoints")
    assert (trial.view.run, trial.view.restarts, trial.view.steps_completed) == (2, 0, 40)
    assert lab.steps(trial) == list(range(1, 41))
    (resumed,) = trial.logs(search="going on after")
    assert resumed.text.endswith(f"going on after epoch {stopped}")


def test_0_a_plain_script_completes_with_a_warning_that_it_reported_nothing(stages: Stages) -> None:
    experiment, (trial,) = stages.ended("0_start")
    assert "accuracy on unseen tumours" in trial.logs(tail=1)[0].text
    assert any("never reported 'loss'" in warning for warning in experiment.view.warnings)


def test_1_reports_become_curves(stages: Stages) -> None:
    experiment, (trial,) = stages.ended("1_metrics")
    assert stages.lab.steps(trial) == list(range(1, 41))
    assert stages.lab.steps(trial, "validation", "accuracy") == [10, 20, 30, 40]
    assert experiment.view.best is not None
    assert experiment.view.best.value == pytest.approx(0.0844494864623)


def test_3_the_search_stops_trials_early_and_its_best_model_is_good(stages: Stages, tmp_path: Path) -> None:
    experiment, trials = stages.ended("3_search")
    assert len(trials) == 8
    stopped = [trial for trial in trials if trial.view.end_reason is EndReason.STOPPED]
    assert stopped
    assert all(trial.view.steps_completed < 40 for trial in stopped)
    folder = experiment.top_checkpoint().download(tmp_path / "best")
    score = "import sys, pathlib, tumours as t; c = t.Classifier(); c.restore(pathlib.Path(sys.argv[1])); "
    score += "print(c.accuracy(t.load()[1]))"
    done = subprocess.run(
        [sys.executable, "-c", score, str(Path(folder) / "weights.txt")],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=2 * MINUTE,
        check=True,
    )
    assert float(done.stdout) >= 0.96


def test_4_two_processes_learn_what_one_learns(stages: Stages) -> None:
    experiment, (trial,) = stages.ended("4_distributed")
    assert {line.rank for line in trial.logs(search="of 2 starts")} == {0, 1}
    assert experiment.view.best is not None
    assert experiment.view.best.value == pytest.approx(0.0844494864623)
    files = experiment.top_checkpoint().view.files
    assert {"weights.txt", "rows-0.txt", "rows-1.txt"} <= set(files)
    with stages.lab.api() as api:
        query = {"group": "validation", "name": "rows", "max_points": 100}
        (series,) = api.get(f"trials/{trial.id}/metrics", params=query).json()["items"]
    assert series["values"][-1] == 40 * 427


def test_loops_over_operations_of_several_trials_make_a_search(lab: Lab) -> None:
    """Determined's adaptive tutorial: each trial iterates over the searcher's operations, and most are stopped."""
    config = asha("operations.py", 6, 8, rungs=3)
    config["searcher"] = {**config["searcher"], "time_metric": "epochs"}
    experiment = lab.completed(lab.submit(config), 2 * MINUTE)
    trials = experiment.list_trials()
    assert len(trials) == 6
    for trial in trials:
        assert [line.text for line in trial.logs(search="operation of length")] == ["operation of length 8"]
        assert trial.view.restarts == 0
    through = [trial for trial in trials if trial.view.steps_completed == 80]
    assert 1 <= len(through) < len(trials)
    assert {trial.view.end_reason for trial in trials if trial not in through} == {EndReason.STOPPED}
    best = min(through, key=lambda trial: trial.hparams["x"])
    assert experiment.view.best is not None
    assert experiment.view.best.value == pytest.approx(best.hparams["x"] + 1 / 8)
    assert experiment.top_checkpoint().view.trial_id == best.id


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_runs_off_cluster_too(stage: str, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    done = subprocess.run(
        [sys.executable, f"{stage}.py"],
        cwd=EXAMPLES,
        env={**kept, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "EPOCH_SECONDS": "0"},
        capture_output=True,
        text=True,
        timeout=2 * MINUTE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0.0844" in done.stdout + done.stderr


@pytest.mark.soak
def test_stage_4_runs_off_cluster_with_two_processes(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    command = [sys.executable, "-m", "detlab.launch.torch_distributed", "--nproc_per_node=2", "--", "4_distributed.py"]
    env = {**kept, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "EPOCH_SECONDS": "0"}
    done = subprocess.run(
        command, cwd=EXAMPLES, env=env, capture_output=True, text=True, timeout=2 * MINUTE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "[rank=1]" in done.stdout + done.stderr
    assert "'loss': 0.08444" in done.stdout + done.stderr
