"""What an audit of the course of a trial found: each test is named after what was wrong."""

from __future__ import annotations

import gc
import logging
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_one_weight import OneWeightTrial, train

import detlab as det
from detlab import pytorch
from detlab.pytorch import Batch, Epoch

PROGRAM = """
import json, logging, os
from pathlib import Path
import torch
import detlab as det
from trainer_one_weight import OneWeightTrial
from detlab import pytorch
from detlab.pytorch import Batch, Epoch

logging.basicConfig(level=logging.INFO)
torch.set_num_threads(1)
RANK = int(os.environ.get("RANK", "0"))
LATEST = os.environ.get("LATEST")
draws = []

class Draws(OneWeightTrial):
    def train_batch(self, batch, epoch_idx, batch_idx):
        draws.append(float(torch.rand(())))
        return super().train_batch(batch, epoch_idx, batch_idx)

with pytorch.init(enable_tensorboard_logging=False, hang_timeout=60) as context:
    callbacks = {}
    trial = Draws(context, callbacks=callbacks, kind="range")
    %s
    pytorch.Trainer(trial, context).fit(max_length=Batch(6), reporting_period=Batch(3), checkpoint_policy="none",
        latest_checkpoint=LATEST)
    Path(f"rank{RANK}.json").write_text(json.dumps({"draws": draws, "w": trial.weight}))
"""


def run_ranks(task: Any, setup: str = "pass", ranks: int = 2, **extra: str) -> list[dict[str, Any]]:
    import json

    status, output = task.run(PROGRAM % setup.replace("\n", "\n    "), ranks=ranks, **extra)
    assert status == 0, output
    return [json.loads((task.root / "work" / f"rank{rank}.json").read_text()) for rank in range(ranks)]


# --- several ranks


def test_a_callback_of_the_chief_alone_may_want_the_metrics_of_each_batch(trial_task: Any) -> None:
    setup = """
class Workload(pytorch.PyTorchCallback):
    def on_training_workload_end(self, avg_metrics, batch_metrics):
        Path(f"workload{RANK}").write_text(str(len(batch_metrics)))
if RANK == 0:
    callbacks["workload"] = Workload()
"""
    run_ranks(trial_task, setup)
    assert (trial_task.root / "work" / "workload0").read_text() == "3"
    assert not (trial_task.root / "work" / "workload1").exists()


def test_ranks_that_start_from_another_trials_weights_draw_their_own_numbers(trial_task: Any) -> None:
    run_ranks(trial_task, ranks=1)
    trial_task.set_info(trial_id=99)
    left, right = run_ranks(trial_task, LATEST=trial_task.newest_checkpoint())
    assert not set(left["draws"]) & set(right["draws"])


def test_ranks_that_the_checkpoint_does_not_know_draw_their_own_numbers(trial_task: Any) -> None:
    first = run_ranks(trial_task, "Batch = lambda count: pytorch.Batch(count // 2)", ranks=1)[0]["draws"]
    ranks = run_ranks(trial_task, ranks=3, LATEST=trial_task.newest_checkpoint())
    drawn = [*first, *(number for rank in ranks for number in rank["draws"])]
    assert len(set(drawn)) == len(drawn) == 3 + 3 * 3


@pytest.mark.parametrize("who", ["RANK >= 0", "RANK == 0", "RANK == 1"])
def test_invalid_hp_on_any_rank_is_reported(trial_task: Any, who: str) -> None:
    setup = f"""
def broken(batch, epoch_idx, batch_idx):
    raise det.InvalidHP("too wide")
if {who}:
    trial.train_batch = broken
"""
    status, output = trial_task.run(PROGRAM % setup.replace("\n", "\n    "), ranks=2)
    reasons = {record["reason"] for record in trial_task.records() if record["kind"] == "early_exit"}
    assert reasons == {"INVALID_HP"}, output
    assert "only the chief" not in output
    if who == "RANK >= 0":
        assert status == 0, output


def test_a_validation_metric_that_differs_by_rank_keeps_the_ranks_in_step(trial_task: Any) -> None:
    setup = """
class Odd(pytorch.MetricReducer):
    def reset(self): pass
    def per_slot_reduce(self): return 0
    def cross_slot_reduce(self, parts): return float("nan") if RANK == 1 else 1.0
context.wrap_reducer(Odd(), name="val_score", for_training=False)
fit = pytorch.Trainer.fit
pytorch.Trainer.fit = lambda self, **kw: fit(self, **{**kw, "checkpoint_policy": "best"})
"""
    trial_task.set_config(searcher={"name": "single", "metric": "val_score", "smaller_is_better": True})
    run_ranks(trial_task, setup)


