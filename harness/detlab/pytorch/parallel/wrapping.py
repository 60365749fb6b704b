"""Wrapping a model: moving it to the device, and sharing gradients between ranks.

`wrap_model` is the seam for other kinds of parallelism.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from detlab.pytorch.errors import TrainerError

if TYPE_CHECKING:
    from detlab.core import DistributedContext

COMPILED = "_orig_mod"
"""The name under which `torch.compile` keeps the module that it compiled."""


class Switches(Protocol):
    """Which of `context.experimental` counts when a model is wrapped."""

    _find_unused_parameters: bool


class WrappingContext(Protocol):
    """What wrapping a model needs of a trial's context."""

    device: torch.device
    distributed: DistributedContext
    models: list[torch.nn.Module]

    @property
    def experimental(self) -> Switches:
        """Further switches."""


def wrap_model(model: torch.nn.Module, context: WrappingContext) -> torch.nn.Module:
    """Return the model on the context's device, with its gradients shared when there are several ranks.

    A model without parameters to train gets the chief's values and nothing else.

    Raises:
        TrainerError: It is no bare model, or the ranks have no process group.
    """
    problem = _model_problem(model, context)
    if problem:
        raise TrainerError(f"wrap_model(model): {problem}")
    model = model.to(context.device)
    if context.distributed.size == 1:
        return model
    if not dist.is_initialized():
        raise TrainerError(
            f"this trial has {context.distributed.size} processes, and torch.distributed is not initialised",
            hint="make the context with `with pytorch.init() as context:`",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        broadcast_from_chief([*model.parameters(), *model.buffers()])
        return model
    return Replica(model, find_unused_parameters=context.experimental._find_unused_parameters)


def _model_problem(model: Any, context: WrappingContext) -> str | None:
    if not isinstance(model, torch.nn.Module):
        return f"it must be a torch.nn.Module, not {model!r}"
    if isinstance(model, DistributedDataParallel | torch.nn.DataParallel):
        return f"give the bare model, without {type(model).__name__}: the context shares gradients itself"
    if any(bare(known) is bare(model) for known in context.models):
        return "this model is already wrapped"
    return None


class Replica(DistributedDataParallel):
    """One rank's copy of a model: torch's DDP, with three differences.

    Evaluation (`eval()`, or without gradients) calls the bare module, so that ranks may have different numbers of
    batches. The module's own attributes can be reached through it. And it notices gradients that DDP does not exchange,
    which would let the ranks drift apart: a method of the module was called instead of the model, or a second backward
    pass went through one forward pass. The optimizer step then exchanges them.
    """

    def __init__(self, module: torch.nn.Module, **kwargs: Any) -> None:
        super().__init__(module, **kwargs)
        self._sharing = sharing = Sharing(module)
        for parameter in sharing.trained:
            parameter.register_post_accumulate_grad_hook(sharing.accumulated)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module; with gradients, have DDP exchange them in the backward pass."""
        if not (self.training and torch.is_grad_enabled()):
            return self.module(*args, **kwargs)
        if self.require_backward_grad_sync:
            self._sharing.prepared = True
        return super().forward(*args, **kwargs)

    def begin_batch(self, *, exchange: bool) -> None:
        """Exchange gradients in this batch's backward pass, or not; likewise buffers in its forward pass."""
        own = self.__dict__  # DDP reads plain attributes; a Module's __setattr__ takes a microsecond
        own["require_backward_grad_sync"] = exchange and not self._sharing.at_step
        own["require_forward_param_sync"] = exchange

    def share_at_step(self) -> None:
        """Exchange gradients at optimizer steps, never in the backward pass."""
        self._sharing.at_step = True

    def compress(self) -> None:
        """Exchange gradients as float16."""
        if not self._sharing.compressed:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

            self.register_comm_hook(self.process_group, fp16_compress_hook)
            self._sharing.compressed = True


class Sharing:
    """Whether a replica's gradients have been exchanged.

    Attributes:
        trained: The parameters that had gradients when the model was wrapped: DDP knows no others.
        prepared: Whether DDP will exchange what the next backward pass through the model leaves.
        pending: Whether gradients have grown that were not exchanged.
        at_step: Whether optimizer steps exchange them, always.
        compressed: Whether DDP sends them as float16.
    """

    __slots__ = ("_fired", "at_step", "compressed", "pending", "prepared", "trained")

    def __init__(self, module: torch.nn.Module) -> None:
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.prepared = False
        self.pending = False
        self.at_step = False
        self.compressed = False
        self._fired = False

    @property
    def late(self) -> bool:
        """Whether the optimizer step is to exchange gradients; not of this rank's making if all steps do."""
        return self.at_step or self.pending

    def accumulated(self, _: torch.Tensor) -> None:
        """Note that a parameter's gradient has grown."""
        if self.prepared:
            self._fired = True
        else:
            self.pending = True

    def after_backward(self) -> None:
        """Note the end of a backward pass: if DDP exchanged gradients in it, then all that had grown until then."""
        if self._fired:
            self._fired = self.prepared = self.pending = False


def explain(error: RuntimeError) -> None:
    """Add to an error of DDP's backward pass what to do about it."""
    if "mark a variable ready only once" in str(error):
        raise TrainerError(
            "several backward passes went through one forward pass of a model, which DDP cannot tell apart",
            hint="pass their number: context.wrap_optimizer(optimizer, backward_passes_per_step=2)",
        ) from error


def bare(model: torch.nn.Module) -> torch.nn.Module:
    """Return the user's own module inside DDP and `torch.compile`."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif COMPILED in model._modules:
            model = model._modules[COMPILED]
        else:
            return model


def model_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a model's state by the names that its own classes give, without those of DDP and `torch.compile`."""
    return {plain_name(name): value for name, value in bare(model).state_dict().items()}


def plain_name(name: str) -> str:
    """Return the name of a parameter or buffer without the marks of `torch.compile` in it."""
    if COMPILED not in name:
        return name
    return ".".join(part for part in name.split(".") if part != COMPILED)


@torch.no_grad()
def broadcast_from_chief(tensors: Iterable[torch.Tensor]) -> None:
    """Give the chief's values to all ranks, in place; all ranks call it."""
    for tensor in tensors:
        sent = tensor.detach().contiguous()
        dist.broadcast(sent, 0)
        if sent.data_ptr() != tensor.data_ptr():
            tensor.copy_(sent)


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
