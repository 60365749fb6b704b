"""The step of an optimizer: loss scaling, and gradients that are shared, averaged and clipped.

`scale_loss` and `reduce_gradients` are the seams for other schemes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from detlab.pytorch.errors import TrainerError
from detlab.pytorch.parallel.amp import is_unscaled
from detlab.pytorch.parallel.wrapping import Sharing, bare


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
            TrainerError: The arguments of `wrap_optimizer` make no sense; all mistakes are listed.
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


def scale_loss(loss: torch.Tensor, scaler: Any | None) -> torch.Tensor:
    """Return the loss to call `backward` on."""
    return loss if scaler is None else scaler.scale(loss)


def reduce_gradients(facts: OptimizerFacts, owners: Mapping[int, Sharing] | None, aggregation: int) -> None:
    """Make the gradients of an optimizer what one step is to be taken with.

    Gradients that DDP has not exchanged become the mean over the ranks; those of an aggregation are divided by its
    length if that was asked for. Several backward passes of one batch are summed, as in Determined.

    Args:
        facts: The optimizer.
        owners: By id of parameter, what its replica knows; None with one process.
        aggregation: Batches whose gradients were summed.
    """
    if owners is not None:
        late = [
            parameter
            for parameter in facts.parameters()
            if parameter.requires_grad and ((sharing := owners.get(id(parameter))) is None or sharing.late)
        ]
        if late:
            exchange(late, compress=facts.fp16_compression)
    if aggregation > 1 and facts.average:
        gradients = [parameter.grad for parameter in facts.parameters() if parameter.grad is not None]
        if gradients:
            torch._foreach_div_(gradients, float(aggregation))


@torch.no_grad()
def exchange(parameters: list[torch.nn.Parameter], *, compress: bool) -> None:
    """Set gradients to their mean over all ranks; all ranks call it with the same parameters.

    A gradient that some ranks lack counts as zero there; one that all ranks lack stays None.

    Raises:
        TrainerError: A gradient is sparse.
    """
    if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in parameters):
        raise TrainerError(
            "sparse gradients are exchanged by the model's backward pass only",
            hint="call the wrapped model itself, once per backward pass, and leave backward_passes_per_step at 1",
        )
    kinds: dict[tuple[Any, Any], list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for (dtype, _), group in kinds.items():
        _exchange_flat(group, torch.float16 if compress and dtype is torch.float32 else dtype)


def _exchange_flat(parameters: list[torch.nn.Parameter], dtype: Any) -> None:
    """Exchange gradients of one type in one message, followed by one number each for whether it is there."""
    there = torch.tensor([p.grad is not None for p in parameters], dtype=dtype)
    pieces = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters]
    flat = torch.cat(pieces).to(dtype)
    flat = torch.cat([flat.div_(dist.get_world_size()), there.to(flat.device)])
    dist.all_reduce(flat)
    lacking = [p for p in parameters if p.grad is None]
    somewhere = flat[-len(parameters) :].tolist() if lacking else None
    start = 0
    for index, parameter in enumerate(parameters):
        mean = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
        if parameter.grad is not None:
            parameter.grad.copy_(mean)
        elif somewhere is not None and somewhere[index] > 0:
            parameter.grad = mean.to(parameter.dtype, copy=True)


def clip(facts: OptimizerFacts, clip_grads: Callable[[Any], Any], scaler: Any | None) -> None:
    """Call the trial's `clip_grads` with unscaled gradients.

    Raises:
        TrainerError: `clip_grads` unscales them once more.
    """
    if scaler is not None and not is_unscaled(scaler, facts.optimizer):
        scaler.unscale_(facts.optimizer)
    try:
        clip_grads(facts.parameters())
    except RuntimeError as error:
        if "unscale_() has already been called" not in str(error):
            raise
        raise TrainerError(
            "clip_grads calls scaler.unscale_(), but step_optimizer(…, scaler=scaler) has unscaled the gradients",
            hint="remove scaler.unscale_() from clip_grads",
        ) from error


def step(optimizer: torch.optim.Optimizer, scaler: Any | None) -> None:
    """Step the optimizer; a scaler skips the step when gradients overflowed."""
    if scaler is None:
        optimizer.step()
        return
    scaler.step(optimizer)
    # torch warns when a scheduler steps before its optimizer ever has; a skipped step is no such mistake.
    optimizer._opt_called = True


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
    """Return a line for each parameter group with parameters that belong to no wrapped model."""
    owned = {id(parameter) for model in models for parameter in bare(model).parameters()}
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