# --- the end of a trial that failed


def test_a_failing_shutdown_does_not_hide_why_the_trial_ends(storage: str, caplog: pytest.LogCaptureFixture) -> None:
    class Shutdown(pytorch.PyTorchCallback):
        def on_trial_shutdown(self) -> None:
            raise RuntimeError("the second error")

    class Fails(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> Any:
            raise ValueError("the first error")

    with (
        pytest.raises(ValueError, match="the first error"),
        pytorch.init(exp_conf={}, enable_tensorboard_logging=False, checkpoint_storage=storage) as context,
    ):
        pytorch.Trainer(Fails(context, callbacks={"one": Shutdown()}), context).fit(max_length=Batch(2))
    assert "the second error" in caplog.text
    with (
        pytest.raises(pytorch.CallbackFailed, match="the second error"),
        pytorch.init(exp_conf={}, enable_tensorboard_logging=False, checkpoint_storage=storage) as context,
    ):
        pytorch.Trainer(OneWeightTrial(context, callbacks={"one": Shutdown()}), context).fit(max_length=Batch(2))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, det.InvalidHP])
def test_what_was_being_written_when_training_failed_is_committed(
    in_trial: Any, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    from detlab.pytorch.checkpoint import writer

    write = writer.write_encoded

    def slow(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.5)
        write(*args, **kwargs)

    monkeypatch.setattr(writer, "write_encoded", slow)

    class Fails(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 6:
                raise error("at six")
            return super().train_batch(batch, epoch_idx, batch_idx)

    expected = SystemExit if error is det.InvalidHP else error
    with pytest.raises(expected), pytorch.init(enable_tensorboard_logging=False) as context:
        pytorch.Trainer(Fails(context), context).fit(max_length=Batch(20), checkpoint_period=Batch(5))
    assert [view["steps_completed"] for view in in_trial.api.checkpoints.values()] == [5]


# --- resuming


def test_the_tensors_of_a_checkpoint_are_freed_once_they_are_loaded(in_trial: Any) -> None:
    train(fit={"max_length": Batch(5)}, momentum=0.9)
    alive: dict[str, Any] = {}

    class Looks(pytorch.PyTorchCallback):
        def on_checkpoint_load_start(self, checkpoint: dict[str, Any] | None) -> None:
            assert checkpoint is not None
            alive["model"] = weakref.ref(checkpoint["models_state_dict"][0]["w"])

        def on_training_epoch_end(self, epoch_idx: int) -> None:
            gc.collect()
            alive["now"] = alive["model"]()

    fit = {"max_length": Epoch(1), "latest_checkpoint": in_trial.newest_checkpoint()}
    train(fit=fit, momentum=0.9, callbacks={"looks": Looks()})
    assert alive["now"] is None


def test_starting_anew_supersedes_what_the_attempts_before_reported(in_trial: Any) -> None:
    train(fit={"max_length": Batch(10)})
    from detlab import info

    in_trial.set_info(latest_checkpoint=in_trial.newest_checkpoint())
    info._load.cache_clear()
    trial = train(fit={"max_length": Batch(5), "latest_checkpoint": False})
    assert [entry[0] for entry in trial.log] == list(range(5))
    assert [record["steps_completed"] for record in in_trial.records() if record["kind"] == "resumed"] == [0]


def test_an_earlier_checkpoint_than_the_newest_supersedes_what_was_reported_beyond_it(in_trial: Any) -> None:
    train(fit={"max_length": Batch(10), "checkpoint_period": Batch(5), "checkpoint_policy": "none"})
    from detlab import info

    by_steps = {view["steps_completed"]: view["uuid"] for view in in_trial.api.checkpoints.values()}
    in_trial.set_info(latest_checkpoint=by_steps[10])
    info._load.cache_clear()
    train(fit={"max_length": Batch(10), "latest_checkpoint": by_steps[5]})
    assert [record["steps_completed"] for record in in_trial.records() if record["kind"] == "resumed"] == [5]


def test_a_checkpoint_whose_folder_is_gone_is_no_reason_to_give_up(in_trial: Any) -> None:
    import shutil

    calm = train(fit={"max_length": Batch(20), "checkpoint_period": Batch(5), "checkpoint_policy": "none"}, noise=0.1)
    by_steps = {view["steps_completed"]: view["uuid"] for view in in_trial.api.checkpoints.values()}
    shutil.rmtree(in_trial.checkpoints / by_steps[20])
    (in_trial.checkpoints / by_steps[15] / "trainer.json").unlink()
    again = train(fit={"max_length": Batch(20), "latest_checkpoint": by_steps[20]}, noise=0.1)
    assert again.log == calm.log[10:]


def test_the_initial_batch_is_that_of_the_checkpoint(in_trial: Any) -> None:
    train(fit={"max_length": Batch(5)})
    trial = train(fit={"max_length": Batch(10), "latest_checkpoint": in_trial.newest_checkpoint()})
    assert trial.context.get_initial_batch() == 5


def test_progress_goes_on_when_batches_get_another_size(in_trial: Any) -> None:
    train(fit={"max_length": Epoch(4), "reporting_period": Batch(100)}, batch_size=4)
    in_trial.records()
    uuid = in_trial.newest_checkpoint()
    start = len(in_trial.records())
    train(fit={"max_length": Epoch(8), "latest_checkpoint": uuid, "reporting_period": Epoch(1)}, batch_size=20)
    seen = [record["progress"] for record in in_trial.records()[start:] if record["kind"] == "progress"]
    assert seen == [5 / 8, 6 / 8, 7 / 8, 1.0]


def test_gradients_of_an_unfinished_aggregation_are_dropped_when_its_length_changes(
    storage: str, tmp_path: Path
) -> None:
    train(storage, fit={"max_length": Batch(5), "checkpoint_policy": "none"}, aggregation=4)
    (uuid,) = [path.name for path in Path(storage).iterdir() if (path / "manifest.json").exists()]
    trial = train(storage, fit={"max_length": Batch(7), "latest_checkpoint": uuid}, aggregation=1)
    assert [entry[4] for entry in trial.log] == pytest.approx([0.2, 0.36], abs=1e-12)


# --- small things


def test_metrics_that_a_callback_adds_to_a_validation_are_reported(in_trial: Any) -> None:
    class Adds(pytorch.PyTorchCallback):
        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            metrics["twice"] = torch.tensor(2 * metrics["val_w"])

    train(fit={"max_length": Batch(3)}, callbacks={"adds": Adds()})
    (reported,) = in_trial.metrics("validation")
    assert reported["twice"] == pytest.approx(2 * reported["val_w"])


def test_evaluate_batch_may_leave_the_index_out(in_trial: Any) -> None:
    class Short(OneWeightTrial):
        def evaluate_batch(self, batch: torch.Tensor) -> dict[str, Any]:
            return {"val_loss": float(len(batch))}

    with pytorch.init(enable_tensorboard_logging=False) as context:
        pytorch.Trainer(Short(context), context).fit(max_length=Batch(2))
    assert in_trial.metrics("validation")[0]["val_loss"] == 4.0


def test_memory_does_not_grow_with_the_number_of_batches(storage: str) -> None:
    counts: dict[int, int] = {}

    class Counts(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> Any:
            loss = ((self.model(batch) - batch) ** 2).mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            if batch_idx in {1250, 4950}:
                gc.collect()
                counts[batch_idx] = len(gc.get_objects()) + sum(type(one) is torch.Tensor for one in gc.get_objects())
            return {"loss": loss}

    with pytorch.init(exp_conf={}, enable_tensorboard_logging=False, checkpoint_storage=storage) as context:
        trial = Counts(context, count=4000)
        pytorch.Trainer(trial, context).fit(max_length=Batch(5000), checkpoint_policy="none")
    assert counts[4950] - counts[1250] < 100


@pytest.mark.parametrize("value", [["uuid"], {"uuid": 1}, 0, True])
def test_a_latest_checkpoint_of_any_wrong_type_is_named(storage: str, value: Any) -> None:
    with pytest.raises(pytorch.TrainerError, match="latest_checkpoint must be"):
        train(storage, fit={"max_length": Batch(5), "latest_checkpoint": value})


def test_a_nan_in_the_last_batch_of_an_epoch_is_of_that_epoch(storage: str, caplog: pytest.LogCaptureFixture) -> None:
    class Diverges(OneWeightTrial):
        def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> Any:
            metrics = super().train_batch(batch, epoch_idx, batch_idx)
            return {"loss": metrics["loss"] * (float("nan") if batch_idx == 9 else 1.0)}

    with (
        caplog.at_level(logging.WARNING),
        pytorch.init(exp_conf={}, enable_tensorboard_logging=False, checkpoint_storage=storage) as context,
    ):
        pytorch.Trainer(Diverges(context), context).fit(max_length=Epoch(3), reporting_period=Batch(25))
    assert "first at batch 9" in caplog.text
    assert "epoch 1" not in caplog.text
    assert "epoch 2" not in caplog.text
