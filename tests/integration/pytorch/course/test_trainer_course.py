"""The whole course of a trial, against formulas: steps, periods, policies, ending early."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from trainer_formulas import NEAR, check_ones, ones, reported, saved
from trainer_one_weight import OneWeightTrial, Recorder, train

from detlab import pytorch
from detlab.pytorch import Batch, Epoch, LRScheduler

# --- steps


def test_plain_steps(storage: str) -> None:
    trial = train(storage, fit={"max_length": Batch(25)})
    assert [entry[0] for entry in trial.log] == list(range(25))
    assert [entry[1] for entry in trial.log] == [batch // 10 for batch in range(25)]
    check_ones(trial, 0.1, lambda batch: batch)


@pytest.mark.parametrize("frequency", [2, 3])
def test_aggregated_gradients_are_averaged(storage: str, frequency: int) -> None:
    trial = train(storage, fit={"max_length": Batch(12)}, aggregation=frequency)
    check_ones(trial, 0.1, lambda batch: batch // frequency)


def test_different_samples_follow_the_recursion(storage: str) -> None:
    trial = train(storage, fit={"max_length": Epoch(2)}, kind="range", shuffle=True)
    weight = 0.0
    for _, _, ids, loss, seen in trial.log:
        xs = [0.5 + index / 40 for index in ids]
        assert seen == pytest.approx(weight, abs=NEAR)
        assert loss == pytest.approx(sum((weight * x - x) ** 2 for x in xs) / len(xs), abs=NEAR)
        weight -= 0.1 * sum(2 * (weight * x - x) * x for x in xs) / len(xs)
    for epoch in (0, 1):
        seen_ids = sorted(index for entry in trial.log if entry[1] == epoch for index in entry[2])
        assert seen_ids == list(range(40))
    assert [entry[2] for entry in trial.log[:10]] != [entry[2] for entry in trial.log[10:]]


def test_clipped_gradients(storage: str) -> None:
    trial = train(storage, fit={"max_length": Batch(20)}, clip=0.05)
    for batch, _, _, _, weight in trial.log:
        assert weight == pytest.approx(0.1 * 0.05 * batch, abs=NEAR)  # 2 (1 - w) stays above the clip


def rates(trial: OneWeightTrial) -> list[float]:
    """Learning rate of each batch, from the weights: w' = w + lr * 2 (1 - w)."""
    weights = [entry[4] for entry in trial.log] + [trial.weight]
    return [(after - before) / (2 * (1 - before)) for before, after in itertools.pairwise(weights)]


MODES = LRScheduler.StepMode


