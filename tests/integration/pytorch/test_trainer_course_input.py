"""What people give the trainer that is wrong or odd: each is named, or trained all the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from trainer_formulas import check_ones, reported
from trainer_one_weight import OneWeightTrial, newest, train

from detlab import pytorch
from detlab.errors import CheckpointError
from detlab.pytorch import Batch, Epoch


def test_all_wrong_arguments_at_once() -> None:
    with pytest.raises(pytorch.TrainerError) as caught:
        train(fit={"validation_period": 3, "checkpoint_policy": "sometimes", "latest_checkpoint": 7})
    text = str(caught.value)
    for word in ("validation_period", "max_length is missing", "checkpoint_policy", "latest_checkpoint"):
        assert word in text


@pytest.mark.parametrize("value", [0, -3, 1.5, "ten", True])
def test_bad_units(value: Any) -> None:
    with pytest.raises(pytorch.TrainerError):
        Batch(value) if value != "ten" else Epoch(None)


def test_a_trial_without_evaluation_is_named(storage: str) -> None:
    class Neither(OneWeightTrial):
        evaluate_batch = pytorch.PyTorchTrial.evaluate_batch

    with (
        pytorch.init(exp_conf={}, checkpoint_storage=storage) as context,
        pytest.raises(pytorch.TrainerError, match="Neither defines neither of evaluate_batch"),
    ):
        pytorch.Trainer(Neither(context), context).fit(max_length=Batch(1))


def test_empty_data_is_named(storage: str) -> None:
    with pytest.raises(Exception, match="build_training_data_loader"):
        train(storage, fit={"max_length": Batch(5)}, count=0)


def test_a_ragged_last_batch_is_trained(storage: str) -> None:
    trial = train(storage, fit={"max_length": Epoch(2)}, count=10)
    assert [len(entry[2]) for entry in trial.log] == [4, 4, 2, 4, 4, 2]
    check_ones(trial, 0.1, lambda batch: batch)


def test_a_nan_loss_is_named_once(in_trial: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Diverges(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> Any:
            super().train_batch(batch, epoch_idx, batch_idx)
            return {"loss": torch.tensor(math.nan if batch_idx >= 13 else 1.0)}

    with pytorch.init(enable_tensorboard_logging=False) as context:
        pytorch.Trainer(Diverges(context), context).fit(max_length=Batch(30), reporting_period=Batch(5))
    assert caplog.text.count("NaN or infinite first at batch 13") == 1
    assert reported(in_trial, "training") == [5, 10, 15, 20, 25, 30]


def test_a_metric_that_is_not_a_number_is_named(storage: str) -> None:
    class Words(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> Any:
            return {"loss": super().train_batch(batch, epoch_idx, batch_idx)["loss"], "mood": "good"}

    with pytorch.init(exp_conf={}, checkpoint_storage=storage) as context, pytest.raises(Exception, match="mood"):
        pytorch.Trainer(Words(context), context).fit(max_length=Batch(2))


def test_a_model_that_was_replaced_is_named(storage: str) -> None:
    with pytorch.init(exp_conf={}, checkpoint_storage=storage) as context:
        trial = OneWeightTrial(context)
        trial.optimizer.param_groups[0]["params"] = [torch.nn.Parameter(torch.zeros(1))]
        with pytest.raises(Exception, match="optimizer"):
            pytorch.Trainer(trial, context).fit(max_length=Batch(2))


def test_another_models_checkpoint_names_the_shapes(storage: str) -> None:
    train(storage, fit={"max_length": Batch(5)})

    class Wide(OneWeightTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.model.w = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
            self.optimizer.param_groups[0]["params"] = [self.model.w]

    with pytorch.init(exp_conf={}, checkpoint_storage=storage) as context:
        trial = Wide(context)
        with pytest.raises(CheckpointError) as caught:
            pytorch.Trainer(trial, context).fit(max_length=Batch(6), latest_checkpoint=newest(storage))
    assert "(1,)" in str(caught.value)
    assert "(3,)" in str(caught.value)
