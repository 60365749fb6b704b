"""Segments of a governed trial are trained anew from a checkpoint before: the weights are the recorded ones."""

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
    task: TrialTask,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    last: int | None = None,
    trial: Any = WithDropout,
    **options: Any,
) -> ReplayVerdict:
    """Train the segments from number `first` to `last` anew in this process; return what came out."""
    chain = chain_of(str(task.checkpoints))[first : (first if last is None else last) + 1]
    parent, stops = chain[0][2].parent, [step for _, step, _ in chain]
    (folder / "spool").mkdir(parents=True)
    storage = folder / "checkpoints"
    storage.mkdir()
    if parent is not None:
        shutil.copytree(task.checkpoints / parent, storage / parent)
    recorded = task.checkpoints / chain[-1][0]
    secret = json.loads((recorded / "trainer.json").read_text())["tree"]["trial_state"]["canaries"]
    told = {"storage": str(storage), "stops": stops, "canaries": secret}
    info = {**json.loads((task.root / "info.json").read_text()), "latest_checkpoint": parent, "replay": told}
    (folder / "info.json").write_text(json.dumps(info))
    monkeypatch.setenv("DET_TASK_DIR", str(folder))
    made = train(None, trial, fit=fit(10, **PLAN), **options)
    new = {step: path for path, step in saved(storage) if path.name != parent}
    assert sorted(new) == stops
    names = [one.name for one in made.context._governed.plan.parameters]
    now = [segment_in(new[step]) for step in stops]
    was = [{**segment.model_dump(mode="json"), "step": step} for _, step, segment in chain]
    return judge(recorded, new[stops[-1]], names, was, now)


def saved(storage: Path) -> list[tuple[Path, int]]:
    found = [path.parent for path in storage.glob("*/manifest.json")]
    return [(one, json.loads((one / "manifest.json").read_text())["metadata"]["steps_completed"]) for one in found]


def segment_in(checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkpoint / "manifest.json").read_text())["metadata"]["governance"]
    return found


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1), (2, 2), (0, 2)])
def test_segments_that_are_trained_anew_are_bit_equal_and_nobody_is_told(trained, tmp_path, monkeypatch, first, last):
    told = len(trained.records()), set(trained.api.checkpoints)
    verdict = replayed(trained, tmp_path / "again", monkeypatch, first, last)
    assert (verdict.equal, verdict.tensors, verdict.causes) == (True, 4, [])
    assert (len(trained.records()), set(trained.api.checkpoints)) == told


class OtherLoss(WithDropout):
    def losses(self, batch: Any) -> torch.Tensor:
        return super().losses(batch) * 1.001


def test_other_code_is_found_by_the_first_parameter_that_differs(trained, tmp_path, monkeypatch):
    verdict = replayed(trained, tmp_path / "again", monkeypatch, 1, trial=OtherLoss)
    assert not verdict.equal
    assert verdict.differing == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert "0.weight is not bit-equal: the largest difference in it is" in verdict.how
    assert verdict.facts == []
    assert "draws random numbers of its own" in verdict.causes[0]


def test_other_data_is_named_as_the_cause(trained, tmp_path, monkeypatch):
    def swapped() -> Any:
        return combine({"web": points(9, 1), "trusted": points(14, 0)})

    verdict = replayed(trained, tmp_path / "again", monkeypatch, 0, data=swapped)
    assert not verdict.equal
    assert "the data set has other samples, or other sources of them" in verdict.causes


def test_the_first_segment_has_the_canaries_that_the_trial_had(in_trial, tmp_path, monkeypatch):
    in_trial.set_config(governance=CANARIES)
    train(None, WithDropout, fit=fit(10, **PLAN))
    verdict = replayed(in_trial, tmp_path / "again", monkeypatch, 0)
    assert verdict.equal


def test_a_segment_says_on_what_it_was_computed(trained):
    (_, _, segment), *_ = chain_of(str(trained.checkpoints))
    assert set(segment.versions) == {"torch", "detlab", "threads", "processor"}
    assert segment.versions["threads"] == str(torch.get_num_threads())
