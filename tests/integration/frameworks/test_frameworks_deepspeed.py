"""What a DeepSpeedTrial does in a trial, with DeepSpeed itself on CPUs: ZeRO on gloo, in an environment of its own."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from framework_task import ROOT, FrameworkTask

PYTHON = ROOT / ".venv-deepspeed" / "bin" / "python"
PROGRAM = "deepspeed_digits.py"
EPOCH = {1: 36, 2: 18}
"""Steps of an epoch, by the number of ranks."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def new_trial(new_task: Callable[[str], FrameworkTask]) -> Callable[..., FrameworkTask]:
    """Makes the task of a trial of two epochs."""
    if not PYTHON.exists():
        assert "CI" not in os.environ, "make setup-test makes .venv-deepspeed"
        pytest.skip("no .venv-deepspeed: make setup-test")

    def make(name: str, **config: object) -> FrameworkTask:
        task = new_task(name)
        task.python, task.launcher = PYTHON, "detlab.launch.deepspeed"
        task.set_info(hparams={"overwrite_deepspeed_args": config})
        task.set_config(searcher={"name": "single", "metric": "accuracy", "smaller_is_better": False})
        return task

    return make


def losses(task: FrameworkTask) -> dict[int, float]:
    return {step: metrics["loss"] for step, metrics in task.metrics("training").items()}


@pytest.mark.soak
@pytest.mark.parametrize("stage", [1, 3])
def test_zero_on_two_ranks_stops_and_goes_on_to_the_same_losses(
    stage: int, new_trial: Callable[..., FrameworkTask]
) -> None:
    config = {"zero_optimization": {"stage": stage}}
    calm = new_trial("calm", **config)
    status, output = calm.run(PROGRAM, ranks=2)
    assert status == 0, output
    last = 2 * EPOCH[2]
    assert list(losses(calm)) == list(range(1, last + 1))
    assert losses(calm)[last] < losses(calm)[1]
    validations = calm.metrics("validation")
    assert {step: metrics["epochs"] for step, metrics in validations.items()} == {18: 1, 36: 2}
    files = calm.checkpoints()[-1]["files"]
    assert {"rank-0.json", "rank-1.json", "trial_state.json"} <= set(files)
    assert sum("optim_states" in name for name in files) == 2, list(files)

    other = new_trial("other", **config)
    status, output = other.interrupt(PROGRAM, at_step=4, ranks=2)
    assert status == 0, output
    (stopped,) = other.checkpoints()
    assert 4 <= stopped["steps_completed"] < last
    assert other.api.acks == 1
    other.set_info(latest_checkpoint=stopped["uuid"], run=2)
    status, output = other.run(PROGRAM, ranks=2)
    assert status == 0, output
    assert losses(other) == losses(calm)
    assert other.metrics("validation") == validations


@pytest.mark.soak
def test_micro_batches_make_one_batch(new_trial: Callable[..., FrameworkTask]) -> None:
    task = new_trial("task", gradient_accumulation_steps=4, train_micro_batch_size_per_gpu=16)
    status, output = task.run(PROGRAM)
    assert status == 0, output
    assert list(losses(task)) == list(range(1, 37))  # 72 micro-batches of an epoch make 18 steps
    assert list(task.metrics("validation")) == [18, 36]


@pytest.mark.soak
def test_a_checkpoint_is_read_by_as_many_ranks_and_its_own_trial(new_trial: Callable[..., FrameworkTask]) -> None:
    task = new_trial("task")
    status, output = task.run(PROGRAM)
    assert status == 0, output
    uuid = task.checkpoints()[-1]["uuid"]
    task.set_info(latest_checkpoint=uuid, run=2)
    status, output = task.run(PROGRAM, ranks=2)
    assert status == 1
    assert f"checkpoint {uuid} was written by 1 ranks, and this trial has 2" in output
    task.set_info(trial_id=8)
    status, output = task.run(PROGRAM)
    assert status == 1
    assert f"checkpoint {uuid} is of another trial, and DeepSpeed unpickles it" in output
    status, output = task.run(PROGRAM, DETLAB_UNPICKLE_CHECKPOINTS="1")
    assert status == 0, output


@pytest.mark.soak
def test_a_class_is_trained_as_the_config_says(new_trial: Callable[..., FrameworkTask]) -> None:
    task = new_trial("task")
    task.set_config(
        searcher={"name": "single", "metric": "accuracy", "max_length": {"batches": 5}},
        scheduling_unit=2,
        min_validation_period={"batches": 4},
    )
    script = task.root / "work" / "trains.py"
    script.write_text("import detlab.pytorch.__main__ as main\nmain.main(['deepspeed_digits:DigitsTrial'])\n")
    status, output = task.run(script)
    assert status == 0, output
    assert list(task.metrics("training")) == [2, 4, 5]
    assert list(task.metrics("validation")) == [4, 5]


@pytest.mark.soak
def test_a_process_may_train_twice_as_a_notebook_does(new_trial: Callable[..., FrameworkTask]) -> None:
    """Regression: DeepSpeed kept groups of ranks made of a process group that had been taken down."""
    task = new_trial("task")
    script = task.root / "work" / "twice.py"
    script.write_text(
        "from deepspeed_digits import DigitsTrial\n"
        "from detlab import pytorch\n"
        "from detlab.pytorch import deepspeed\n"
        "for length in (2, 3):\n"
        "    with deepspeed.init() as context:\n"
        "        deepspeed.Trainer(DigitsTrial(context), context).fit(max_length=pytorch.Batch(length))\n"
    )
    status, output = task.run(script)
    assert status == 0, output
    assert [view["steps_completed"] for view in task.checkpoints()] == [2, 3]
