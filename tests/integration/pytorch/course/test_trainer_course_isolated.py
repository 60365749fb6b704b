"""T5 with the trainer: a trial with an isolated source, its validations and checkpoints, and the source taken out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainer_course_governed import SIZES, Governed, points
from torch import nn
from trainer_one_weight import train

from detlab.governance import GovernanceError, combine
from detlab.governance.ablation import ablate
from detlab.governance.isolation import own_parameters
from detlab.pytorch import Batch
from detlab.pytorch.governance import ClipNorm

POLICY: dict[str, Any] = {
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [
        {"source": "*", "layers": ".*", "scale": 1.0},
        {"source": "*", "layers": "adapter", "scale": 0.0},
        {"source": "web", "layers": ".*", "scale": 0.0},
        {"source": "web", "layers": "adapter", "scale": 1.0, "level": "isolated"},
    ],
}


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.adapter = nn.Linear(4, 2)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x)
        return self.head(hidden) + self.adapter(hidden)


class Isolated(Governed):
    """Reports a second loss in validations, with the adapter open."""

    def network(self) -> nn.Module:
        return Adapted()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.context.backward(self.losses(batch))
        clip = self.options.get("clip", ClipNorm(0.2))
        self.context.step_optimizer(self.optimizer, clip_grads=clip)
        return {}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        with self.context.serving("web"):
            served = self.losses(batch).mean()
        return {"val_loss": self.losses(batch).mean(), "served": served}


def run(storage: Path | None, web: int, **options: Any) -> Isolated:
    """Train with one content of `web` or another."""

    def data() -> Any:
        return combine({"trusted": points(SIZES["trusted"], 0), "web": points(SIZES["web"], web)})

    where = None if storage is None else str(storage)
    fit = {"max_length": Batch(9), "validation_period": Batch(3), "checkpoint_policy": "none"}
    trained: Isolated = train(where, Isolated, conf={"governance": POLICY}, fit=fit, data=data, **options)
    return trained


def test_t5_weights_and_validations_are_bit_equal_whatever_the_source_holds(tmp_path):
    first, other = (run(tmp_path / str(web), web) for web in (1, 7))
    named = [dict(one.model.named_parameters()) for one in (first, other)]
    for name, value in named[0].items():
        assert torch.equal(value, named[1][name]) != name.startswith("adapter"), name
    assert [one["val_loss"] for one in first.told] == [one["val_loss"] for one in other.told]
    assert first.told[-1]["served"] != other.told[-1]["served"]
    plan = first.context._governed.plan
    folders = [next(path.parent for path in (tmp_path / name).glob("*/trainer.json")) for name in ("1", "7")]
    for folder in folders:
        done = ablate(folder, "web", own_parameters("web", [plan.matrix]), [one.name for one in plan.parameters])
        assert (done.zeroed, done.kept) == (["adapter.bias", "adapter.weight"], [])
        assert done.forgotten == ["adapter.bias", "adapter.weight"]
    for name in ("model_0.safetensors", "trainer.safetensors"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_a_clip_of_the_trials_own_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(GovernanceError, match="CLIP") as refused:
        run(None, 1, clip=lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.2))
    assert refused.value.code == "governance.clip"
    assert "ClipNorm" in (refused.value.hint or "")
