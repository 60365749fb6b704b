"""An entrypoint of the form `module:Class`: the command, the arguments it stands for, and mistakes in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detlab.launch.torch_distributed import split_arguments, torchrun_command
from detlab.pytorch import Batch, Epoch, TrainerError
from detlab.pytorch.__main__ import fit_arguments, load_class
from detlab.schemas.expconf import resolve

MODULE = """
from detlab.pytorch import PyTorchTrial

class Outer:
    class Inner(PyTorchTrial):
        pass

class Mine(PyTorchTrial):
    pass

class Other:
    pass

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"entry_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def config(**keys: Any) -> dict[str, Any]:
    raw = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "x", "max_length": {"batches": 7}}, **keys}
    return resolve(raw)


def test_the_launcher_runs_the_class_in_every_rank() -> None:
    overrides, script = split_arguments(["--nproc_per_node=2", "--", "--trial", "model_def:Mine"])
    command = torchrun_command(overrides, script, {})
    assert command[-6:] == ["RANK", "--", sys.executable, "-m", "detlab.pytorch", "model_def:Mine"]


def test_a_class_is_found_by_its_path(module: str) -> None:
    assert load_class(f"{module}:Mine").__name__ == "Mine"
    assert load_class(f"{module}:Outer.Inner").__name__ == "Inner"


def test_a_name_that_is_no_trial_class_says_what_it_is(module: str) -> None:
    for name, words in (
        ("Mine", "does not name a trial class"),
        ("no_such_module_here:Mine", "no module 'no_such_module_here'"),
        (f"{module}.sub:Mine", "no module"),
        (f"{module}:Missing", "classes in it: Mine, Other, Outer"),
        (f"{module}:Outer.Missing", "has no 'Outer.Missing'"),
        (f"{module}:Other", "not a subclass of detlab.pytorch.PyTorchTrial"),
        (f"{module}:number", "not a subclass"),
    ):
        with pytest.raises(TrainerError) as caught:
            load_class(name)
        assert words in str(caught.value), name


def test_a_module_that_imports_a_missing_one_keeps_its_own_error(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "entry_broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        load_class("entry_broken:Trial")


def test_the_defaults_of_a_config() -> None:
    assert fit_arguments(config(), {}) == {
        "validation_period": None,
        "checkpoint_period": None,
        "reporting_period": Batch(100),
        "max_length": Batch(7),
        "checkpoint_policy": "best",
        "step_zero_validation": False,
        "profiling_enabled": False,
    }


def test_every_key_of_a_config_is_honoured() -> None:
    arguments = fit_arguments(
        config(
            min_validation_period={"epochs": 2},
            min_checkpoint_period={"records": 640},
            scheduling_unit=5,
            records_per_epoch=1000,
            perform_initial_validation=True,
            checkpoint_policy="none",
            profiling={"enabled": True},
            searcher={"name": "single", "metric": "x", "max_length": {"records": 100}},
        ),
        {"global_batch_size": 64},
    )
    assert arguments == {
        "validation_period": Epoch(2),
        "checkpoint_period": Batch(10),
        "reporting_period": Batch(5),
        "max_length": Batch(1),
        "checkpoint_policy": "none",
        "step_zero_validation": True,
        "profiling_enabled": True,
    }


@pytest.mark.parametrize(
    ("searcher", "length"),
    [
        ({"name": "random", "max_trials": 1, "max_length": 9}, Batch(9)),
        ({"name": "random", "max_trials": 1, "max_length": {"epochs": 3}}, Epoch(3)),
        ({"name": "adaptive_asha", "max_trials": 1, "time_metric": "epochs", "max_time": 4}, Epoch(4)),
        ({"name": "adaptive_asha", "max_trials": 1, "time_metric": "batches", "max_time": 4}, Batch(4)),
    ],
)
def test_the_length_is_the_searchers(searcher: dict[str, Any], length: Any) -> None:
    assert fit_arguments(config(searcher={"metric": "x", **searcher}), {})["max_length"] == length


def test_a_config_that_does_not_say_how_to_train_lists_everything() -> None:
    with pytest.raises(TrainerError) as caught:
        fit_arguments(
            config(
                searcher={
                    "name": "adaptive_asha",
                    "metric": "x",
                    "max_trials": 1,
                    "time_metric": "hours",
                    "max_time": 4,
                },
                min_validation_period={"records": 10},
            ),
            {"global_batch_size": "big"},
        )
    assert "searcher.max_time counts 'hours'" in str(caught.value)
    assert "min_validation_period counts records: it needs the hyperparameter global_batch_size, not 'big'" in str(
        caught.value
    )
    with pytest.raises(TrainerError, match=r"searcher\.max_length is missing"):
        fit_arguments(config(searcher={"name": "single", "metric": "x"}), {})


@pytest.mark.slow
def test_off_cluster_it_says_what_to_do_instead(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
    command = [sys.executable, "-m", "detlab.pytorch", "model_def:Mine"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "with pytorch.init() as context:" in done.stderr
    assert "Traceback" not in done.stderr