@pytest.mark.parametrize(
    ("mode", "frequency", "steps_before"),
    [
        (MODES.STEP_EVERY_BATCH, 1, lambda batch: batch),
        (MODES.STEP_EVERY_BATCH, 3, lambda batch: batch // 3),
        (MODES.STEP_EVERY_EPOCH, 1, lambda batch: batch // 10),
        (MODES.STEP_EVERY_EPOCH, 2, lambda batch: batch // 20),
        (MODES.STEP_EVERY_OPTIMIZER_STEP, 2, lambda batch: batch // 2),
        (MODES.MANUAL_STEP, 1, lambda batch: 0),
    ],
)
def test_scheduler_modes(storage: str, mode: Any, frequency: int, steps_before: Any) -> None:
    trial = train(storage, fit={"max_length": Batch(30)}, step_mode=mode, frequency=frequency, gamma=0.9)
    assert rates(trial) == pytest.approx([0.1 * 0.9 ** steps_before(batch) for batch in range(30)], rel=1e-6)


# --- periods


@pytest.mark.parametrize(
    ("fit", "training", "validation", "checkpoints"),
    [
        ({"max_length": Batch(25)}, [25], [25], [25]),
        ({"max_length": Batch(25), "reporting_period": Batch(10)}, [10, 20, 25], [25], [25]),
        ({"max_length": Epoch(2), "validation_period": Epoch(1)}, [10, 20], [10, 20], [20]),
        ({"max_length": Batch(30), "checkpoint_period": Batch(8)}, [8, 16, 24, 30], [30], [8, 16, 24, 30]),
        ({"max_length": Batch(30), "validation_period": Batch([3, 4, 29])}, [3, 4, 29, 30], [3, 4, 29, 30], [30]),
        ({"max_length": Epoch(3), "checkpoint_period": Epoch(2)}, [20, 30], [30], [20, 30]),
        (
            {"max_length": Batch(24), "reporting_period": Batch(7), "validation_period": Batch(6)},
            [6, 7, 12, 14, 18, 21, 24],
            [6, 12, 18, 24],
            [24],
        ),
        ({"max_length": Batch(20), "step_zero_validation": True}, [20], [0, 20], [20]),
    ],
)
def test_periods(in_trial: Any, fit: dict[str, Any], training: Any, validation: Any, checkpoints: Any) -> None:
    train(fit={"checkpoint_policy": "none", **fit})
    assert reported(in_trial, "training") == training
    assert reported(in_trial, "validation") == validation
    assert saved(in_trial) == checkpoints


def test_reports_are_averages_of_their_batches(in_trial: Any) -> None:
    trial = train(fit={"max_length": Batch(25), "reporting_period": Batch(10), "validation_period": Batch(20)})
    losses = [entry[3] for entry in trial.log]
    first = 0
    for entry in in_trial.metrics("training"):
        assert entry["loss"] == pytest.approx(sum(losses[first : entry["steps"]]) / (entry["steps"] - first), abs=NEAR)
        assert entry["batches"] == entry["steps"]
        assert entry["epochs"] == entry["steps"] // 10
        first = entry["steps"]
    for entry in in_trial.metrics("validation"):
        assert entry["val_loss"] == pytest.approx(ones(0.1, entry["steps"])[1], abs=NEAR)
    assert [entry["steps"] for entry in in_trial.metrics("validation")] == [20, 25]


def test_progress_reaches_one(in_trial: Any) -> None:
    train(fit={"max_length": Epoch(2), "reporting_period": Batch(5)})
    progress = [record["progress"] for record in in_trial.records() if record["kind"] == "progress"]
    assert progress == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_length_from_the_searcher(in_trial: Any) -> None:
    in_trial.set_config(searcher={"name": "single", "metric": "val_loss", "max_length": {"epochs": 2}})
    train(fit={})
    assert reported(in_trial, "validation") == [20]


# --- policies


@pytest.mark.parametrize(("policy", "expected"), [("best", [5, 15, 20]), ("all", [5, 10, 15, 20]), ("none", [20])])
def test_checkpoint_policies(in_trial: Any, policy: str, expected: list[int]) -> None:
    class Wavy(OneWeightTrial):
        def evaluate_batch(self, batch: torch.Tensor, batch_idx: int) -> dict[str, Any]:
            return {"val_loss": {5: 3.0, 10: 4.0, 15: 2.0, 20: 2.5}[self.context.current_train_batch() + 1]}

    with pytorch.init(enable_tensorboard_logging=False) as context:
        fit = {"max_length": Batch(20), "validation_period": Batch(5), "checkpoint_policy": policy}
        pytorch.Trainer(Wavy(context), context).fit(**fit)
    assert saved(in_trial) == expected  # the last one is taken whatever the policy


def test_best_means_best_of_the_experiment(in_trial: Any) -> None:
    in_trial.api.best = 1e-9  # another trial was better than this one ever gets
    train(fit={"max_length": Batch(20), "validation_period": Batch(5)})
    assert saved(in_trial) == [20]


def test_a_nan_validation_is_never_best(in_trial: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(OneWeightTrial):
        def evaluate_batch(self, batch: torch.Tensor, batch_idx: int) -> dict[str, Any]:
            return {"val_loss": math.nan}

    with pytorch.init(enable_tensorboard_logging=False) as context:
        pytorch.Trainer(Broken(context), context).fit(max_length=Batch(10), validation_period=Batch(5))
    assert saved(in_trial) == [10]
    assert "no best checkpoint" in caplog.text


# --- ending early


def test_preempted_trials_save_and_end(in_trial: Any) -> None:
    class Preempts(pytorch.PyTorchCallback):
        def on_training_epoch_end(self, epoch_idx: int) -> None:
            if epoch_idx == 1:
                in_trial.api.preempt()
                in_trial.api.wait_for_call("GET task/preempt")

    trial = train(fit={"max_length": Batch(10**6), "reporting_period": Batch(5)}, callbacks={"preempts": Preempts()})
    steps = len(trial.log)
    assert 20 <= steps < 10**6
    assert saved(in_trial)[-1] == steps
    assert reported(in_trial, "training")[-1] == steps
    assert reported(in_trial, "validation") == []  # the next attempt validates where the calm run would have
    assert in_trial.api.acks == 1


def test_stop_requested_by_the_trial(in_trial: Any) -> None:
    class Stops(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
            if batch_idx == 7:
                self.context.set_stop_requested(True)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytorch.init(enable_tensorboard_logging=False) as context:
        trial = Stops(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(1000), reporting_period=Batch(10))
    assert len(trial.log) == 10
    assert reported(in_trial, "validation") == saved(in_trial) == [10]
    assert [record["reason"] for record in in_trial.records() if record["kind"] == "early_exit"] == [
        "USER_REQUESTED_STOP"
    ]


def test_test_mode_is_one_batch_of_each(storage: str) -> None:
    recorder = Recorder()
    trial = train(storage, fit={"max_length": Batch(1000), "test_mode": True}, callbacks={"recorder": recorder})
    assert len(trial.log) == 1
    assert recorder.named("validation_epoch_end") == [("validation_epoch_end", 1)]
