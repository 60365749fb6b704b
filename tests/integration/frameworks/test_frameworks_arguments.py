"""Training arguments from a trial's hyperparameters and the length of its search, and what does not fit is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from framework_task import FrameworkTask

ASKS = """
import json
from detlab.transformers import training_arguments
args = training_arguments(output_dir="out", max_steps=5, learning_rate=1e-3, weight_decay=0.1)
names = ("max_steps", "num_train_epochs", "learning_rate", "weight_decay", "seed")
print(json.dumps({name: getattr(args, name) for name in names}))
"""


def said(task: FrameworkTask, hparams: dict[str, Any], **searcher: Any) -> dict[str, Any]:
    task.set_info(hparams=hparams, trial_seed=42)
    task.set_config(searcher={"name": "single", "metric": "eval_loss", **searcher})
    script = task.root / "work" / "asks.py"
    script.write_text(ASKS, encoding="utf-8")
    status, output = task.run(script)
    assert status == 0, output
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.mark.soak
def test_the_search_and_the_hyperparameters_count_before_the_code(new_task: Callable[[str], FrameworkTask]) -> None:
    task = new_task("task")
    chosen = {"training_arguments": {"learning_rate": 0.5}, "learning_rate": 9.0}
    assert said(task, chosen, max_time=7, time_metric="epochs") == {
        "max_steps": -1, "num_train_epochs": 7, "learning_rate": 0.5, "weight_decay": 0.1, "seed": 42,
    }  # fmt: skip
    assert said(task, {"training_arguments": {"max_steps": 9, "seed": 1}}, max_length={"batches": 100}) == {
        "max_steps": 9, "num_train_epochs": 3.0, "learning_rate": 1e-3, "weight_decay": 0.1, "seed": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        (
            {"training_arguments": {"learning_rat": 1, "max_step": 2}},
            "hyperparameters.training_arguments has names that TrainingArguments of transformers 5.",
        ),
        ({"training_arguments": 3}, "hyperparameters.training_arguments must be a dict of training arguments, not 3"),
    ],
)
def test_names_that_there_are_not_are_all_listed(
    hparams: dict[str, Any], message: str, new_task: Callable[[str], FrameworkTask]
) -> None:
    task = new_task("task")
    task.set_info(hparams=hparams)
    script = task.root / "work" / "asks.py"
    script.write_text(ASKS, encoding="utf-8")
    status, output = task.run(script)
    assert status == 1
    assert message in output
    if "dict" not in message:
        assert "learning_rat (did you mean learning_rate?), max_step (did you mean max_steps?)" in output


OTHERS = """
import sys
from importlib import metadata
found = metadata.version
metadata.version = lambda name: sys.argv[2] if name == sys.argv[1] else found(name)
import importlib
try:
    importlib.import_module("detlab." + sys.argv[1])
except ImportError as error:
    print("refused:", error)
assert not sys.argv[1] in sys.modules  # before the framework itself is imported, which may fail in its own words
"""


@pytest.mark.parametrize(
    ("package", "version", "is_what"),
    [("transformers", "4.57.1", "older"), ("lightning", "3.0.0", "newer"), ("keras", "2.15.0", "older")],
)
def test_a_door_refuses_another_version_before_it_imports_the_framework(
    package: str, version: str, is_what: str, new_task: Callable[[str], FrameworkTask]
) -> None:
    task = new_task("task")
    script = task.root / "work" / "others.py"
    script.write_text(
        OTHERS.replace("sys.argv[1]", repr(package)).replace("sys.argv[2]", repr(version)), encoding="utf-8"
    )
    status, output = task.run(script)
    assert status == 0, output
    assert f"refused: {package} {version} is {is_what} than detlab.{package} was tested with" in output


def test_keras_on_a_backend_that_is_not_installed_is_told_of_torch(new_task: Callable[[str], FrameworkTask]) -> None:
    task = new_task("task")
    script = task.root / "work" / "asks.py"
    script.write_text("import detlab.keras", encoding="utf-8")
    status, output = task.run(script, KERAS_BACKEND="tensorflow")
    assert status == 1
    assert "FrameworkVersionError: Keras runs on tensorflow, which is not installed\nSet KERAS_BACKEND=torch" in output
