"""`PyTorchTrialContext`: the interface between a trial, the trainer and the loop."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch

from detlab import core
from detlab.core.distributed.heartbeat import LoopState
from detlab.pytorch.context.experimental import PyTorchExperimentalContext
from detlab.pytorch.context.information import TrialInformation
from detlab.pytorch.context.lr_scheduler import LRScheduler
from detlab.pytorch.context.position import TrainingPosition
from detlab.pytorch.context.wrapped_state import WrappedState
from detlab.pytorch.data.loader import to_device
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.governance.planting import LossesRead
from detlab.pytorch.governance.privacy.private_data import strategy_under
from detlab.pytorch.governance.trial import GovernedTrial, governed_by
from detlab.pytorch.metrics.reducer import _PyTorchReducerContext
from detlab.pytorch.parallel import amp
from detlab.pytorch.parallel.optimizer_step import OptimizerFacts, drop_gradients
from detlab.pytorch.parallel.unwrapping import check_model


class PyTorchTrialContext(TrialInformation, TrainingPosition, WrappedState, GovernedTrial, _PyTorchReducerContext):
    """What a `PyTorchTrial` gets: wraps its models and optimizers, and knows what it runs in.

    Made by `with detlab.pytorch.init() as context:`; the names are those of Determined 0.38.

    Args:
        core_context: The Core API of this process.
        trial_seed: Seed of the trial.
        hparams: Hyperparameters of the trial.
        slots_per_trial: Processes that share the global batch; 0 counts as 1.
        num_gpus: GPUs of this trial on this node; 0 trains on the CPU.
        exp_conf: The experiment config.
        aggregation_frequency: Batches whose gradients make one optimizer step.
        steps_completed: Batches trained before this process started.
        managed_training: False leaves models where they are, to load them without training.
        debug_enabled: The config's `debug`.
        enable_tensorboard_logging: Whether the trainer writes metrics to TensorBoard.
        strategy: Name of the training strategy; None leaves it to the number of processes.

    Attributes:
        distributed: Messages between the ranks.
        device: Where this rank trains.
        n_gpus: GPUs of this trial on this node.
        models: Wrapped models, in order.
        optimizers: Wrapped optimizers, in order.
        lr_schedulers: Wrapped learning rate schedulers, in order, each an `LRScheduler`.
        profiler: The torch profiler of `set_profiler`, or None.
        experimental: Further switches.
    """

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: int | None,
        hparams: dict[str, Any] | None,
        slots_per_trial: int,
        num_gpus: int,
        exp_conf: dict[str, Any] | None,
        aggregation_frequency: int = 1,
        steps_completed: int = 0,
        managed_training: bool = True,
        debug_enabled: bool = False,
        enable_tensorboard_logging: bool = True,
        *,
        strategy: str | None = None,
    ) -> None:
        TrialInformation.__init__(
            self,
            core_context,
            trial_seed,
            hparams,
            slots_per_trial,
            exp_conf,
            steps_completed,
            enable_tensorboard_logging,
        )
        TrainingPosition.__init__(self)
        GovernedTrial.__init__(self)
        self.distributed = core_context.distributed
        self.n_gpus = num_gpus
        self.device = choose_device(num_gpus, self.distributed)
        chosen = strategy_under(exp_conf, strategy, self.device, self.distributed)
        WrappedState.__init__(self, aggregation_frequency, chosen)
        _PyTorchReducerContext.__init__(self, core_context.distributed.allgather)
        self._managed_training = managed_training
        self._debug_enabled = debug_enabled
        self._hang_timeout: float | None = None
        self.profiler: Any = None
        self.experimental = PyTorchExperimentalContext(self)
        self._auto_scaler: Any = None
        self._scaler_stepped = False
        self._to_device_warned_types: set[type] = set()
        self._loop_state = LoopState()

    def report_media(self, media: Mapping[str, Any], steps_completed: int | None = None) -> None:
        """Report images, tables, plots and other media; see `core_context.train.report_media`.

        All ranks may call it, the chief's is taken. It never raises. Not a method of Determined.

        Args:
            media: Key to an object of `detlab.media`, or a list of them.
            steps_completed: The step; None: batches trained, with the current one.
        """
        if self.distributed.rank == 0:
            step = (self._batch_idx or 0) + 1 if steps_completed is None else steps_completed
            self._core.train.report_media(step, media)

    # --- wrapping

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model to train with: on the context's device, its gradients shared between processes.

        A compiled model may be wrapped, and a wrapped one compiled.

        Args:
            model: A bare model, not yet in DDP.

        Raises:
            TrainerError: It is not a bare model, is wrapped already, or the processes are not connected.
        """
        wrapped = model
        if self._managed_training:
            check_model(model, self.models)
            unused = self.experimental._find_unused_parameters
            wrapped = self._strategy.prepare_model(model, find_unused_parameters=unused)
        if self.experimental._auto_amp:
            amp.autocast_forward(self._strategy.unwrap(wrapped), self.device.type)
        self.models.append(wrapped)
        return wrapped

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = False,
        average_aggregated_gradients: bool | None = True,
    ) -> torch.optim.Optimizer:
        """Return the optimizer to hand to `step_optimizer`; it may be made before or after its model is wrapped.

        Args:
            optimizer: An optimizer over parameters of wrapped models.
            backward_passes_per_step: How often `backward` is called for one step within one batch. The gradients
                are summed, and with several processes exchanged once, at the step.
            fp16_compression: Whether gradients travel between processes as float16.
            average_aggregated_gradients: Whether the sum of an aggregation's gradients is divided by its length.

        Raises:
            TrainerError: An argument is invalid; all mistakes are listed.
        """
        facts = OptimizerFacts.check(
            optimizer, backward_passes_per_step, fp16_compression, average_aggregated_gradients, self.optimizers
        )
        self._facts[optimizer] = facts
        self.optimizers.append(optimizer)
        self._strategy.prepare_optimizer(facts)
        return optimizer

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1) -> Any:
        """Have the trainer step and save a learning rate scheduler; return it.

        Args:
            lr_scheduler: A scheduler of a wrapped optimizer. `ReduceLROnPlateau` needs `MANUAL_STEP`.
            step_mode: When it is stepped.
            frequency: Step only at every `frequency`-th such occasion.

        Raises:
            TrainerError: An argument is invalid; all mistakes are listed.
        """
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and not any(known is optimizer for known in self.optimizers):
            raise TrainerError(
                f"the optimizer of this {type(lr_scheduler).__name__} was not given to wrap_optimizer()",
                hint="call context.wrap_optimizer(optimizer) first, and make the scheduler from what it returns",
            )
        if any(known._scheduler is lr_scheduler for known in self.lr_schedulers):
            raise TrainerError(f"this {type(lr_scheduler).__name__} is already wrapped: it would step twice")
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Have the trainer save a gradient scaler; return it, to be handed to `step_optimizer`.

        The trial scales losses and calls `scaler.update()` itself; `context.experimental.use_amp()` does all of it.

        Args:
            scaler: A `torch.amp.GradScaler`, which may be disabled.

        Raises:
            TrainerError: It is not a gradient scaler, or the context already has one.
        """
        problems = amp.scaler_problems(scaler)
        if self._scaler is not None:
            problems.append("a scaler is already set: call either wrap_scaler() or experimental.use_amp(), once")
        if problems:
            raise TrainerError.of("wrap_scaler(scaler):", problems)
        self._scaler = scaler
        return scaler

    def configure_apex_amp(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: NVIDIA has retired apex.amp.

        Raises:
            TrainerError: Always.
        """
        raise TrainerError(
            "configure_apex_amp(): apex is not supported, its mixed precision is part of torch since 1.6",
            hint="use context.experimental.use_amp(), or torch.autocast with context.wrap_scaler()",
        )

    def autocast_forward_pass(self, to_wrap: torch.nn.Module) -> torch.nn.Module:
        """Have a model, wrapped or not, run in autocast and give float32; return it.

        Raises:
            TrainerError: Its forward pass is not Python, as in a ScriptModule.
        """
        if not isinstance(to_wrap, torch.nn.Module):
            raise TrainerError(f"autocast_forward_pass(to_wrap): it must be a torch.nn.Module, not {to_wrap!r}")
        amp.autocast_forward(self._strategy.unwrap(to_wrap), self.device.type)
        return to_wrap

    def _use_auto_amp(self) -> None:
        self._auto_scaler = self._scaler
        for model in self.models:
            self.autocast_forward_pass(model)

    # --- stepping

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
        *,
        source_ids: Any = None,
    ) -> None:
        """Add the gradients of a loss to those of the parameters.

        Args:
            loss: A scalar, or any tensor together with `gradient`. Under a policy (`governance` in the experiment
                config), or with sources: one loss per sample, of shape [batch]; their mean counts.
            gradient: Gradient with respect to `loss`, of the same shape; None for a scalar loss.
            retain_graph: Keep the graph for another backward pass.
            create_graph: Make the gradients differentiable; keeps the graph.
            source_ids: Under a policy, the source of each sample, by name or number, if the data set does not say it.
                Not an argument of Determined.

        Raises:
            TrainerError: `loss` cannot be differentiated: it is not a scalar tensor, or needs no gradient.
            GovernanceError: The policy does not allow it, or cannot be held to.
        """
        if self._reads_losses:
            raise LossesRead(loss)
        self._loop_state.phase = "backward"
        if self._governed is not None and gradient is None and getattr(loss, "requires_grad", True):
            self._governed.backward(
                loss, source_ids=source_ids, retain_graph=retain_graph or create_graph, by=self._differentiate
            )
            return
        if gradient is None and (source_ids is not None or self._source_of is not None) and _is_per_sample(loss):
            loss = loss.mean()
        if not isinstance(loss, torch.Tensor) or (gradient is None and loss.numel() != 1) or not loss.requires_grad:
            raise _not_a_loss(loss)
        if self._governed is not None:
            raise TrainerError("backward(loss, gradient): a policy gives the gradient of each loss itself")
        self._strategy.backward(
            loss,
            gradient,
            retain_graph=retain_graph or create_graph,
            create_graph=create_graph,
            scaler=self._auto_scaler,
        )

    def _differentiate(self, losses: torch.Tensor, seeds: torch.Tensor, retain_graph: bool) -> None:
        self._strategy.backward(losses, seeds, retain_graph=retain_graph, create_graph=False, scaler=self._auto_scaler)

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Any], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any | None = None,
    ) -> None:
        """Step an optimizer; under gradient aggregation only at the last batch of a group.

        Args:
            optimizer: A wrapped optimizer.
            clip_grads: Called with the list of parameters once their gradients are exchanged, averaged and unscaled.
            auto_zero_grads: Whether to drop the gradients after the step; must be True under aggregation.
            scaler: The gradient scaler of a trial that does not use `experimental.use_amp()`.

        Raises:
            TrainerError: The optimizer was not wrapped, or `auto_zero_grads` is False under aggregation.
        """
        facts = self._facts.get(optimizer)
        if facts is None:
            raise self._not_wrapped(optimizer)
        if not auto_zero_grads and self._aggregation_frequency > 1:
            raise TrainerError(
                f"step_optimizer(auto_zero_grads=False) needs aggregation_frequency 1, not "
                f"{self._aggregation_frequency}: gradients of the next group would be added to those of this one"
            )
        if not self._is_sync_step:
            if self._batch_idx is None:
                raise self._not_started("step_optimizer()")
            return
        self._loop_state.phase = "step"
        facts.steps += 1
        strategy, governed = self._strategy, self._governed
        if governed is None:
            strategy.reduce_gradients(facts, self._aggregation_frequency)
        else:
            governed.before_step(optimizer, self._auto_scaler if scaler is None else scaler)
            strategy.reduce_gradients(facts, 1)
            governed.reduce(facts.parameters(), batches=self._aggregation_frequency, average=facts.average)
            clip_grads = governed.apart(clip_grads)
        if scaler is None and self._auto_scaler is not None:
            scaler = self._auto_scaler
            self._scaler_stepped = True
        if clip_grads is not None:
            strategy.clip(facts, clip_grads, scaler)
        strategy.step(facts, scaler)
        if governed is not None:
            governed.after_step(self.optimizers)
        if auto_zero_grads:
            drop_gradients(optimizer)

    def _not_wrapped(self, optimizer: Any) -> TrainerError:
        known = ", ".join(type(one).__name__ for one in self.optimizers) or "none"
        return TrainerError(
            f"step_optimizer(): this {type(optimizer).__name__} was not given to wrap_optimizer() (wrapped: {known})",
            hint="self.optimizer = context.wrap_optimizer(optimizer) in the trial's __init__",
        )

    # --- device, profiler

    def to_device(self, data: Any) -> Any:
        """Return data with its tensors and arrays on this rank's device; dicts, lists and tuples are searched."""
        return to_device(data, self.device, self._to_device_warned_types)

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile training with `torch.profiler.profile(*args, **kwargs)`; the trainer enters and steps it.

        Traces go to the TensorBoard directory unless `on_trace_ready` says otherwise.
        """
        kwargs.setdefault("on_trace_ready", torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path())))
        self.profiler = torch.profiler.profile(*args, **kwargs)

    # --- for the loop

    def _begin_batch(
        self, batch_idx: int, epoch_idx: int, starts_epoch: bool, ends_epoch: bool, ids: Any = None
    ) -> None:
        """Say which batch comes: its indices, its place in the epoch, the dataset indices of its samples."""
        self._move_to(batch_idx, epoch_idx, starts_epoch, ends_epoch, ids)
        if self._aggregation_frequency != 1:
            self._is_sync_step = (batch_idx + 1) % self._aggregation_frequency == 0
        self._strategy.begin_batch(step=self._is_sync_step)
        self._begin_governed(epoch_idx)

    def _end_batch(self, remaining_in_epoch: int | None) -> None:
        """Update the scale and step learning rate schedulers.

        Args:
            remaining_in_epoch: Batches of this epoch that are still to come; None if that is unknown.
        """
        self._end_governed()
        if self._scaler_stepped:
            self._scaler_stepped = False
            self._auto_scaler.update()
        if self.lr_schedulers:
            self._step_schedulers(remaining_in_epoch)

    def _step_schedulers(self, remaining_in_epoch: int | None) -> None:
        aggregation = self._aggregation_frequency
        last = self._ends_epoch or (remaining_in_epoch is not None and remaining_in_epoch < aggregation)
        any_optimizer = max((facts.steps for facts in self._facts.values()), default=0)
        for scheduler in self.lr_schedulers:
            facts = self._facts.get(getattr(scheduler._scheduler, "optimizer", None))
            scheduler._end_batch(
                self._batch_idx or 0,
                self._epoch_idx,
                aggregation,
                any_optimizer if facts is None else facts.steps,
                last_of_epoch=last,
            )
        for facts in self._facts.values():
            facts.steps = 0

    def _train(self) -> None:
        """Put all models in training mode."""
        for model in self.models:
            model.train()

    def _eval(self) -> None:
        """Put all models in evaluation mode, as a checkpoint holds them; all ranks call it."""
        for model in self.models:
            model.eval()
            self._strategy.begin_evaluation(model)

    def _check_ready(self) -> None:
        """Check what the trial's `__init__` left.

        Raises:
            TrainerError: Nothing is wrapped, parameters are in no wrapped model or elsewhere; all is listed.
            GovernanceError: The policy does not fit the models, or cannot be enforced.
        """
        problems = []
        if not self.models:
            problems.append("no model is wrapped: self.model = context.wrap_model(model)")
        if not self.optimizers:
            problems.append("no optimizer is wrapped: self.optimizer = context.wrap_optimizer(optimizer)")
        # Without a model, parameters that belong to none are no news.
        problems += self._strategy.ready(self.models, self._facts.values() if self.models else ())
        if problems:
            raise TrainerError.of("this trial cannot be trained:", problems)
        if self._governed is None:
            self._govern(governed_by(self._exp_conf, self.models))

    def _check_unmoved(self) -> None:
        """Check that all models are still on the device.

        Raises:
            TrainerError: One was moved; the first parameter of each is named.
        """
        problems = self._strategy.misplaced(self.models)
        if problems:
            raise TrainerError.of("training cannot continue:", problems)


def choose_device(num_gpus: int, distributed: core.DistributedContext) -> torch.device:
    """Return the device of this rank, and make it the current one if it is a GPU."""
    if num_gpus == 0:
        return torch.device("cpu")
    index = distributed.local_rank
    visible = torch.cuda.device_count()
    if index >= visible:
        raise TrainerError(
            f"rank {distributed.rank} is to train on GPU {index}, and torch sees {visible} GPU(s)",
            hint="check the driver with nvidia-smi, CUDA_VISIBLE_DEVICES, and that torch is built for CUDA",
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    keep_to_share(index, os.environ)
    return device


def _is_per_sample(loss: Any) -> bool:
    return isinstance(loss, torch.Tensor) and loss.dim() == 1 and loss.requires_grad


def _not_a_loss(loss: Any) -> TrainerError:
    if not isinstance(loss, torch.Tensor):
        return TrainerError(f"backward(loss): it must be a tensor, not {loss!r}")
    if not loss.requires_grad:
        return TrainerError(
            "backward(loss): the loss depends on no parameter that requires a gradient",
            hint="look for detach(), no_grad(), item(), or parameters with requires_grad=False",
        )
    return TrainerError(
        f"backward(loss): the loss has shape {tuple(loss.shape)}, and a gradient was not given",
        hint="make it a scalar, as with loss.mean(), or pass gradient=",
    )


def share_of(device: int, env: Mapping[str, str]) -> float:
    """Return how much of a GPU this task has, above 0 and at most 1: `DET_DEVICE_SHARES` of its environment.

    Args:
        device: The GPU, counted from 0 as torch sees it.
        env: The environment.
    """
    try:
        shares = json.loads(env.get("DET_DEVICE_SHARES", "[]"))
        share = float(shares[device])
    except (ValueError, LookupError, TypeError):
        return 1.0
    return share if 0.0 < share < 1.0 else 1.0


def keep_to_share(device: int, env: Mapping[str, str]) -> None:
    """Limit torch's allocator to this task's share of a GPU's memory; beyond it torch raises OutOfMemoryError.

    Args:
        device: The GPU, counted from 0 as torch sees it.
        env: The environment.
    """
    share = share_of(device, env)
    if share < 1.0:
        torch.cuda.set_per_process_memory_fraction(share, device)
