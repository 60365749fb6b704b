"""Faults of a `PyTorchTrial` on a real cluster: named, restarted, and in the end as if nothing had happened."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from spine_lab import Lab, single, until

from detlab.client.resources import Experiment, Trial

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

TORCHRUN = ["python3", "-m", "detlab.launch.torch_distributed", "trained.py"]
PAIR = {"entrypoint": TORCHRUN, "resources": {"slots_per_trial": 2}}


def configs() -> dict[str, dict[str, Any]]:
    def one(hparams: dict[str, Any], **more: Any) -> dict[str, Any]:
        return single("trained.py", max_restarts=2, hparams={"x": 0, **hparams}, **more)

    return {
        "altered": one({"pace": 0.1}),
        "hung": one({"fault": "hang", "at": 30, "rank": 1}, **PAIR),
        "calm": one({}),
        "killed": one({"fault": "kill", "at": 30}),
        "killed pair": one({"fault": "kill", "at": 30, "rank": 1}, **PAIR),
        "calm pair": one({}, **PAIR),
    }


@dataclass
class Faults:
    """All of them, submitted at once: importing torch is most of their time."""

    lab: Lab
    experiments: dict[str, Experiment]

    def trial(self, name: str) -> Trial:
        (trial,) = self.lab.completed(self.experiments[name], 150).list_trials()
        return self.lab.trial(trial)

    def curve(self, name: str, group: str, metric: str) -> dict[int, float]:
        """Every point of a curve, by step."""
        with self.lab.api() as api:
            query = {"group": group, "name": metric, "max_points": 1000}
            (series,) = api.get(f"trials/{self.trial(name).id}/metrics", params=query).json()["items"]
        assert series["total"] == len(set(series["steps"]))
        return dict(zip(series["steps"], series["values"], strict=True))


def resumed_once(trial: Trial) -> bool:
    """Whether a trial went on from a checkpoint once. A restart from batch 0 would lead to the same curves."""
    lines = [line.text for line in trial.logs(search="resumed from checkpoint")]
    at = {int(found[1]) for line in lines if (found := re.search(r"resumed from checkpoint \S+ at batch (\d+)", line))}
    return len(at) == 1 and at <= {14, 21, 28}


@pytest.fixture(scope="module")
def faults(lab: Lab) -> Faults:
    return Faults(lab, {name: lab.submit(config) for name, config in configs().items()})


@pytest.mark.soak
def test_altered_files_an_earlier_checkpoint_serves_and_no_point_is_lost(faults: Faults) -> None:
    lab, experiment = faults.lab, faults.experiments["altered"]
    lab.at_step(lab.first_trial(experiment), 30, 120)
    experiment.pause()
    until("the pause", lambda: not lab.slots_of(experiment), 60)
    newest = max(experiment.list_checkpoints(), key=lambda found: found.view.steps_completed)
    file = lab.cluster.folder / "checkpoints" / newest.uuid / "model_0.safetensors"
    file.chmod(0o644)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    experiment.activate()
    trial = faults.trial("altered")
    assert trial.view.restarts == 0
    said = [line.text for line in trial.logs(search="cannot be used")]
    assert any(newest.uuid in line and "model_0.safetensors" in line for line in said)
    assert faults.curve("altered", "training", "loss") == faults.curve("calm", "training", "loss")


def test_a_killed_trial_restarts_and_every_loss_is_the_calm_ones(faults: Faults) -> None:
    trial = faults.trial("killed")
    assert (trial.view.restarts, trial.view.steps_completed) == (1, 60)
    assert resumed_once(trial)
    losses = faults.curve("killed", "training", "loss")
    assert sorted(losses) == list(range(1, 61))
    assert losses == faults.curve("calm", "training", "loss")
    assert faults.curve("killed", "validation", "error") == faults.curve("calm", "validation", "error")


@pytest.mark.soak
def test_a_rank_that_hangs_is_named_and_the_trial_restarts(faults: Faults) -> None:
    trial = faults.trial("hung")
    assert (trial.view.restarts, trial.view.steps_completed) == (1, 60)
    assert resumed_once(trial)
    said = [line.text for line in trial.logs(search="hangs")]
    assert any("rank 1" in line and "train_batch, at batch 30" in line for line in said), said
    assert faults.curve("hung", "training", "loss") == faults.curve("calm pair", "training", "loss")


def test_a_rank_that_is_killed_is_named_and_the_trial_goes_on_from_its_checkpoint(faults: Faults) -> None:
    trial = faults.trial("killed pair")
    assert (trial.view.restarts, trial.view.steps_completed) == (1, 60)
    assert resumed_once(trial)
    said = [line.text for line in trial.logs()]
    assert any("rank 1" in line or re.search(r"rank\s*:\s*1\b", line) for line in said), said
    for group, metric in (("training", "loss"), ("validation", "error")):
        assert faults.curve("killed pair", group, metric) == faults.curve("calm pair", group, metric)
