"""Two processes over gloo that train a model compiled by inductor, torch's default: resumed to the bit."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

PROGRAM = """
import json, os
from pathlib import Path
import torch
import torch._inductor.metrics
from trainer_one_weight import OneWeightTrial
from detlab import pytorch
from detlab.pytorch import Batch

torch.set_num_threads(1)
RANK = int(os.environ["RANK"])

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.2], dtype=torch.float64))
        self.dropout = torch.nn.Dropout(0.4)
    def forward(self, x):
        return torch.tanh(self.dropout(self.w * x))

class Trial(OneWeightTrial):
    def build_model(self):
        return torch.compile(Net(), fullgraph=True)
    def evaluate_batch(self, batch, batch_idx):
        return {"val_loss": 0.0}  # without a third kernel

with pytorch.init(enable_tensorboard_logging=False) as context:
    trial = Trial(context, count=40, batch_size=4, kind="range", shuffle=True, momentum=0.9)
    pytorch.Trainer(trial, context).fit(
        max_length=Batch(7), checkpoint_period=Batch(4), checkpoint_policy="none"
    )
    kernels = torch._inductor.metrics.generated_kernel_count
    Path(f"rank{RANK}.json").write_text(json.dumps({"log": trial.log, "w": trial.weight, "kernels": kernels}))
"""


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_resume_of_a_model_compiled_by_inductor_is_exact_on_two_ranks(trial_task: Any) -> None:
    # The cache of the first run serves the second one. The rest is for time: vectors and headers are tried out first.
    compiler = {
        "TORCHINDUCTOR_CACHE_DIR": str(trial_task.root / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "0",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }

    def run() -> list[dict[str, Any]]:
        status, output = trial_task.run(PROGRAM, ranks=2, timeout=120, **compiler)
        assert status == 0, output
        return [json.loads((trial_task.root / "work" / f"rank{rank}.json").read_text()) for rank in (0, 1)]

    calm = run()
    assert calm[0]["w"] == calm[1]["w"]
    assert all(rank["kernels"] > 0 for rank in calm)
    (fourth,) = [uuid for uuid, view in trial_task.api.checkpoints.items() if view["steps_completed"] == 4]
    trial_task.set_info(latest_checkpoint=fourth, run=2)
    resumed = run()
    for rank, again in zip(calm, resumed, strict=True):
        assert again["log"] == rank["log"][4:]  # bit by bit: ids, losses, weights
        assert again["w"] == rank["w"]
