"""Mixed precision: the forward pass in autocast, and the interface of a gradient scaler."""

from __future__ import annotations

import functools
from typing import Any

import torch

from detlab.pytorch.errors import TrainerError

_HALF = (torch.float16, torch.bfloat16)


class _Autocast:
    """Mixin of the classes that `autocast_forward` makes."""


def autocast_forward(model: torch.nn.Module, device_type: str) -> None:
    """Have a model run its forward pass in autocast and give float32, so that losses need none.

    The model stays the same object and keeps its names; only its class becomes a subclass made for it, as
    `fully_shard` of torch does it. So it may be wrapped, compiled and deep-copied before and after.

    Args:
        model: A bare model, neither DDP nor compiled.
        device_type: `cpu` or `cuda`; the type that autocast lowers to is the device type's default.

    Raises:
        TrainerError: Its forward pass is not Python, as in a ScriptModule.
    """
    if isinstance(model, _Autocast):
        return
    if isinstance(model, torch.jit.ScriptModule):
        raise TrainerError(
            f"the forward pass of a {type(model).__name__} cannot be put in autocast",
            hint="use `with torch.autocast(context.device.type):` in train_batch and evaluate_batch",
        )
    own_class: Any = type(model)
    model.__class__ = _autocast_class(own_class, device_type)


@functools.cache
def _autocast_class(base: Any, device_type: str) -> type:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type):
            output = base.forward(self, *args, **kwargs)
        return to_float32(output)

    return type(base.__name__, (_Autocast, base), {"forward": forward, "__doc__": base.__doc__})


def to_float32(value: Any) -> Any:
    """Return a value with its half precision tensors in float32; dicts, lists and tuples are searched."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _HALF else value
    if isinstance(value, dict):
        return _same_dict(value, {key: to_float32(item) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_float32(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(to_float32(item) for item in value)
    return value


def _same_dict(value: dict[Any, Any], items: dict[Any, Any]) -> Any:
    """Return the items in a dict of the same class; one that keeps attributes beside its keys gets both."""
    if type(value) is dict:
        return items
    copied = value.copy()
    for key, item in items.items():
        copied[key] = item
    return copied


def scaler_problems(scaler: Any) -> list[str]:
    """Return what `scaler` lacks to be used as a `GradScaler`."""
    methods = ("scale", "unscale_", "step", "update", "state_dict", "load_state_dict")
    missing = [name for name in methods if not callable(getattr(scaler, name, None))]
    return [f"a gradient scaler needs {', '.join(missing)}(), which {scaler!r} has not"] if missing else []


def is_unscaled(scaler: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the trial has called `scaler.unscale_(optimizer)` since the last update."""
    # GradScaler has no public question for this, and refuses to unscale twice.
    states = getattr(scaler, "_per_optimizer_states", None) or {}
    state = states.get(id(optimizer))
    return state is not None and getattr(state.get("stage"), "name", "READY") == "UNSCALED"
