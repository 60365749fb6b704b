"""Epochs that are no whole number of steps, validations within them, and other settings that make a stop inexact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from framework_task import FrameworkTask

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.soak


@pytest.mark.timeout(400)
def test_lightning_stops_between_optimizer_steps_and_validations(new_task: Callable[[str], FrameworkTask]) -> None:
    program = str(PROGRAMS / "lightning_uneven.py")
    calm = new_task("calm")
    calm.set_config(searcher={"name": "single", "metric": "val_accuracy"})
    status, output = calm.run(program)
    assert status == 0, output
    assert output.rstrip().endswith("after training")
    losses = {step: metrics["loss"] for step, metrics in calm.metrics("training").items()}
    assert list(losses) == list(range(1, 17))  # 24 batches make 8 steps of 3
    validations = calm.metrics("validation")
    assert [view["steps_completed"] for view in calm.checkpoints()] == [16]

    for at_step in (2, 10):
        other = new_task(f"stopped-at-{at_step}")
        other.set_config(searcher={"name": "single", "metric": "val_accuracy"})
        status, output = other.interrupt(program, at_step=at_step)
        assert status == 0, output
        assert "after training" not in output
        (stopped,) = other.checkpoints()
        assert at_step <= stopped["steps_completed"] < 16
        other.set_info(latest_checkpoint=stopped["uuid"], run=2)
        status, output = other.run(program)
        assert status == 0, output
        assert {step: metrics["loss"] for step, metrics in other.metrics("training").items()} == losses
        assert other.metrics("validation") == validations


@pytest.mark.timeout(300)
def test_the_trainer_evaluates_several_sets_into_one_report(new_task: Callable[[str], FrameworkTask]) -> None:
    task = new_task("task")
    task.set_config(searcher={"name": "single", "metric": "eval_even_loss", "max_length": {"batches": 12}})
    status, output = task.interrupt(str(PROGRAMS / "transformers_two_sets.py"), at_step=6, STEP_SECONDS="0.3")
    assert status == 0, output
    assert "after training" not in output
    (stopped,) = task.checkpoints()
    step = stopped["steps_completed"]
    task.set_info(latest_checkpoint=stopped["uuid"], run=2)
    status, output = task.run(str(PROGRAMS / "transformers_two_sets.py"))
    assert status == 0, output
    assert output.rstrip().endswith("after training")
    assert list(task.metrics("training")) == list(range(1, 13))
    validations = task.metrics("validation")
    assert list(validations) == [5, 10, 12]
    wanted = {"eval_even_accuracy", "eval_odd_accuracy", "eval_even_loss", "batches", "epochs"}
    assert [set(metrics) for metrics in validations.values()] == [wanted] * 3
    (kept,) = (task.root.parent / "checkpoints").glob(f"**/{stopped['uuid']}/checkpoint-{step}/my_data.json")
    assert json.loads(kept.read_text()) == {"who": "me"}


@pytest.mark.timeout(300)
def test_weights_that_a_checkpoint_names_otherwise_are_resumed_too(new_task: Callable[[str], FrameworkTask]) -> None:
    """Regression: the Trainer of transformers 5.24 passed over them with a warning, and trained on from new ones."""
    program = str(PROGRAMS / "transformers_renamed.py")
    chosen = {"training_arguments": {"logging_steps": 1, "num_train_epochs": 2}}
    losses = {}
    for name in ("calm", "stopped"):
        task = new_task(name)
        task.set_info(hparams=chosen)
        task.set_config(searcher={"name": "single", "metric": "eval_accuracy"})
        if name == "stopped":
            status, output = task.interrupt(program, at_step=5)
            assert status == 0, output
            task.set_info(latest_checkpoint=task.checkpoints()[-1]["uuid"], run=2)
        status, output = task.run(program)
        assert status == 0, output
        losses[name] = {step: metrics["loss"] for step, metrics in task.metrics("training").items()}
    assert losses["stopped"] == losses["calm"]
