"""The seam of parallel training: how the models, gradients and state of a trial are spread over its ranks.

A strategy is found by entry point (group `detlab.strategies`) and passes the contract in `detlab.testing.strategies`:
see docs/contributing/add-a-strategy.md. Which batches a rank gets and how metrics are combined is not its concern.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from detlab.plugins import Plugins
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.parallel.amp import is_unscaled
from detlab.pytorch.parallel.optimizer_step import OptimizerFacts, orphans
from detlab.pytorch.parallel.unwrapping import bare, misplaced, model_state

if TYPE_CHECKING:
    from detlab.core import DistributedContext

STRATEGIES: Plugins[type[Strategy]] = Plugins(
    "detlab.strategies",
    "training strategy",
    {
        "ddp": "detlab.pytorch.parallel.data_parallel:DataParallel",
        "single": "detlab.pytorch.parallel.strategy:SingleDevice",
    },
    TrainerError,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """What one rank contributes to a checkpoint.

    Attributes:
        models: State dicts in the order of the models, with the entries that this rank writes, under plain names.
        optimizers: State dicts in the order of the optimizers, likewise; empty where this rank writes nothing.
        written_by: The ranks that write entries of `model_<i>` and `optimizer_<i>`; the same on all ranks.
    """

    models: list[dict[str, Any]]
    optimizers: list[dict[str, Any]]
    written_by: Mapping[str, tuple[int, ...]]

    @property
    def writers(self) -> set[int]:
        """The ranks that write anything."""
        return {rank for ranks in self.written_by.values() for rank in ranks}


class Strategy(abc.ABC):
    """One way to train models on the ranks of a trial; one object per context and rank.

    All ranks call each method in step, with the same models and optimizers, so that any of them may communicate.
    What is not abstract does what one process needs.

    Args:
        device: Where this rank trains.
        distributed: The ranks of the trial.

    Attributes:
        name: That of its entry point.
    """

    name: ClassVar[str]

    def __init__(self, device: torch.device, distributed: DistributedContext) -> None:
        self.device = device
        self.distributed = distributed

    @classmethod
    @abc.abstractmethod
    def refusal(cls, size: int) -> str | None:
        """Return why this strategy cannot train on `size` ranks, None if it can."""

    @abc.abstractmethod
    def prepare_model(self, model: torch.nn.Module, *, find_unused_parameters: bool = False) -> torch.nn.Module:
        """Return the model to train with.

        Args:
            model: A bare or compiled model on any device.
            find_unused_parameters: Whether a batch may leave parameters without gradient.
        """

    @abc.abstractmethod
    def prepare_optimizer(self, facts: OptimizerFacts) -> None:
        """Take note of an optimizer and its options; its model may be prepared before or after."""

    def ready(self, models: Sequence[torch.nn.Module], facts: Iterable[OptimizerFacts]) -> list[str]:
        """Finish preparation, once, before the first batch; return a line for each reason why training cannot start."""
        return [*self.misplaced(models), *orphans(facts, [self.unwrap(model) for model in models])]

    def misplaced(self, models: Sequence[torch.nn.Module]) -> list[str]:
        """Return a line for each model that is elsewhere than where it was prepared for."""
        return misplaced(models, self.device)

    @abc.abstractmethod
    def begin_batch(self, *, step: bool) -> None:
        """Begin a training batch.

        Args:
            step: Whether the optimizers step at its end; if not, its gradients are only accumulated on each rank.
        """

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None,
        *,
        retain_graph: bool,
        create_graph: bool,
        scaler: Any | None,
    ) -> None:
        """Add the gradients of a loss, scaled by `scaler`, to those of the parameters."""
        scaled = loss if scaler is None else scaler.scale(loss)
        scaled.backward(gradient, retain_graph, create_graph)

    def reduce_gradients(self, facts: OptimizerFacts, aggregation: int) -> None:
        """Make the gradients of an optimizer what one step is taken with.

        Those of an aggregation are divided by its length if that was asked for. Several backward passes of one batch
        are summed, as in Determined.

        Args:
            facts: The optimizer.
            aggregation: Batches whose gradients were summed.
        """
        if aggregation > 1 and facts.average:
            gradients = [parameter.grad for parameter in facts.parameters() if parameter.grad is not None]
            if gradients:
                torch._foreach_div_(gradients, float(aggregation))

    def clip(self, facts: OptimizerFacts, clip_grads: Callable[[Any], Any], scaler: Any | None) -> None:
        """Call the trial's `clip_grads` with reduced, unscaled gradients.

        Raises:
            TrainerError: `clip_grads` itself unscales the gradients, which are unscaled already.
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

    def step(self, facts: OptimizerFacts, scaler: Any | None) -> None:
        """Step the optimizer; a scaler skips the step when gradients overflowed."""
        if scaler is None:
            facts.optimizer.step()
            return
        scaler.step(facts.optimizer)
        # torch warns when a scheduler steps before its optimizer ever has; a skipped step is no such mistake.
        facts.optimizer._opt_called = True

    @abc.abstractmethod
    def begin_evaluation(self, model: torch.nn.Module) -> None:
        """Give all ranks the model that a checkpoint holds, such as one rank's statistics of batch norm."""

    def state(self, models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> Shard:
        """Return this rank's part of the state, by reference: the caller copies it before training continues."""
        return Shard(
            [model_state(self.unwrap(model)) for model in models],
            [optimizer.state_dict() for optimizer in optimizers],
            chief_writes_all(models, optimizers),
        )

    def load(
        self,
        models: Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        model_states: Sequence[Mapping[str, Any]],
        optimizer_states: Sequence[Mapping[str, Any]],
    ) -> None:
        """Load the whole state, joined from the shards of all ranks that wrote it; it has been checked to fit.

        Args:
            models: Prepared models.
            optimizers: Prepared optimizers.
            model_states: For each model, its state under the names of the unwrapped model.
            optimizer_states: For each optimizer, its state dict.
        """
        for model, state in zip(models, model_states, strict=True):
            self.unwrap(model).load_state_dict(state)
        for optimizer, saved in zip(optimizers, optimizer_states, strict=True):
            optimizer.load_state_dict(saved)

    def unwrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the user's own module inside what `prepare_model` and `torch.compile` made of it."""
        return bare(model)


class SingleDevice(Strategy):
    """One process on one device."""

    name = "single"

    @classmethod
    def refusal(cls, size: int) -> str | None:
        """Refuse several ranks, which would train apart."""
        return None if size == 1 else f"it trains in one process, and this trial has {size}"

    def prepare_model(self, model: torch.nn.Module, *, find_unused_parameters: bool = False) -> torch.nn.Module:
        """Move the model to the device."""
        return model.to(self.device)

    def prepare_optimizer(self, facts: OptimizerFacts) -> None:
        """Change nothing: gradients are not exchanged."""

    def begin_batch(self, *, step: bool) -> None:
        """Change nothing: gradients accumulate until they are dropped."""

    def begin_evaluation(self, model: torch.nn.Module) -> None:
        """Change nothing: there is one copy of the model."""


def chief_writes_all(
    models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, tuple[int, ...]]:
    """Return the `written_by` of a strategy whose chief has the whole state."""
    return {
        **{f"model_{index}": (0,) for index in range(len(models))},
        **{f"optimizer_{index}": (0,) for index in range(len(optimizers))},
    }


def choose_strategy(name: str | None, device: torch.device, distributed: DistributedContext) -> Strategy:
    """Return the strategy of this rank.

    Args:
        name: That of an entry point; None leaves it to the number of ranks.
        device: Where this rank trains.
        distributed: The ranks of the trial.

    Raises:
        TrainerError: There is no strategy of that name, or it cannot train on this number of ranks.
    """
    chosen = STRATEGIES.load(name if name is not None else "single" if distributed.size == 1 else "ddp")
    problem = chosen.refusal(distributed.size)
    if problem is not None:
        raise TrainerError(
            f"the training strategy {chosen.name!r} cannot be used: {problem}",
            hint="leave strategy= out of pytorch.init(), and the number of processes decides",
        )
    return chosen(device, distributed)
