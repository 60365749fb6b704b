"""A trial that goes on with more processes when few samples of its epoch are left: each counts once.

The reference is one process, which goes on calmly: the same gradient, loss, reduced values.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

NEAR = 1e-12
PROGRAM = """
import json, os
from pathlib import Path
import torch
from trainer_one_weight import OneWeightTrial, Samples
from detlab import pytorch
from detlab.pytorch import Batch, Epoch, Reducer

torch.set_num_threads(1)
RANK = int(os.environ.get("RANK", "0"))
OPTIONS = json.loads(os.environ["OPTIONS"])

class Sum(pytorch.MetricReducer):
    def __init__(self):
        self.total, self.times = 0.0, 0
    def reset(self):
        self.__init__()
    def per_slot_reduce(self):
        return [self.total, self.times]
    def cross_slot_reduce(self, per_slot_metrics):
        return {"sum": sum(total for total, _ in per_slot_metrics), "updates": sum(n for _, n in per_slot_metrics)}

class Trial(OneWeightTrial):
    # What it is given, it counts, whether these samples are this rank's or not.
    def __init__(self, context, **options):
        super().__init__(context, **options)
        self.sum = context.wrap_reducer(Sum(), for_validation=False)
        self.values = context.wrap_reducer(sorted, name="values", for_validation=False)
        self.given = []
    def train_batch(self, batch, epoch_idx, batch_idx):
        self.sum.total += float(batch.sum())
        self.sum.times += 1
        for value in batch:
            self.values.update(float(value))
        self.given.append(batch.tolist())
        return super().train_batch(batch, epoch_idx, batch_idx)
    def build_validation_data_loader(self):
        return pytorch.DataLoader(Samples(5), batch_size=5)  # one batch: the other ranks validate on none
    def evaluate_batch(self, batch, batch_idx):
        return {"val_loss": float(len(batch))}
    def evaluation_reducer(self):
        return Reducer.SUM

with pytorch.init(enable_tensorboard_logging=False, aggregation_frequency=OPTIONS.pop("aggregation", 1)) as context:
    trial = Trial(context, **OPTIONS)
    pytorch.Trainer(trial, context).fit(
        max_length=eval(os.environ["LENGTH"]), checkpoint_policy="none",
        reporting_period=Batch(1), checkpoint_period=Batch(3),
    )
    Path(f"rank{RANK}.json").write_text(json.dumps({"log": trial.log, "given": trial.given, "w": trial.weight}))
"""


def run(task: Any, ranks: int, length: str, **options: Any) -> list[dict[str, Any]]:
    status, output = task.run(PROGRAM, ranks=ranks, LENGTH=length, OPTIONS=json.dumps(options))
    assert status == 0, output
    return [json.loads((task.root / "work" / f"rank{rank}.json").read_text()) for rank in range(ranks)]


def calm_and_resumed(
    task: Any, ranks: int, length: str, options: dict[str, Any], batch_size: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train an epoch of four batches in one process, then go on from its third with more."""
    (calm,) = run(task, 1, "Epoch(1)", **options)
    assert len(calm["log"]) == 4
    (third,) = [uuid for uuid, view in task.api.checkpoints.items() if view["steps_completed"] == 3]
    task.set_info(latest_checkpoint=third, run=2)
    return calm, run(task, ranks, length, **(options | {"batch_size": batch_size}))


def reported(task: Any) -> list[dict[str, Any]]:
    """The training metrics from batch 4 on: first those of the calm run."""
    return [entry for entry in task.metrics("training") if entry["steps"] >= 4]


def test_what_one_rank_takes_alone_is_the_step_of_one_process(trial_task: Any) -> None:
    options = {"count": 11, "batch_size": 3, "kind": "range", "momentum": 0.9, "noise": 0.3}
    calm, ranks = calm_and_resumed(trial_task, 2, "Batch(5)", options, 3)
    # Two samples are left, and the chief's random numbers go on: even the noise is that of the calm run.
    assert ranks[0]["log"][0] == [3, 0, *calm["log"][3][2:]]
    assert ranks[1]["log"][0][:3] == [3, 0, []]
    assert ranks[1]["given"][0] == ranks[0]["given"][0] == calm["given"][3]
    assert ranks[0]["log"][1][4] == ranks[1]["log"][1][4] == pytest.approx(calm["w"], abs=NEAR)
    one, two, following = reported(trial_task)
    assert one["updates"] == two["updates"] == 1
    assert one["values"] == two["values"] == calm["given"][3]
    for name in ("loss", "w", "sum"):
        assert two[name] == pytest.approx(one[name], abs=NEAR), name
    # The next epoch is everybody's again.
    assert [rank["log"][1][:3] for rank in ranks] == [[4, 1, [0, 1, 2]], [4, 1, [3, 4, 5]]]
    assert following["updates"] == 2
    assert following["values"] == sorted(value for rank in ranks for value in rank["given"][1])
    assert following["loss"] == pytest.approx((ranks[0]["log"][1][3] + ranks[1]["log"][1][3]) / 2, abs=NEAR)
    assert ranks[0]["w"] == ranks[1]["w"]
    assert [entry["val_loss"] for entry in trial_task.metrics("validation")] == [5, 5]


@pytest.mark.parametrize("aggregation", [1, 2])
def test_what_some_ranks_take_weighs_by_its_samples(trial_task: Any, aggregation: int) -> None:
    options = {"count": 20, "batch_size": 5, "kind": "range", "momentum": 0.9, "aggregation": aggregation}
    calm, ranks = calm_and_resumed(trial_task, 3, "Epoch(1)", options, 4)
    # Five samples, two batches of at most four: two ranks take them.
    assert [rank["log"][0][2] for rank in ranks] == [[15, 16, 17], [18, 19], []]
    for rank in ranks:
        assert len(rank["log"]) == 1
        assert rank["w"] == pytest.approx(calm["w"], abs=NEAR)
    assert ranks[0]["w"] == ranks[1]["w"] == ranks[2]["w"]
    one, two = reported(trial_task)
    assert two["updates"] == 2
    assert two["values"] == one["values"] == calm["given"][3]
    assert two["loss"] == pytest.approx((ranks[0]["log"][0][3] + ranks[1]["log"][0][3]) / 2, abs=NEAR)
    assert two["sum"] == pytest.approx(one["sum"], abs=NEAR)
