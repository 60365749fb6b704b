"""Training arguments from the hyperparameters of a trial and the length of its search."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

import transformers

from detlab.frameworks.errors import FrameworkError
from detlab.frameworks.lengths import SearchLength
from detlab.info import get_cluster_info

KEY = "training_arguments"
"""Of the hyperparameters: a dict of training arguments, as in Determined's examples."""


def training_arguments(
    kind: type[transformers.TrainingArguments] = transformers.TrainingArguments, /, **defaults: Any
) -> Any:
    """Return training arguments of this trial; off-cluster, those given.

    What the hyperparameter `training_arguments` names counts before `defaults`. The search says how long to train
    (`max_steps` or `num_train_epochs`, by the unit of its `max_time` or `max_length`) unless the hyperparameters do,
    and the trial's seed is the `seed` unless either names one.

    Args:
        kind: `TrainingArguments`, or a class derived from it.
        **defaults: Arguments that the trial does not choose.

    Raises:
        FrameworkError: Names that `kind` does not have; all are listed.
    """
    info = get_cluster_info()
    if info is None or info.task_type != "TRIAL":
        _check(kind, defaults, "training_arguments()")
        return kind(**defaults)
    chosen = info.trial.hparams.get(KEY) or {}
    if not isinstance(chosen, Mapping):
        raise FrameworkError(f"hyperparameters.{KEY} must be a dict of training arguments, not {chosen!r:.200}")
    _check(kind, chosen, f"hyperparameters.{KEY}")
    _check(kind, defaults, "training_arguments()")
    length = SearchLength.of(info.trial._config.get("searcher") or {})
    searched: dict[str, Any] = {}
    if length is not None and not {"max_steps", "num_train_epochs"} & chosen.keys():
        epochs = length.unit == "epochs"
        searched = {"num_train_epochs": length.value, "max_steps": -1} if epochs else {"max_steps": length.value}
    return kind(**{"seed": info.trial.trial_seed, **defaults, **searched, **chosen})


def _check(kind: type[Any], given: Mapping[str, Any], where: str) -> None:
    """Refuse names that a class of training arguments does not have."""
    known = [field.name for field in dataclasses.fields(kind) if field.init]
    problems = []
    for name in sorted(set(given) - set(known)):
        near = difflib.get_close_matches(str(name), known, n=1)
        problems.append(f"{name}" + (f" (did you mean {near[0]}?)" if near else ""))
    if problems:
        raise FrameworkError(
            f"{where} has names that {kind.__name__} of transformers {transformers.__version__} does not have:"
            f" {', '.join(problems)}"
        )
