"""A segment of a governed trial is trained anew from the checkpoint before it: its weights are the recorded ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainer_course_governed import POLICY, Governed, points
from test_trainer_governed_evidence import chain_of, fit
from torch import nn
from trainer_one_weight import train
from trainer_task import TrialTask

from detlab.governance import combine
from detlab.governance.replaying import ReplayVerdict, judge
from detlab.pytorch import Batch

CANARIES = {**POLICY, "canaries": {"sources": "web", "count": 4, "budget": 0.5}}


class WithDropout(Governed):
    """Draws random numbers, and changes its learning rate after each validation."""

    def network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 2))

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.optimizer.param_groups[0]["lr"] *= 0.9
        return super().evaluate_batch(batch, batch_idx)


PLAN: dict[str, Any] = {"checkpoint_period": Batch(4), "validation_period": Batch(3)}


@pytest.fixture
def trained(in_trial: TrialTask) -> TrialTask:
    """A trial of ten batches, with checkpoints after 4, 8 and 10."""
    in_trial.set_config(governance=POLICY)
    train(None, WithDropout, fit=fit(10, **PLAN))
    return in_trial


def replayed(
    task: TrialTask, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int, trial: Any = WithDropout, **options: Any
) -> tuple[ReplayVerdict, Path]:
    """Train the segment number `at` anew in this process; return what came out, and where the new checkpoint is."""
    uuid, step, segment = chain_of(str(task.checkpoints))[at]
    (folder / "spool").mkdir(parents=True)
    storage = folder / "checkpoints"
    storage.mkdir()
    if segment.parent is not None:
        shutil.copytree(task.checkpoints / segment.parent, storage / segment.parent)
    secret = json.loads((task.checkpoints / uuid / "trainer.json").read_text())["tree"]["trial_state"]["canaries"]
    told = {"storage": str(storage), "until": step, "canaries": secret}
    info = {**json.loads((task.root / "info.json").read_text()), "latest_checkpoint": segment.parent, "replay": told}
    (folder / "info.json").write_text(json.dumps(info))
    monkeypatch.setenv("DET_TASK_DIR", str(folder))
    made = train(None, trial, fit=fit(10, **PLAN), **options)
    (new,) = [path.parent for path in storage.glob("*/manifest.json") if path.parent.name != segment.parent]
    manifest = json.loads((new / "manifest.json").read_text())
    assert manifest["metadata"]["steps_completed"] == step
    names = [one.name for one in made.context._governed.plan.parameters]
    now = manifest["metadata"]["governance"]
    return judge(task.checkpoints / uuid, new, names, segment.model_dump(mode="json"), now), new


@pytest.mark.parametrize("at", [0, 1, 2])
def test_each_segment_is_bit_equal_when_it_is_trained_anew_and_nobody_is_told(trained, tmp_path, monkeypatch, at):
    told = len(trained.records()), set(trained.api.checkpoints)
    verdict, _ = replayed(trained, tmp_path / "again", monkeypatch, at)
    assert (verdict.equal, verdict.tensors, verdict.causes) == (True, 4, [])
    assert (len(trained.records()), set(trained.api.checkpoints)) == told


class OtherLoss(WithDropout):
    def losses(self, batch: Any) -> torch.Tensor:
        return super().losses(batch) * 1.001


def test_other_code_is_found_by_the_first_parameter_that_differs(trained, tmp_path, monkeypatch):
    verdict, _ = replayed(trained, tmp_path / "again", monkeypatch, 1, OtherLoss)
    assert not verdict.equal
    assert verdict.differing == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert "0.weight is not bit-equal: the largest difference in it is" in verdict.how
    assert verdict.facts == []
    assert "draws random numbers of its own" in verdict.causes[0]


def test_other_data_is_named_as_the_cause(trained, tmp_path, monkeypatch):
    def swapped() -> Any:
        return combine({"web": points(9, 1), "trusted": points(14, 0)})

    verdict, _ = replayed(trained, tmp_path / "again", monkeypatch, 0, data=swapped)
    assert not verdict.equal
    assert "the data set has other samples, or other sources of them" in verdict.causes


def test_the_first_segment_has_the_canaries_that_the_trial_had(in_trial, tmp_path, monkeypatch):
    in_trial.set_config(governance=CANARIES)
    train(None, WithDropout, fit=fit(10, **PLAN))
    verdict, _ = replayed(in_trial, tmp_path / "again", monkeypatch, 0)
    assert verdict.equal


def test_a_segment_says_on_what_it_was_computed(trained):
    (_, _, segment), *_ = chain_of(str(trained.checkpoints))
    assert set(segment.versions) == {"torch", "detlab", "threads", "processor"}
    assert segment.versions["threads"] == str(torch.get_num_threads())
