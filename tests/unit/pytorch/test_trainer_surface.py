"""Names, arguments and defaults of what scripts are written against: Determined's, and after them a few of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from detlab import pytorch
from detlab.pytorch import Batch
from detlab.pytorch.callback import HOOKS
from detlab.pytorch.trainer import HANG_TIMEOUT

REQUIRED = inspect.Parameter.empty


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Arguments and their defaults, in order, without `self` and `**kwargs`."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


def test_fit_takes_determineds_arguments_in_their_order() -> None:
    found = arguments(pytorch.Trainer.fit)
    reporting = found["reporting_period"]
    assert (type(reporting), reporting.value) == (Batch, 100)
    assert list(found.items()) == [
        ("checkpoint_period", None),
        ("validation_period", None),
        ("max_length", None),
        ("reporting_period", reporting),
        ("checkpoint_policy", "best"),
        ("latest_checkpoint", None),
        ("step_zero_validation", False),
        ("test_mode", False),
        ("profiling_enabled", False),
    ]
    assert list(arguments(pytorch.Trainer)) == ["trial", "context"]


def test_init_takes_determineds_arguments_by_name_and_three_of_ours() -> None:
    assert arguments(pytorch.init) == {
        "hparams": None,
        "exp_conf": None,
        "distributed": None,
        "aggregation_frequency": 1,
        "enable_tensorboard_logging": True,
        # ours
        "checkpoint_storage": None,
        "hang_timeout": HANG_TIMEOUT,
        "strategy": None,
    }
    kinds = {parameter.kind for parameter in inspect.signature(pytorch.init).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


TRIAL = {
    "__init__": ["context"],
    "train_batch": ["batch", "epoch_idx", "batch_idx"],
    "build_training_data_loader": [],
    "build_validation_data_loader": [],
    "build_callbacks": [],
    "evaluate_batch": ["batch", "batch_idx"],
    "evaluate_full_dataset": ["data_loader"],
    "evaluation_reducer": [],
    "get_batch_length": ["batch"],
}


def test_the_methods_of_a_trial_are_determineds() -> None:
    found = {name: arguments(item) for name, item in vars(pytorch.PyTorchTrial).items() if inspect.isfunction(item)}
    assert found == {name: dict.fromkeys(names, REQUIRED) for name, names in TRIAL.items()}


CALLBACK = {
    "on_trial_startup": ["first_batch_idx", "checkpoint_uuid"],
    "on_trial_shutdown": [],
    "on_training_start": [],
    "on_training_epoch_start": ["epoch_idx"],
    "on_training_epoch_end": ["epoch_idx"],
    "on_training_workload_end": ["avg_metrics", "batch_metrics"],
    "on_validation_start": [],
    "on_validation_end": ["metrics"],
    "on_validation_epoch_start": [],
    "on_validation_epoch_end": ["outputs"],
    "on_checkpoint_load_start": ["checkpoint"],
    "on_checkpoint_save_start": ["checkpoint"],
    "on_checkpoint_write_end": ["checkpoint_dir"],
    "on_checkpoint_end": ["checkpoint_dir"],
    "on_checkpoint_upload_end": ["uuid"],
    "state_dict": [],
    "load_state_dict": ["state_dict"],
}


def test_the_seventeen_hooks_are_determineds() -> None:
    assert sorted(HOOKS) == sorted(CALLBACK)
    assert len(HOOKS) == 17


@pytest.mark.parametrize("hook", CALLBACK)
def test_a_hook_takes_determineds_arguments(hook: str) -> None:
    assert arguments(getattr(pytorch.PyTorchCallback, hook)) == dict.fromkeys(CALLBACK[hook], REQUIRED)


def test_the_loader_takes_determineds_arguments() -> None:
    parameters = inspect.signature(pytorch.load_trial_from_checkpoint_path).parameters
    assert arguments(pytorch.load_trial_from_checkpoint_path) == {
        "path": REQUIRED,
        "trial_class": None,
        "trial_kwargs": None,
        "torch_load_kwargs": None,
    }
    assert parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD


def test_configure_profiler_warns_and_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    trainer = object.__new__(pytorch.Trainer)
    trainer.configure_profiler(True, enabled=True, begin_on_batch=1, end_after_batch=2)
    assert "call fit(..., profiling_enabled=True)" in caplog.text
    assert list(arguments(pytorch.Trainer.configure_profiler).values()) == [True, False, 0, None]


def test_contexts_take_determineds_arguments_by_position() -> None:
    names = {
        pytorch.PyTorchTrialContext: (
            "core_context trial_seed hparams slots_per_trial num_gpus exp_conf aggregation_frequency steps_completed "
            "managed_training debug_enabled enable_tensorboard_logging"
        ),
        pytorch.CheckpointLoadContext: "hparams exp_conf",
    }
    for context, expected in names.items():
        parameters = inspect.signature(context).parameters.values()
        positional = [item.name for item in parameters if item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert positional == expected.split()
    context = pytorch.CheckpointLoadContext({"lr": 0.5}, {"name": "mine"})
    assert (context.get_hparam("lr"), context.get_experiment_config()["name"]) == (0.5, "mine")
