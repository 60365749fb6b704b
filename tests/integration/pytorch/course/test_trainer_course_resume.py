"""Resuming a trial at each boundary, from another trial's checkpoint, and past altered files."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from trainer_formulas import NEAR, ones
from trainer_one_weight import OneWeight, OneWeightTrial, Recorder, newest, train

from detlab.errors import CheckpointError
from detlab.pytorch import Batch, LRScheduler


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
        "step_mode": LRScheduler.StepMode.STEP_EVERY_BATCH,
        "gamma": 0.97,
        "aggregation": aggregation,
    }
    calm = train(storage, fit={"max_length": Batch(23), "validation_period": Batch(at)}, **options)
    first = train(storage, fit={"max_length": Batch(at)}, **options)
    rest = train(storage, fit={"max_length": Batch(23), "latest_checkpoint": newest(storage)}, seed=99, **options)
    assert entries(first) + entries(rest) == entries(calm)  # bit by bit: ids, losses, weights
    assert rest.weight == calm.weight


class CompiledBefore(OneWeightTrial):
    def build_model(self) -> Any:
        return torch.compile(OneWeight(), backend="aot_eager", fullgraph=True)


class CompiledAfter(OneWeightTrial):
    def __init__(self, context: Any, **options: Any) -> None:
        super().__init__(context, **options)
        self.model = torch.compile(self.model, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("trial_class", [CompiledBefore, CompiledAfter])
def test_resume_of_a_compiled_model_is_exact(storage: str, trial_class: Any) -> None:
    torch.compiler.reset()
    options: dict[str, Any] = {"kind": "range", "shuffle": True, "momentum": 0.9, "noise": 0.3}
    calm = train(storage, trial_class, fit={"max_length": Batch(12), "validation_period": Batch(7)}, **options)
    first = train(storage, trial_class, fit={"max_length": Batch(7)}, **options)
    again = {"max_length": Batch(12), "latest_checkpoint": newest(storage)}
    rest = train(storage, trial_class, fit=again, seed=99, **options)
    assert entries(first) + entries(rest) == entries(calm)  # bit by bit: ids, losses, weights
    assert rest.weight == calm.weight
    plain = train(storage, fit=again, seed=99, **options)  # the names in a checkpoint are the model's own
    assert [entry[2] for entry in plain.log] == [entry[2] for entry in rest.log]
    assert plain.weight == pytest.approx(calm.weight, abs=NEAR)


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
