"""The whole course of a trial, against formulas: steps, periods, policies, callbacks, resume at each boundary."""

from __future__ import annotations

import itertools
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_one_weight import OneWeightTrial, Recorder, newest, train

from detlab import pytorch
from detlab.errors import CheckpointError
from detlab.pytorch import Batch, Epoch, LRScheduler

NEAR = 1e-12


def ones(lr: float, batch: int, start: float = 0.0) -> tuple[float, float]:
    """Weight before batch `batch`, and its loss, when all x are 1."""
    weight = 1 - (1 - start) * (1 - 2 * lr) ** batch
    return weight, (1 - weight) ** 2


def check_ones(trial: OneWeightTrial, lr: float, updates_before: Any) -> None:
    for batch, _, _, loss, weight in trial.log:
        expected_weight, expected_loss = ones(lr, updates_before(batch))
        assert weight == pytest.approx(expected_weight, abs=NEAR)
        assert loss == pytest.approx(expected_loss, abs=NEAR)


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return str(tmp_path / "local-checkpoints")


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


def reported(task: Any, group: str) -> list[int]:
    return [entry["steps"] for entry in task.metrics(group)]


def saved(task: Any) -> list[int]:
    return sorted(view["steps_completed"] for view in task.api.checkpoints.values())


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


# --- callbacks


def test_hooks_in_their_order(storage: str) -> None:
    recorder = Recorder()
    fit = {"max_length": Batch(15), "validation_period": Batch(10), "reporting_period": Batch(5)}
    train(storage, fit={**fit, "checkpoint_policy": "none"}, callbacks={"recorder": recorder})
    validation = [("validation_start",), ("validation_epoch_start",), ("validation_epoch_end", 2)]
    assert recorder.calls == [
        ("trial_startup", 0, False),
        ("training_start",),
        ("epoch_start", 0),
        ("workload_end", 5, 5),
        ("epoch_end", 0),
        ("workload_end", 10, 5),
        *validation,
        ("validation_end", 10),
        ("epoch_start", 1),
        ("workload_end", 15, 5),
        *validation,
        ("validation_end", 15),
        ("save_start", "callbacks"),
        ("write_end",),
        ("checkpoint_end",),
        ("upload_end",),
        ("trial_shutdown",),
    ]


@pytest.mark.parametrize("period", [3, 4, 10])
def test_hooks_are_counted(storage: str, period: int) -> None:
    recorder = Recorder()
    fit = {"max_length": Batch(20), "validation_period": Batch(period), "checkpoint_period": Batch(period)}
    train(storage, fit={**fit, "checkpoint_policy": "none"}, callbacks={"recorder": recorder})
    boundaries = len({*range(period, 21, period), 20})
    for hook in ("workload_end", "validation_start", "validation_end", "save_start", "write_end", "upload_end"):
        assert len(recorder.named(hook)) == boundaries, hook
    assert len(recorder.named("epoch_start")) == len(recorder.named("epoch_end")) == 2
    order = [call[0] for call in recorder.named("save_start", "write_end", "checkpoint_end", "upload_end")]
    assert order == ["save_start", "write_end", "checkpoint_end", "upload_end"] * boundaries


def test_hooks_after_a_resume(in_trial: Any) -> None:
    train(fit={"max_length": Batch(15)}, callbacks={"recorder": Recorder()})
    again = Recorder()
    in_trial.set_info(latest_checkpoint=in_trial.newest_checkpoint(), run=2)
    from detlab import info

    info._load.cache_clear()
    train(fit={"max_length": Batch(20)}, callbacks={"recorder": again})
    assert again.calls[:4] == [
        ("trial_startup", 15, True),
        ("load_start", {"from": "the callback"}),
        ("training_start",),
        ("epoch_end", 1),
    ]
    assert again.state["seen"] == 1  # the state was taken before on_checkpoint_save_start was called
    uuid = in_trial.newest_checkpoint()
    assert "by_callback.txt" in in_trial.api.checkpoints[uuid]["files"]


def test_a_callback_that_raises_is_named_and_all_are_shut_down(storage: str) -> None:
    class Fails(pytorch.PyTorchCallback):
        def on_training_epoch_end(self, epoch_idx: int) -> None:
            raise KeyError("no such thing")

    recorder = Recorder()
    with pytest.raises(pytorch.CallbackFailed, match=r"'bad' \(Fails\) raised in on_training_epoch_end.*10 batches"):
        train(storage, fit={"max_length": Batch(20)}, callbacks={"bad": Fails(), "recorder": recorder})
    assert recorder.calls[-1] == ("trial_shutdown",)


@pytest.mark.parametrize("hook", ["on_checkpoint_save_start", "on_checkpoint_write_end", "on_checkpoint_upload_end"])
def test_a_checkpoint_hook_that_raises_is_named_and_nothing_half_written_stays(storage: str, hook: str) -> None:
    def raises(self: Any, argument: Any) -> None:
        raise ValueError("not today")

    failing = type("Fails", (pytorch.PyTorchCallback,), {hook: raises})()
    with pytest.raises(pytorch.CallbackFailed, match=f"'bad'.*raised in {hook}"):
        train(storage, fit={"max_length": Batch(8), "checkpoint_period": Batch(4)}, callbacks={"bad": failing})
    folders = [path for path in Path(storage).glob("*") if path.is_dir()]
    complete = [path for path in folders if (path / "manifest.json").exists()]
    assert len(complete) == (1 if hook == "on_checkpoint_upload_end" else 0)
    assert [path for path in folders if path not in complete and not path.name.startswith(".")] == []


