"""What is known of a wrapped optimizer, and how its gradients are dropped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch

from detlab.pytorch.errors import TrainerError


@dataclasses.dataclass(slots=True)
class OptimizerFacts:
    """What is known of a wrapped optimizer.

    Attributes:
        optimizer: The optimizer.
        backward_passes: Backward passes of one batch that one step takes in.
        fp16_compression: Whether its gradients travel between ranks as float16.
        average: Whether the gradients of an aggregation are averaged, or summed.
        steps: Steps that learning rate schedulers have not seen yet.
    """

    optimizer: torch.optim.Optimizer
    backward_passes: int = 1
    fp16_compression: bool = False
    average: bool = True
    steps: int = 0

    @classmethod
    def check(
        cls, optimizer: Any, backward_passes: Any, fp16_compression: Any, average: Any, known: Iterable[Any]
    ) -> OptimizerFacts:
        """Return the facts of an optimizer to be wrapped.

        Raises:
            TrainerError: An argument of `wrap_optimizer` is invalid; all mistakes are listed.
        """
        problems = []
        if not isinstance(optimizer, torch.optim.Optimizer):
            problems.append(f"optimizer must be a torch.optim.Optimizer, not {optimizer!r}")
        elif any(other is optimizer for other in known):
            problems.append(f"this {type(optimizer).__name__} is already wrapped")
        if isinstance(backward_passes, bool) or not isinstance(backward_passes, int) or backward_passes < 1:
            problems.append(f"backward_passes_per_step must be an integer of 1 or more, not {backward_passes!r}")
        for name, value in (("fp16_compression", fp16_compression), ("average_aggregated_gradients", average)):
            if value is not None and not isinstance(value, bool):
                problems.append(f"{name} must be True or False, not {value!r}")
        if problems:
            raise TrainerError.of("wrap_optimizer(optimizer, …):", problems)
        return cls(optimizer, backward_passes, bool(fp16_compression), average is None or average)

    @property
    def special_exchange(self) -> bool:
        """Whether the models of this optimizer exchange gradients in another way than DDP does by itself."""
        return self.backward_passes > 1 or self.fp16_compression

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return the optimizer's parameters as they are now; groups may have been added."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


_PLAIN_ZERO_GRAD = torch.optim.Optimizer.zero_grad


def drop_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Set the gradients to None, as `zero_grad()` does, without the 10 us of torch's record for its profiler."""
    if type(optimizer).zero_grad is not _PLAIN_ZERO_GRAD or "zero_grad" in vars(optimizer):
        optimizer.zero_grad()  # of the user's own making
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def orphans(facts: Iterable[OptimizerFacts], models: Iterable[torch.nn.Module]) -> list[str]:
    """Return a line for each parameter group with parameters that belong to none of the models, which are unwrapped."""
    owned = {id(parameter) for model in models for parameter in model.parameters()}
    lines = []
    for index, one in enumerate(facts):
        for number, group in enumerate(one.optimizer.param_groups):
            strangers = [parameter for parameter in group["params"] if id(parameter) not in owned]
            if strangers:
                lines.append(
                    f"optimizer {index} ({type(one.optimizer).__name__}): {len(strangers)} of the "
                    f"{len(group['params'])} parameters of its group {number} (the first has shape "
                    f"{tuple(strangers[0].shape)}) belong to no wrapped model: the model was not wrapped, or was "
                    "replaced after the optimizer was made"
                )
    return lines
