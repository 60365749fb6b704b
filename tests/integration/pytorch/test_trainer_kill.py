"""kill -9 at any batch, resume, and no bit differs, on one or two ranks: sample ids, losses, random numbers.

A restart from batch 0 would give the same numbers, so each attempt must also begin where its checkpoint ends.
"""

from __future__ import annotations

import json
import random
import textwrap
from typing import Any

import pytest

PROGRAM = """
import json, logging, os, random, signal
from pathlib import Path

import numpy
import torch
from trainer_one_weight import OneWeightTrial
from detlab import pytorch
from detlab.pytorch import Batch, Epoch, LRScheduler

logging.basicConfig(level=logging.INFO)
torch.set_num_threads(1)
RANK = int(os.environ.get("RANK", "0"))
KILL_AT = int(os.environ.get("KILL_AT", "-1"))
KILL_RANK = int(os.environ.get("KILL_RANK", "0"))
ATTEMPT = int(os.environ.get("ATTEMPT", "1"))

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
            torch.nn.Dropout(0.4), torch.nn.Linear(16, 1),
        )

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 44
    def __getitem__(self, index):
        x = torch.sin(torch.arange(4.0) * (index + 1))
        return x + 0.1 * torch.randn(4), x.sum()[None]

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(Net())
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(self.model.parameters(), lr=0.01))
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50), LRScheduler.StepMode.STEP_EVERY_BATCH
        )
        self.log = Path(f"rank{RANK}.log").open("a", buffering=1)
    def build_training_data_loader(self):
        return pytorch.DataLoader(
            Data(), batch_size=4, shuffle=True, num_workers=int(os.environ.get("WORKERS", "0"))
        )
    def build_validation_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=5)
    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == KILL_AT and RANK == KILL_RANK:
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0))
        ids = list(self.context.current_sample_ids())
        draws = [float(torch.rand(())), float(numpy.random.random()), random.random(), random.gauss(0, 1)]
        entry = [batch_idx, epoch_idx, ids, float(loss.detach()).hex(), [draw.hex() for draw in draws], ATTEMPT]
        self.log.write(json.dumps(entry) + "\\n")
        return {"loss": loss}
    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        return {"val_loss": torch.nn.functional.mse_loss(self.model(x), y)}

AGGREGATION = int(os.environ.get("AGGREGATION", "1"))
with pytorch.init(enable_tensorboard_logging=False, aggregation_frequency=AGGREGATION) as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=Batch(48), checkpoint_period=Batch(5), validation_period=Batch(9), reporting_period=Batch(7),
        checkpoint_policy="none",
    )
"""


def logged(task: Any, rank: int) -> list[list[Any]]:
    """What a rank wrote for each batch: its index, epoch, sample ids, loss, draws, and the attempt."""
    return [json.loads(line) for line in (task.root / "work" / f"rank{rank}.log").read_text().splitlines()]


def batches(task: Any, rank: int) -> list[tuple[int, Any]]:
    return [(entry[0], tuple(map(str, entry[:-1]))) for entry in logged(task, rank)]


def starts(task: Any, rank: int) -> list[int]:
    """The first batch of each attempt; each must go on from there without a gap."""
    by_attempt: dict[int, list[int]] = {}
    for batch, *_, attempt in logged(task, rank):
        by_attempt.setdefault(attempt, []).append(batch)
    for trained in by_attempt.values():
        assert trained == list(range(trained[0], trained[0] + len(trained)))
    return [trained[0] for _, trained in sorted(by_attempt.items())]


def run_calm(task: Any, ranks: int, **extra: str) -> list[dict[int, Any]]:
    status, output = task.run(PROGRAM, ranks=ranks, **extra)
    assert status == 0, output
    calm = []
    for rank in range(ranks):
        done = batches(task, rank)
        assert [batch for batch, _ in done] == list(range(48))
        calm.append(dict(done))
        (task.root / "work" / f"rank{rank}.log").unlink()
    task.api.checkpoints.clear()
    (task.root / "spool" / "metrics.jsonl").rename(task.root / "calm.jsonl")
    return calm


