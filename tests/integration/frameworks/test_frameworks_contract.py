"""What each integration does for a trial, tried with the framework itself on programs of examples/frameworks.

One contract for all: metrics in their groups at their steps, with what a searcher measures time by; checkpoints; a stop
in the middle that costs no step, and the same losses after it; the chief alone reports. Each promise is kept by one of
them in `make test`, and by all of them in `make soak`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from framework_task import EXAMPLES, FrameworkTask

STEPS_PER_EPOCH = 18
EPOCHS = 4
LAST = STEPS_PER_EPOCH * EPOCHS


@dataclass(frozen=True)
class Door:
    """A program, and what its framework calls things."""

    program: str
    metric: str
    hparams: dict[str, Any]
    every_step: dict[str, Any]
    stops_at_epochs: bool = False

    def prepare(self, task: FrameworkTask, *, time_metric: str = "epochs", max_time: int = EPOCHS) -> FrameworkTask:
        task.set_info(hparams={**self.hparams, **self.every_step})
        task.set_config(
            searcher={
                "name": "adaptive_asha",
                "metric": self.metric,
                "smaller_is_better": False,
                "time_metric": time_metric,
                "max_time": max_time,
                "max_trials": 4,
            }
        )
        return task


DOORS = {
    "transformers": Door(
        "transformers_digits.py",
        "eval_accuracy",
        {},
        {"training_arguments": {"logging_steps": 1, "learning_rate": 3e-3}},
    ),
    "lightning": Door("lightning_digits.py", "val_accuracy", {"lr": 3e-3, "dropout": 0.2}, {"log_every_n_steps": 1}),
    "keras": Door(
        "keras_digits.py", "accuracy", {"lr": 3e-3, "dropout": 0.2}, {"report_period": 1}, stops_at_epochs=True
    ),
}


def soaked(*names: str) -> list[Any]:
    """Return parameters that only `make soak` tries."""
    return [pytest.param(name, marks=pytest.mark.soak) for name in names]


@pytest.fixture(params=["transformers", *soaked("lightning", "keras")])
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


def losses(task: FrameworkTask) -> dict[int, float]:
    return {step: metrics["loss"] for step, metrics in task.metrics("training").items()}


@pytest.mark.timeout(500)
def test_a_trial_that_stops_in_the_middle_goes_on_at_the_next_step_to_the_same_losses(
    door: Door, new_task: Callable[[str], FrameworkTask]
) -> None:
    calm = door.prepare(new_task("calm"))
    status, output = calm.run(door.program)
    assert status == 0, output
    assert list(losses(calm)) == list(range(1, LAST + 1))
    validations = calm.metrics("validation")
    assert {step: metrics["epochs"] for step, metrics in validations.items()} == {18: 1, 36: 2, 54: 3, 72: 4}
    assert {step: metrics["batches"] for step, metrics in validations.items()} == {18: 18, 36: 36, 54: 54, 72: 72}
    assert 0 < validations[LAST][door.metric] <= 1
    assert losses(calm)[LAST] < losses(calm)[1]
    assert [view["steps_completed"] for view in calm.checkpoints()] == [18, 36, 54, 72]
    assert calm.records("progress")
    assert calm.api.acks == 0

    other = door.prepare(new_task("other"))
    status, output = other.interrupt(door.program, at_step=STEPS_PER_EPOCH + 4)
    assert status == 0, output
    assert other.api.acks == 1
    stopped = other.checkpoints()[-1]
    step = stopped["steps_completed"]
    assert step == 36 if door.stops_at_epochs else STEPS_PER_EPOCH + 4 <= step < 36
    assert list(losses(other)) == list(range(1, step + 1))

    other.set_info(latest_checkpoint=stopped["uuid"], run=2)
    status, output = other.run(door.program)
    assert status == 0, output
    assert losses(other) == losses(calm)
    assert {at: metrics[door.metric] for at, metrics in other.metrics("validation").items()} == {
        at: metrics[door.metric] for at, metrics in validations.items()
    }


@pytest.mark.parametrize(
    ("door", "time_metric"),
    [
        pytest.param("transformers", "epochs", marks=pytest.mark.soak),
        ("lightning", "batches"),
        pytest.param("keras", "epochs", marks=pytest.mark.soak),
    ],
    indirect=["door"],
)
def test_code_that_trains_for_another_length_than_the_search_is_told_so(
    door: Door, time_metric: str, new_task: Callable[[str], FrameworkTask]
) -> None:
    task = door.prepare(new_task("task"), time_metric=time_metric, max_time=7)
    if door.program.startswith("transformers"):  # it follows the search, unless its hyperparameters say otherwise
        task.set_info(hparams={"training_arguments": {"num_train_epochs": 5}})
    status, output = task.run(door.program)
    assert status == 1
    assert f"FrameworkError: the search trains for 7 {time_metric}, and the code for " in output
    assert task.metrics("training") == {}


@pytest.mark.parametrize("door", [*soaked("transformers"), "lightning"], indirect=True)
@pytest.mark.timeout(300)
def test_of_two_ranks_one_reports_and_both_store(door: Door, new_task: Callable[[str], FrameworkTask]) -> None:
    task = door.prepare(new_task("task"))
    status, output = task.run(door.program, ranks=2)
    assert status == 0, output
    assert list(losses(task)) == list(range(1, LAST + 1))
    assert list(task.metrics("validation")) == [18, 36, 54, 72]
    files = task.checkpoints()[-1]["files"]
    for rank in range(2):
        assert any(name.endswith((f"rng_state_{rank}.pth", f"rank-{rank}.json")) for name in files), list(files)


@pytest.mark.parametrize("door", soaked("transformers", "lightning"), indirect=True)
@pytest.mark.timeout(500)
def test_two_ranks_stop_together_and_go_on_together(door: Door, new_task: Callable[[str], FrameworkTask]) -> None:
    task = door.prepare(new_task("task"))
    status, output = task.interrupt(door.program, at_step=4, ranks=2)
    assert status == 0, output
    (stopped,) = task.checkpoints()
    task.set_info(latest_checkpoint=stopped["uuid"], run=2)
    status, output = task.run(door.program, ranks=2)
    assert status == 0, output
    assert list(losses(task)) == list(range(1, LAST + 1))


FORGETS = {
    "transformers": ("trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)", "trainer.train()"),
    "lightning": ("ckpt_path=callback.ckpt_path", "ckpt_path=None"),
}


@pytest.mark.soak
@pytest.mark.parametrize("door", ["transformers", *soaked("lightning")], indirect=True)
def test_code_that_forgets_to_resume_is_told_so(door: Door, new_task: Callable[[str], FrameworkTask]) -> None:
    task = door.prepare(new_task("task"))
    status, output = task.run(door.program)
    assert status == 0, output
    task.set_info(latest_checkpoint=task.checkpoints()[0]["uuid"], run=2)
    right, wrong = FORGETS[door.program.partition("_")[0]]
    text = (EXAMPLES / door.program).read_text(encoding="utf-8")
    assert right in text
    script = task.root / "work" / "forgets.py"
    script.write_text(text.replace(right, wrong), encoding="utf-8")
    status, output = task.run(script)
    assert status == 1
    assert "FrameworkError: this attempt of the trial is to resume at step 18, and the Trainer begins at 0" in output
