"""Looking through wrapped models: the user's own module, its plain names, where it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from detlab.pytorch.errors import TrainerError

COMPILED = "_orig_mod"
"""The name under which `torch.compile` keeps the module that it compiled."""


def check_model(model: Any, known: Iterable[torch.nn.Module]) -> None:
    """Check a model that is to be wrapped.

    Args:
        model: The model.
        known: The models that are wrapped already.

    Raises:
        TrainerError: It is not a bare model, or is wrapped already.
    """
    problem = None
    if not isinstance(model, torch.nn.Module):
        problem = f"it must be a torch.nn.Module, not {model!r}"
    elif isinstance(model, DistributedDataParallel | torch.nn.DataParallel):
        problem = f"give the bare model, without {type(model).__name__}: the context shares gradients itself"
    elif any(bare(other) is bare(model) for other in known):
        problem = "this model is already wrapped"
    if problem:
        raise TrainerError(f"wrap_model(model): {problem}")


def bare(model: torch.nn.Module) -> torch.nn.Module:
    """Return the user's own module inside DDP and `torch.compile`."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif COMPILED in model._modules:
            model = model._modules[COMPILED]
        else:
            return model


def replica_in(model: torch.nn.Module) -> DistributedDataParallel | None:
    """Return the DDP around the user's module, which `torch.compile` may have compiled; None if there is none."""
    while not isinstance(model, DistributedDataParallel) and COMPILED in model._modules:
        model = model._modules[COMPILED]
    return model if isinstance(model, DistributedDataParallel) else None


def model_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a model's state by the names that its own classes give, without those of DDP and `torch.compile`."""
    return {plain_name(name): value for name, value in bare(model).state_dict().items()}


def plain_name(name: str) -> str:
    """Return the name of a parameter or buffer without the marks of `torch.compile` in it."""
    if COMPILED not in name:
        return name
    return ".".join(part for part in name.split(".") if part != COMPILED)


def misplaced(models: Iterable[torch.nn.Module], device: torch.device) -> list[str]:
    """Return a line for each model with parameters or buffers elsewhere than on the device."""
    lines = []
    for index, model in enumerate(models):
        module = bare(model)
        named = [*module.named_parameters(), *module.named_buffers()]
        wrong = [(name, tensor.device) for name, tensor in named if tensor.device != device]
        if wrong:
            name, found = wrong[0]
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            lines.append(
                f"model {index} ({type(module).__name__}): {plain_name(name)}{more} is on {found}, the context's "
                f"device is {device}: the model was moved after wrap_model()"
            )
    return lines