# --- resume


def entries(trial: OneWeightTrial) -> list[Any]:
    return trial.log


@pytest.mark.parametrize("at", [1, 4, 9, 10, 11, 17, 20])
@pytest.mark.parametrize("aggregation", [1, 3])
def test_resume_at_each_boundary_is_exact(storage: str, at: int, aggregation: int) -> None:
    options: dict[str, Any] = {
        "kind": "range",
        "shuffle": True,
        "momentum": 0.9,
        "noise": 0.3,
        "step_mode": MODES.STEP_EVERY_BATCH,
        "gamma": 0.97,
        "aggregation": aggregation,
    }
    calm = train(storage, fit={"max_length": Batch(23), "validation_period": Batch(at)}, **options)
    first = train(storage, fit={"max_length": Batch(at)}, **options)
    rest = train(storage, fit={"max_length": Batch(23), "latest_checkpoint": newest(storage)}, seed=99, **options)
    assert entries(first) + entries(rest) == entries(calm)  # bit by bit: ids, losses, weights
    assert rest.weight == calm.weight


def test_a_finished_trial_has_nothing_left_to_do(in_trial: Any) -> None:
    train(fit={"max_length": Batch(10)})
    before = len(in_trial.records())
    uuid = in_trial.newest_checkpoint()
    trial = train(fit={"max_length": Batch(10), "latest_checkpoint": uuid})
    assert trial.log == []
    assert len([record for record in in_trial.records()[before:] if record["kind"] == "metrics"]) == 0


def test_another_trials_checkpoint_gives_weights_only(in_trial: Any, storage: str) -> None:
    train(fit={"max_length": Batch(10)})
    uuid = in_trial.newest_checkpoint()
    in_trial.set_info(trial_id=8)
    from detlab import info

    info._load.cache_clear()
    trial = train(fit={"max_length": Batch(5), "latest_checkpoint": uuid})
    assert [entry[0] for entry in trial.log] == list(range(5))
    assert trial.log[0][4] == pytest.approx(ones(0.1, 10)[0], abs=NEAR)


class Own:
    """State of a user's own class, which is pickled; says when it is unpickled."""

    unpickled = 0

    def __init__(self) -> None:
        self.value = 1  # without any state nothing would be set on unpickling

    def __setstate__(self, state: Any) -> None:
        type(self).unpickled += 1


def recorder_with_pickle() -> Recorder:
    recorder = Recorder()
    recorder.state["own"] = Own()
    return recorder


def test_another_trials_checkpoint_is_not_unpickled_unless_it_is_trusted_and_its_own_is(
    in_trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(fit={"max_length": Batch(5)}, callbacks={"mine": recorder_with_pickle()})
    uuid = in_trial.newest_checkpoint()
    before = Own.unpickled
    train(fit={"max_length": Batch(6), "latest_checkpoint": uuid}, callbacks={"mine": Recorder()})
    assert Own.unpickled == before + 1
    in_trial.set_info(trial_id=8)
    from detlab import info

    info._load.cache_clear()
    said = r"trainer\.json is of another trial.*callbacks/mine/own .* is a pickled .*Own.*load the models yourself"
    with pytest.raises(CheckpointError, match=said):
        train(fit={"max_length": Batch(5), "latest_checkpoint": uuid}, callbacks={"mine": Recorder()})
    assert Own.unpickled == before + 1
    monkeypatch.setenv("DETLAB_UNPICKLE_CHECKPOINTS", "1")
    train(fit={"max_length": Batch(6), "latest_checkpoint": uuid}, callbacks={"mine": Recorder()})
    assert Own.unpickled == before + 2


def test_an_unknown_checkpoint_is_an_error(storage: str) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint of this trial can be read"):
        train(storage, fit={"max_length": Batch(5), "latest_checkpoint": "0" * 8})


def test_altered_files_the_previous_good_one_is_used(in_trial: Any, caplog: pytest.LogCaptureFixture) -> None:
    calm = train(fit={"max_length": Batch(20), "checkpoint_period": Batch(5), "checkpoint_policy": "none"}, noise=0.1)
    newest_first = sorted(in_trial.api.checkpoints.values(), key=lambda view: -view["steps_completed"])
    for view in newest_first[:2]:
        path = in_trial.checkpoints / view["uuid"] / "trainer.safetensors"
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        again = train(fit={"max_length": Batch(20), "latest_checkpoint": newest_first[0]["uuid"]}, noise=0.1)
    assert entries(again) == entries(calm)[10:]
    assert newest_first[0]["uuid"] in caplog.text
    assert "trainer.safetensors" in caplog.text
    assert {"kind": "resumed", "steps_completed": 10}.items() <= next(
        record for record in in_trial.records() if record["kind"] == "resumed"
    ).items()


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


# --- bad input


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