def run_with_kills(task: Any, ranks: int, kills: list[int], **extra: str) -> list[int]:
    """Train in attempts that are killed, and a last one that is not; return at which batch each has to begin."""
    expected = []
    for attempt, kill_at in enumerate([*kills, -1], start=2):
        latest = task.newest_checkpoint() if task.api.checkpoints else None
        expected.append(task.api.checkpoints[latest]["steps_completed"] if latest else 0)
        task.set_info(latest_checkpoint=latest, run=attempt)
        faults = {"KILL_AT": str(kill_at), "KILL_RANK": str(attempt % ranks), "ATTEMPT": str(attempt)}
        status, output = task.run(PROGRAM, ranks=ranks, **faults, **extra)
        assert (status == 0) == (kill_at < 0), output
    return expected


def reports(path: Any) -> dict[tuple[str, int], Any]:
    """Training and validation metrics by group and step; what several attempts report must be the same.

    A stretch of training metrics ends at each checkpoint, so an attempt's stretches are those of the calm run.
    """
    found: dict[tuple[str, int], Any] = {}
    for record in map(json.loads, path.read_text().splitlines()):
        if record["kind"] == "metrics":
            key = (record["group"], record["steps_completed"])
            assert found.setdefault(key, record["metrics"]) == record["metrics"], key
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "seed", "extra"),
    [
        pytest.param(1, 1, {}, marks=pytest.mark.soak),
        (1, 2, {"WORKERS": "2"}),
        pytest.param(1, 3, {"AGGREGATION": "3"}, marks=pytest.mark.soak),
        pytest.param(2, 4, {}, marks=pytest.mark.soak),
        (2, 5, {"AGGREGATION": "2", "WORKERS": "1"}),
    ],
)
def test_killed_and_resumed_equals_calm(trial_task: Any, ranks: int, seed: int, extra: dict[str, str]) -> None:
    draw = random.Random(seed)
    kills = sorted(draw.sample(range(3, 48), 3))
    calm = run_calm(trial_task, ranks, **extra)
    expected = run_with_kills(trial_task, ranks, kills, **extra)
    assert max(expected) > 0, f"kills at {kills} left no checkpoint to resume from"
    drawn = [draw for rank in calm for entry in rank.values() for draw in json.loads(entry[-1].replace("'", '"'))]
    assert len(set(drawn)) == len(drawn) == 4 * 48 * ranks, "ranks and generators draw their own numbers"
    for rank in range(ranks):
        assert starts(trial_task, rank) == expected, f"kills at {kills}"
        seen = batches(trial_task, rank)
        assert {batch for batch, _ in seen} == set(range(48)), f"kills at {kills}"
        different = [(batch, entry, calm[rank][batch]) for batch, entry in seen if entry != calm[rank][batch]]
        assert different == [], f"kills at {kills}"
    calm_reports = reports(trial_task.root / "calm.jsonl")
    assert {group for group, _ in calm_reports} == {"training", "validation"}
    assert reports(trial_task.root / "spool" / "metrics.jsonl") == calm_reports


DRAWS = textwrap.dedent(PROGRAM).split("AGGREGATION =")[0] + textwrap.dedent("""
with pytorch.init(enable_tensorboard_logging=False) as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=Batch(int(os.environ["LENGTH"])) if "LENGTH" in os.environ else Epoch(1), checkpoint_policy="none",
    )
""")


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "at"), [(2, 1, 3), (1, 2, 4)])
def test_another_number_of_processes_uses_each_sample_once(trial_task: Any, before: int, after: int, at: int) -> None:
    status, output = trial_task.run(DRAWS, ranks=before, LENGTH=str(at))
    assert status == 0, output
    trial_task.set_info(latest_checkpoint=trial_task.newest_checkpoint(), run=2)
    status, output = trial_task.run(DRAWS, ranks=after)
    assert status == 0, output
    used: list[int] = []
    for rank in range(2):
        lines = (trial_task.root / "work" / f"rank{rank}.log").read_text().splitlines()
        used += [sample for entry in map(json.loads, lines) if entry[1] == 0 for sample in entry[2]]
    assert sorted(used) == list(range(44))
