"""What people give the trainer that is wrong or odd: each is named, or trained all the same."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch
from trainer_formulas import check_ones, reported
from trainer_one_weight import OneWeightTrial, Samples, newest, train

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


def test_a_trial_with_both_evaluations_is_named(storage: str) -> None:
    class Both(OneWeightTrial):
        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            return {"val_loss": 0.0}

    said = "Both defines both of evaluate_batch and evaluate_full_dataset: define exactly one"
    with pytest.raises(pytorch.TrainerError, match=said):
        train(storage, Both, fit={"max_length": Batch(1)})


@pytest.mark.parametrize("value", [0, -1, 1.0, "2", True, None])
def test_a_bad_aggregation_frequency_is_named(value: Any) -> None:
    said = f"aggregation_frequency must be a positive integer, not {value!r}"
    with pytest.raises(pytorch.TrainerError, match=said), pytorch.init(aggregation_frequency=value):
        pass


def test_test_mode_is_refused_on_a_cluster(in_trial: Any) -> None:
    with pytest.raises(pytorch.TrainerError, match="test_mode is for local runs, this is a trial of a cluster"):
        train(fit={"max_length": Batch(5), "test_mode": True})
    assert in_trial.records() == []


class TorchsOwnTraining(OneWeightTrial):
    def build_training_data_loader(self) -> Any:
        return torch.utils.data.DataLoader(Samples(self.options["count"], self.options["kind"]), batch_size=4)


class TorchsOwnValidation(OneWeightTrial):
    def build_validation_data_loader(self) -> Any:
        return torch.utils.data.DataLoader(Samples(8), batch_size=4)


@pytest.mark.parametrize(
    ("trial_class", "builder"),
    [(TorchsOwnTraining, "build_training_data_loader"), (TorchsOwnValidation, "build_validation_data_loader")],
)
def test_torchs_own_loader_is_refused_in_words(storage: str, trial_class: Any, builder: str) -> None:
    with pytest.raises(pytorch.TrainerError) as caught:
        train(storage, trial_class, fit={"max_length": Batch(2)})
    assert isinstance(caught.value, RuntimeError)  # Determined's
    text = str(caught.value)
    for words in (
        f"{builder}() returned a torch.utils.data.dataloader.DataLoader",
        "return a detlab.pytorch.DataLoader",
        "context.experimental.disable_dataset_reproducibility_checks()",
    ):
        assert words in text


class OwnWays(TorchsOwnTraining, TorchsOwnValidation):
    """Torch's loaders, batches moved by itself, torch's profiler around the loop."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        super().__init__(context, **options)
        context.experimental.disable_dataset_reproducibility_checks()
        context.experimental.disable_auto_to_device()
        context.to_device = self.refuse  # type: ignore[method-assign]  # nothing else may move a batch
        self.traced: list[int] = []
        context.set_profiler(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1),
            on_trace_ready=lambda profiler: self.traced.append(profiler.step_num),
        )

    def refuse(self, data: Any) -> Any:
        raise AssertionError("the batch was moved")


def test_own_loaders_own_moves_and_a_profiler_resume_exactly(storage: str) -> None:
    options: dict[str, Any] = {"kind": "range", "momentum": 0.9, "noise": 0.3}
    calm = train(storage, OwnWays, fit={"max_length": Batch(13), "validation_period": Batch(7)}, **options)
    first = train(storage, OwnWays, fit={"max_length": Batch(7)}, **options)
    rest = train(storage, OwnWays, fit={"max_length": Batch(13), "latest_checkpoint": newest(storage)}, **options)
    assert first.log + rest.log == calm.log  # bit by bit
    assert rest.weight == calm.weight
    assert [entry[1] for entry in calm.log] == [0] * 10 + [1] * 3
    assert calm.traced == first.traced == rest.traced == [3]  # stepped once a batch


class Bag:
    """A batch in which no tensor is found."""

    def __init__(self, samples: list[torch.Tensor]) -> None:
        self.samples = samples


class Bags(OneWeightTrial):
    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Samples(10), batch_size=4, collate_fn=Bag)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return super().evaluate_batch(torch.stack(batch.samples), batch_idx)


class CountedBags(Bags):
    def get_batch_length(self, batch: Any) -> int:
        return len(batch.samples)


def test_batches_of_an_own_kind_are_counted_by_the_trial(storage: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Exception, match="batch of type Bag: it holds no tensor") as caught:
        train(storage, Bags, fit={"max_length": Batch(1)})
    assert "define get_batch_length" in str(caught.value)
    with caplog.at_level(logging.INFO, "detlab.pytorch"):
        train(storage, CountedBags, fit={"max_length": Batch(1)})
    assert "validated 10 samples (3 batches) in " in caplog.text


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


def test_a_metric_that_is_not_a_number_is_named_and_training_continues(
    storage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Determined, it is in the metrics of single batches and in no mean."""
    seen: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []

    class Words(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> Any:
            return {"loss": super().train_batch(batch, epoch_idx, batch_idx)["loss"], "mood": "good"}

        def evaluate_batch(self, batch: torch.Tensor, batch_idx: int) -> Any:
            return {"val_loss": super().evaluate_batch(batch, batch_idx)["val_loss"], "note": None}

        def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {"seen": Seen()}

    class Seen(pytorch.PyTorchCallback):
        def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
            seen.append((avg_metrics, batch_metrics))

    with pytorch.init(exp_conf={}, checkpoint_storage=storage) as context:
        pytorch.Trainer(Words(context), context).fit(max_length=Batch(4), reporting_period=Batch(2))
    assert caplog.text.count("train_batch returned a str as metric 'mood' for batch 0") == 1
    assert [set(averages) for averages, _ in seen] == [{"loss", "mood", "batches", "epochs"}] * 2
    assert [averages["mood"] for averages, _ in seen] == [None, None]
    assert [[row["mood"] for row in rows] for _, rows in seen] == [["good", "good"]] * 2


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
