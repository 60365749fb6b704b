"""Train a `PyTorchTrial` as the experiment's config says: `python3 -m detlab.pytorch MODULE:CLASS`.

This is what an entrypoint of the deprecated form `module:Class` runs, on a cluster only. Periods, length, policy and
`optimizations` come from the config; a script with `pytorch.init()` and `Trainer.fit` sets them itself.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.info import ClusterInfo, get_cluster_info
from detlab.pytorch.context.trial_context import PyTorchTrialContext
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.trainer import Trainer, init
from detlab.pytorch.trial import PyTorchTrial, make
from detlab.pytorch.units import Batch, Epoch, TrainUnit

_FORMS = "take (self, context) or (self, context, hparams), or write a script that calls Trainer.fit()"
_BATCHES = frozenset({"batches", "steps", "steps_completed"})
"""Time metrics of searchers that count batches."""


def load_class(name: str) -> type[Any]:
    """Return the class that `MODULE:CLASS` names.

    Raises:
        TrainerError: There is no such module or class, or it is neither a `PyTorchTrial` nor a `DeepSpeedTrial`.
        ModuleNotFoundError: The module itself imports one that is not installed.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise TrainerError(
            f"{name!r} does not name a trial class", hint="write MODULE:CLASS, such as model_def:MyTrial"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports another one that is not
        raise TrainerError(
            f"{name}: there is no module {error.name!r} in {Path.cwd()} or among the installed ones",
            hint="submit the directory that holds it as the experiment's code",
        ) from None
    for part in path.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(found).items() if isinstance(value, type)]
            raise TrainerError(
                f"{name}: {module_name} has no {path!r}", hint=f"classes in it: {', '.join(sorted(known)) or 'none'}"
            )
        found = getattr(found, part)
    if not isinstance(found, type) or not (issubclass(found, PyTorchTrial) or _is_deepspeed(found)):
        raise TrainerError(f"{name} is not a subclass of detlab.pytorch.PyTorchTrial, but {found!r}")
    return found


def _is_deepspeed(trial_class: type) -> bool:
    """Return whether it is a `DeepSpeedTrial`, whose module it has imported then."""
    module = sys.modules.get("detlab.pytorch.deepspeed")
    return module is not None and issubclass(trial_class, module.DeepSpeedTrial)


def fit_arguments(config: Mapping[str, Any], hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Trainer.fit` that follow from a resolved experiment config.

    Epochs are as long as the data loader says; `records_per_epoch` was for other frameworks.

    Args:
        config: The experiment config with its defaults.
        hparams: Values of the hyperparameters; lengths in records need `global_batch_size`.

    Raises:
        TrainerError: The length of training is missing or cannot be converted; all mistakes are listed.
    """
    problems: list[str] = []

    def unit(key: str, length: Any) -> TrainUnit | None:
        (name, count), *_ = length.items() if isinstance(length, Mapping) else [("batches", length)]
        if not count:
            return None
        if name == "epochs":
            return Epoch(int(count))
        if name == "batches":
            return Batch(int(count))
        size = hparams.get("global_batch_size")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            problems.append(f"{key} counts records: it needs the hyperparameter global_batch_size, not {size!r}")
            return None
        return Batch(max(1, int(count) // size))

    arguments = {
        "validation_period": unit("min_validation_period", config.get("min_validation_period") or 0),
        "checkpoint_period": unit("min_checkpoint_period", config.get("min_checkpoint_period") or 0),
        "reporting_period": Batch(int(config.get("scheduling_unit") or 100)),
        "max_length": unit(*_length(config.get("searcher") or {}, problems)),
        "checkpoint_policy": config.get("checkpoint_policy") or "best",
        "step_zero_validation": bool(config.get("perform_initial_validation")),
        "profiling_enabled": bool((config.get("profiling") or {}).get("enabled")),
    }
    if problems:
        raise TrainerError.of("the experiment config does not say how to train this trial:", problems)
    return arguments


def _length(searcher: Mapping[str, Any], problems: list[str]) -> tuple[str, Any]:
    if searcher.get("max_length"):
        return "searcher.max_length", searcher["max_length"]
    if not searcher.get("max_time"):
        problems.append("searcher.max_length is missing: write, for example, max_length: {epochs: 5}")
    elif searcher.get("time_metric") == "epochs":
        return "searcher.max_time", {"epochs": searcher["max_time"]}
    elif searcher.get("time_metric") in _BATCHES:
        return "searcher.max_time", {"batches": searcher["max_time"]}
    else:
        problems.append(
            f"searcher.max_time counts {searcher.get('time_metric')!r}, and the trainer counts batches or epochs: "
            "add searcher.max_length"
        )
    return "searcher.max_length", 0


def _apply(optimizations: Mapping[str, Any], context: PyTorchTrialContext) -> None:
    """Make what the config says the default of `wrap_optimizer`."""
    fp16 = bool(optimizations.get("gradient_compression"))
    average = optimizations.get("average_aggregated_gradients") is not False
    plain = context.wrap_optimizer

    def wrap_optimizer(
        optimizer: Any,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> Any:
        return plain(
            optimizer,
            backward_passes_per_step,
            fp16 if fp16_compression is None else fp16_compression,
            average if average_aggregated_gradients is None else average_aggregated_gradients,
        )

    if fp16 or not average:
        context.wrap_optimizer = wrap_optimizer  # type: ignore[method-assign]  # the config changes its defaults


def train(trial_class: type[Any], info: ClusterInfo) -> None:
    """Train the trial of this task to its end.

    Raises:
        TrainerError: The config does not describe the training, or the trial cannot be trained.
    """
    config = info.trial._config
    arguments = fit_arguments(config, info.trial.hparams)
    if _is_deepspeed(trial_class):
        from detlab.pytorch import deepspeed

        with deepspeed.init() as given:
            trial = make(trial_class, given, info.trial.hparams, source="the config", hint=_FORMS)
            deepspeed.DeepSpeedTrainer(trial, given).fit(**arguments)
        return
    optimizations = config.get("optimizations") or {}
    with init(aggregation_frequency=int(optimizations.get("aggregation_frequency") or 1)) as context:
        _apply(optimizations, context)
        Trainer(make(trial_class, context, info.trial.hparams, source="the config", hint=_FORMS), context).fit(
            **arguments
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m detlab.pytorch", description="Train a PyTorchTrial on a cluster.")
    parser.add_argument("trial", metavar="MODULE:CLASS", help="such as model_def:MyTrial")
    name = parser.parse_args(arguments).trial
    try:
        info = get_cluster_info()
        if info is None or info.task_type != "TRIAL":
            raise TrainerError(
                "python3 -m detlab.pytorch trains trials of a cluster, by their experiment's config",
                hint="to train here, write a script with `with pytorch.init() as context:` and Trainer.fit()",
            )
        debug = bool(info.trial._config.get("debug"))
        logging.basicConfig(
            level=logging.DEBUG if debug else logging.INFO, format="%(levelname)s: %(name)s: %(message)s"
        )
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        trial_class = load_class(name)
    except DetlabError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    train(trial_class, info)
    return 0


if __name__ == "__main__":
    sys.exit(main())
