"""The strategy `ddp`: each rank has a copy of the models, and gradients are averaged over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from detlab.pytorch.errors import TrainerError
from detlab.pytorch.parallel.strategy import Shard, Strategy, chief_writes_all

if TYPE_CHECKING:
    from detlab.core import DistributedContext
    from detlab.pytorch.parallel.optimizer_step import OptimizerFacts


class DataParallel(Strategy):
    """Torch's DDP on each model with parameters to train; the others get the chief's values and nothing else.

    Gradients are exchanged in the backward pass of a batch that a step follows, or at the step if DDP has not done so.
    """

    name = "ddp"

    def __init__(self, device: torch.device, distributed: DistributedContext) -> None:
        super().__init__(device, distributed)
        self._replicas: list[Replica] = []
        self._owners: dict[int, Sharing] = {}
        """By id of parameter, what its replica knows."""
        self._facts: list[OptimizerFacts] = []

    @classmethod
    def refusal(cls, size: int) -> str | None:
        """Refuse a single rank, which has no other rank to exchange gradients with."""
        return None if size > 1 else "it needs several processes, and this trial has one"

    def prepare_model(self, model: torch.nn.Module, *, find_unused_parameters: bool = False) -> torch.nn.Module:
        """Return the model on the device, with its gradients shared.

        Raises:
            TrainerError: The ranks have no process group.
        """
        model = model.to(self.device)
        if not dist.is_initialized():
            raise TrainerError(
                f"this trial has {self.distributed.size} processes, and torch.distributed is not initialised",
                hint="make the context with `with pytorch.init() as context:`",
            )
        if not any(parameter.requires_grad for parameter in model.parameters()):
            broadcast_from_chief([*model.parameters(), *model.buffers()])
            return model
        replica = Replica(model, find_unused_parameters=find_unused_parameters)
        self._replicas.append(replica)
        self._owners.update((id(parameter), replica._sharing) for parameter in replica._sharing.trained)
        self._link()
        return replica

    def prepare_optimizer(self, facts: OptimizerFacts) -> None:
        """Have its models exchange gradients as it asks."""
        self._facts.append(facts)
        self._link()

    def ready(self, models: Sequence[torch.nn.Module], facts: Iterable[OptimizerFacts]) -> list[str]:
        """Take in parameters that were added to optimizers since."""
        self._link()
        return super().ready(models, facts)

    def _link(self) -> None:
        """Tell models how their optimizers want gradients to be exchanged."""
        for facts in self._facts:
            if not facts.special_exchange:
                continue
            mine = {id(parameter) for parameter in facts.parameters()}
            for replica in self._replicas:
                if mine.isdisjoint(id(parameter) for parameter in replica._sharing.trained):
                    continue
                if facts.fp16_compression:
                    replica.compress()
                if facts.backward_passes > 1:
                    replica.share_at_step()

    def begin_batch(self, *, step: bool) -> None:
        """Exchange gradients in this batch's backward pass if a step follows it."""
        for replica in self._replicas:
            replica.begin_batch(exchange=step)

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None,
        *,
        retain_graph: bool,
        create_graph: bool,
        scaler: Any | None,
    ) -> None:
        """Add gradients; DDP exchanges them meanwhile.

        Raises:
            TrainerError: Several backward passes went through one forward pass, which DDP cannot tell apart.
        """
        scaled = loss if scaler is None else scaler.scale(loss)
        try:
            scaled.backward(gradient, retain_graph, create_graph)
        except RuntimeError as error:
            _explain(error)
            raise
        for replica in self._replicas:
            replica._sharing.after_backward()

    def reduce_gradients(self, facts: OptimizerFacts, aggregation: int) -> None:
        """Average the gradients that DDP has not exchanged over the ranks, then those of the aggregation."""
        late = [
            parameter
            for parameter in facts.parameters()
            if parameter.requires_grad and ((sharing := self._owners.get(id(parameter))) is None or sharing.late)
        ]
        if late:
            exchange(late, compress=facts.fp16_compression)
        super().reduce_gradients(facts, aggregation)

    def begin_evaluation(self, model: torch.nn.Module) -> None:
        """Give all ranks the chief's buffers; batch norm's statistics would differ by rank."""
        broadcast_from_chief(model.buffers())

    def state(self, models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> Shard:
        """Return the whole state on the chief, which writes it; the other ranks hold the same."""
        if self.distributed.rank == 0:
            return super().state(models, optimizers)
        return Shard([{} for _ in models], [{} for _ in optimizers], chief_writes_all(models, optimizers))


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


def _explain(error: RuntimeError) -> None:
    """Add to an error of DDP's backward pass what to do about it."""
    if "mark a variable ready only once" in str(error):
        raise TrainerError(
            "several backward passes went through one forward pass of a model, which DDP cannot tell apart",
            hint="pass their number: context.wrap_optimizer(optimizer, backward_passes_per_step=2)",
        ) from error


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


@torch.no_grad()
def broadcast_from_chief(tensors: Iterable[torch.Tensor]) -> None:
    """Give the chief's values to all ranks, in place; all ranks call it."""
    for tensor in tensors:
        sent = tensor.detach().contiguous()
        dist.broadcast(sent, 0)
        if sent.data_ptr() != tensor.data_ptr():
            tensor.copy_(sent)
