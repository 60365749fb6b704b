"""When a trial's callbacks are called: names, order, counts, after a resume, and one that raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainer_one_weight import Recorder, train

from detlab import pytorch
from detlab.pytorch import Batch
from testbed.stores import names_in


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
    left = names_in(Path(storage))
    complete = [name for name in left if (Path(storage) / name / "manifest.json").exists()]
    assert len(complete) == (1 if hook == "on_checkpoint_upload_end" else 0)
    assert [name for name in left if name not in complete and not name.startswith(".")] == []
