"""Compare a saved state with the trial's models and optimizers, in full, before anything is loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from detlab.errors import CheckpointError
from detlab.pytorch.parallel.unwrapping import bare, plain_name

_MOST_LINES = 20
_LIKE_THE_PARAMETER = {
    *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "acc_delta", "grad_avg"),
    *("sum", "exp_inf", "prev", "step_size", "ax"),
}
"""What torch's own optimizers keep in the shape of the parameter."""
_ADDED_TO_GROUPS = {
    *("initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum", "min_momentum", "param_names"),
}
"""What schedulers, and names given to parameters, add to a group's options."""


class StateMismatch(CheckpointError, RuntimeError):
    """The checkpoint is of other models or optimizers; nothing was loaded.

    Attributes:
        differences: Every difference, one line each (the message holds the first of them).
    """

    default_code = "checkpoint.mismatch"

    def __init__(self, checkpoint: str, differences: Sequence[str]) -> None:
        self.differences = list(differences)
        shown = self.differences[:_MOST_LINES]
        if len(self.differences) > _MOST_LINES:
            shown = [*shown[:-1], f"… and {len(self.differences) - _MOST_LINES + 1} more"]
        super().__init__(
            "\n".join([f"{checkpoint} does not fit this trial:", *(f"  {line}" for line in shown)]),
            hint="Likely it was written with other hyperparameters or by another model class. Use those again, or "
            "start without the checkpoint.",
        )


def check_state(
    models: Sequence[Any],
    model_states: Sequence[Mapping[str, Any]],
    optimizers: Sequence[Any] = (),
    optimizer_states: Sequence[Mapping[str, Any]] = (),
    *,
    checkpoint: str = "the checkpoint",
) -> None:
    """Compare, without loading anything.

    Args:
        models: The models at hand; wrapped ones are looked through.
        model_states: Their saved state dicts.
        optimizers: The optimizers at hand.
        optimizer_states: Their saved state dicts.
        checkpoint: How the error calls it.

    Raises:
        StateMismatch: With every difference.
    """
    differences = [
        *_counts("model", len(models), len(model_states)),
        *_counts("optimizer", len(optimizers), len(optimizer_states)),
    ]
    for index, (model, state) in enumerate(zip(models, model_states, strict=False)):
        differences += _model_differences(f"model {index}", bare(model), state)
    for index, (optimizer, saved) in enumerate(zip(optimizers, optimizer_states, strict=False)):
        differences += _optimizer_differences(f"optimizer {index}", optimizer, saved)
    if differences:
        raise StateMismatch(checkpoint, differences)


def load_models(
    models: Sequence[Any], states: Sequence[Mapping[str, Any]], *, checkpoint: str = "the checkpoint"
) -> None:
    """Load state dicts into models, all of them or none.

    Raises:
        StateMismatch: Parameters are missing, unexpected or of another shape, or there are more or fewer models.
    """
    check_state(models, states, checkpoint=checkpoint)
    for model, state in zip(models, states, strict=True):
        target = bare(model)
        target.load_state_dict(as_named(target, state))


def load_optimizers(
    optimizers: Sequence[Any], states: Sequence[Mapping[str, Any]], *, checkpoint: str = "the checkpoint"
) -> None:
    """Load state dicts into optimizers, all of them or none.

    Raises:
        StateMismatch: There are more or fewer optimizers, groups or parameters, or their shapes differ.
    """
    check_state((), (), optimizers, states, checkpoint=checkpoint)
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict(state)


def _counts(what: str, here: int, saved: int) -> list[str]:
    return [] if here == saved else [f"{saved} {what}{'s' * (saved != 1)} in the checkpoint, {here} in the trial"]


def as_named(model: Any, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state under the model's own names, which `torch.compile` of a part of it may have marked.

    Determined keeps the `module.` of DistributedDataParallel before every name.
    """
    own = {plain_name(name): name for name in model.state_dict()}
    prefix = "module."
    wrapped = bool(state) and all(str(name).startswith(prefix) for name in state)
    if wrapped and not all(name.startswith(prefix) for name in own):
        state = _without_prefix(state, prefix)
    if all(plain == name for plain, name in own.items()):
        return state
    return {own.get(plain_name(name), name): value for name, value in state.items()}


def _without_prefix(state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    plain = OrderedDict(state)
    plain._metadata = getattr(state, "_metadata", {})  # type: ignore[attr-defined]  # where torch keeps versions
    torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(plain, prefix)
    return plain


def _model_differences(where: str, model: Any, saved: Mapping[str, Any]) -> list[str]:
    saved = as_named(model, saved)
    own = model.state_dict()
    missing = [
        f"{where}: {name}{_shape(own[name])} is missing from the checkpoint" for name in own if name not in saved
    ]
    extra = [f"{where}: {name}{_shape(saved[name])} is in the checkpoint only" for name in saved if name not in own]
    differing = [
        f"{where}: {name} has shape {tuple(saved[name].shape)} in the checkpoint, {tuple(own[name].shape)} in the trial"
        for name in own
        if name in saved and _differ(own[name], saved[name])
    ]
    return [*differing, *missing, *extra]


def _differ(own: Any, saved: Any) -> bool:
    if not isinstance(own, torch.Tensor) or not isinstance(saved, torch.Tensor):
        return False
    if torch.nn.parameter.is_lazy(own) or torch.nn.parameter.is_lazy(saved):
        return False
    return own.shape != saved.shape


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor) and not torch.nn.parameter.is_lazy(value):
        return f" {tuple(value.shape)}"
    return ""


def _optimizer_differences(where: str, optimizer: Any, saved: Mapping[str, Any]) -> list[str]:
    groups, saved_groups = optimizer.param_groups, saved.get("param_groups")
    if saved_groups is None:
        return []  # an optimizer of the user's own, with a state of its own
    torchs_own = type(optimizer).__module__.startswith("torch.optim")
    if len(groups) != len(saved_groups):
        return [f"{where}: {len(saved_groups)} parameter group(s) in the checkpoint, {len(groups)} in the trial"]
    differences = []
    for number, (group, other) in enumerate(zip(groups, saved_groups, strict=True)):
        if len(group["params"]) != len(other["params"]):
            differences.append(
                f"{where}, group {number}: {len(other['params'])} parameter(s) in the checkpoint, "
                f"{len(group['params'])} in the trial"
            )
            continue
        differences += _option_differences(f"{where}, group {number}", optimizer, group, other)
        for place, (parameter, key) in enumerate(zip(group["params"], other["params"], strict=True)):
            state = saved["state"].get(key, {}) if torchs_own else {}
            differences += _slot_differences(f"{where}, group {number}, parameter {place}", parameter, state)
    return differences


def _option_differences(where: str, optimizer: Any, own: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """Tell another class of optimizer from another release of the same: that only adds options."""
    lacking = [name for name in optimizer.defaults if name not in saved]
    foreign = [name for name in saved if name not in own and name not in _ADDED_TO_GROUPS]
    if not lacking or not foreign:
        return []
    return [
        f"{where}: the checkpoint is of another optimizer than {type(optimizer).__name__}: it has "
        f"{', '.join(foreign)} and lacks {', '.join(lacking)}"
    ]


def _slot_differences(where: str, parameter: Any, state: Any) -> list[str]:
    if not isinstance(state, Mapping):
        return []
    return [
        f"{where}: {name} has shape {tuple(value.shape)} in the checkpoint, the parameter {tuple(parameter.shape)}"
        for name, value in state.items()
        if name in _LIKE_THE_PARAMETER and isinstance(value, torch.Tensor) and value.shape != parameter.shape
    ]
