"""A ported script, one file: as one trial, paused, on two processes, in a search, and off the cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from spine_lab import TRIALS, Lab, single, until

from detlab.client.resources import Experiment, Trial

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

SCRIPT = "ported_trial.py"
TORCHRUN = ["python3", "-m", "detlab.launch.torch_distributed"]
EPOCHS, BATCHES = 5, 5 * 1280 // 32
MINUTE = 60


def ported(*command: str, **more: Any) -> dict[str, Any]:
    """A config of the script, with hyperparameters that are no choice."""
    hparams = {"x": 0, "lr": 0.1, "width": 24, **more.pop("hparams", {})}
    config = single(SCRIPT, hparams=hparams, **{"entrypoint": list(command), **more})
    config["searcher"] = {"name": "single", "metric": "loss", "smaller_is_better": True} | more.get("searcher", {})
    return config


def configs() -> dict[str, dict[str, Any]]:
    """Every way to run it; the first three have the same seed and the same hyperparameters."""
    plain = ("python3", SCRIPT, "--epochs", str(EPOCHS))
    choice = {
        "lr": {"type": "log", "base": 10, "minval": -3, "maxval": 0},
        "width": {"type": "int", "minval": 8, "maxval": 32},
    }
    legacy = {
        "entrypoint": "legacy_trial:LegacyTrial",
        "searcher": {"max_length": {"epochs": EPOCHS}},
        "min_validation_period": {"epochs": 1},
        "profiling": {"enabled": True},
    }
    best = {"name": "random", "max_trials": 2, "metric": "accuracy", "smaller_is_better": False}
    return {
        "paused": ported("python3", SCRIPT, "--batches", str(BATCHES), "--pace", "0.04"),
        "calm": ported(*plain),
        "pair": ported(*TORCHRUN, *plain, resources={"slots_per_trial": 2}),
        "legacy": ported(**legacy),
        "search": ported(*plain, hparams=choice, searcher=best),
    }


@dataclass
class Ported:
    """All of them, submitted at once: importing torch is most of their time."""

    lab: Lab
    experiments: dict[str, Experiment]

    def ended(self, name: str) -> tuple[Experiment, list[Trial]]:
        """An experiment, completed, and its trials."""
        experiment = self.lab.completed(self.experiments[name], 2 * MINUTE)
        return experiment, experiment.list_trials()

    def curve(self, trial: Trial, group: str, name: str) -> list[tuple[int, float]]:
        """(step, value) of every report."""
        with self.lab.api() as api:
            query = {"group": group, "name": name, "max_points": 1000}
            (series,) = api.get(f"trials/{trial.id}/metrics", params=query).json()["items"]
        return list(zip(series["steps"], series["values"], strict=True))


@pytest.fixture(scope="module")
def runs(lab: Lab) -> Ported:
    return Ported(lab, {name: lab.submit(config) for name, config in configs().items()})


@pytest.mark.soak
def test_a_pause_in_the_middle_of_fit_goes_on_from_its_checkpoint(runs: Ported) -> None:
    lab, experiment = runs.lab, runs.experiments["paused"]
    lab.at_step(lab.first_trial(experiment), 100, 2 * MINUTE)
    experiment.pause()
    until("the pause", lambda: not lab.slots_of(experiment), MINUTE)
    (checkpoint,) = experiment.list_checkpoints()
    assert 100 <= checkpoint.view.steps_completed < BATCHES
    experiment.activate()
    _, (trial,) = runs.ended("paused")
    assert (trial.view.run, trial.view.restarts, trial.view.steps_completed) == (2, 0, BATCHES)
    assert runs.curve(trial, "validation", "ran")[-1] == (BATCHES, BATCHES - checkpoint.view.steps_completed)


def test_one_trial_learns_and_reports_what_fit_reports(runs: Ported) -> None:
    experiment, (trial,) = runs.ended("calm")
    assert [step for step, _ in runs.curve(trial, "training", "loss")] == [100, 200]
    for name, last in (("batches", BATCHES), ("epochs", EPOCHS), ("seen", BATCHES - 1)):
        assert runs.curve(trial, "validation", name) == [(BATCHES, last)]
    ((_, accuracy),) = runs.curve(trial, "validation", "accuracy")
    assert accuracy > 0.8
    (checkpoint,) = experiment.list_checkpoints()
    assert (checkpoint.view.steps_completed, checkpoint.view.trial_id) == (BATCHES, trial.id)
    (said,) = trial.logs(search="process 0 of 1")
    assert re.fullmatch(r"INFO: \[\d+\] root: process 0 of 1", said.text)


@pytest.mark.parametrize("name", ["paused", "pair"])
def test_an_interrupted_trial_and_two_processes_learn_what_one_learns(runs: Ported, name: str) -> None:
    _, (calm,) = runs.ended("calm")
    _, (other,) = runs.ended(name)
    for metric in ("loss", "accuracy"):
        expected, found = runs.curve(calm, "validation", metric), runs.curve(other, "validation", metric)
        assert [step for step, _ in found] == [step for step, _ in expected] == [BATCHES]
        assert found[0][1] == pytest.approx(expected[0][1], rel=1e-9)


def test_an_entrypoint_of_the_form_module_class_trains_as_the_config_says(runs: Ported) -> None:
    """Determined's old form, which its docs call deprecated and which it still launches."""
    _, (calm,) = runs.ended("calm")
    experiment, (trial,) = runs.ended("legacy")
    assert experiment.config is not None
    assert experiment.config["entrypoint"] == "legacy_trial:LegacyTrial"
    by_epoch = [step for step, _ in runs.curve(trial, "validation", "loss")]
    assert by_epoch == [BATCHES // EPOCHS * epoch for epoch in range(1, EPOCHS + 1)]
    for metric in ("loss", "accuracy"):
        assert runs.curve(trial, "validation", metric)[-1] == runs.curve(calm, "validation", metric)[-1]


def test_a_profiled_trial_has_series_of_the_node_on_the_master(runs: Ported) -> None:
    _, (trial,) = runs.ended("legacy")
    named = {"cpu": "cpu_util_simple", "memory": "memory_used", "disk": "disk_iops", "network": "net_throughput_recv"}
    for group, name in named.items():
        reports = list(trial.iter_metrics(group))
        assert reports, group
        assert all(report.metrics[name] >= 0 for report in reports)
        assert all(0 <= report.steps_completed <= BATCHES for report in reports)
        assert runs.curve(trial, group, name) == [(one.steps_completed, one.metrics[name]) for one in reports]
    assert all(report.metrics["cpu_util_simple"] <= 100 for report in trial.iter_metrics("cpu"))
    assert all(report.metrics["memory_used"] > 2**20 for report in trial.iter_metrics("memory"))
    _, (calm,) = runs.ended("calm")
    assert not list(calm.iter_metrics("cpu"))


def test_every_process_of_a_pair_says_its_rank(runs: Ported) -> None:
    _, (trial,) = runs.ended("pair")
    said = {(line.rank, line.text.rpartition(": ")[2]) for line in trial.logs(search="process ")}
    assert said == {(0, "process 0 of 2"), (1, "process 1 of 2")}


def test_a_random_search_names_its_best_trial(runs: Ported) -> None:
    experiment, trials = runs.ended("search")
    assert len({trial.hparams["lr"] for trial in trials}) == 2
    reached = {trial.id: runs.curve(trial, "validation", "accuracy")[-1][1] for trial in trials}
    assert experiment.view.best is not None
    assert experiment.view.best.value == max(reached.values())
    assert experiment.top_checkpoint().view.trial_id == max(reached, key=lambda trial: reached[trial])


@pytest.mark.soak
@pytest.mark.parametrize("launcher", [[], [*TORCHRUN[1:], "--nproc_per_node=2", "--"]])
def test_the_same_file_runs_off_cluster(launcher: list[str], tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    processes = 2 if launcher else 1
    done = subprocess.run(
        [sys.executable, *launcher, *([sys.executable] if launcher else []), str(TRIALS / SCRIPT), "--batches", "40"],
        cwd=tmp_path,
        env={**kept, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=MINUTE,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert all(f"process {rank} of {processes}" in said for rank in range(processes))
    assert "accuracy" in said
