"""When a learning rate scheduler steps."""

from __future__ import annotations

import enum
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from detlab.pytorch.errors import TrainerError


class LRScheduler:
    """A learning rate scheduler and when the trainer steps it.

    Steps are taken after `train_batch`, and only on batches that end an aggregation, since the learning rate matters
    to optimizer steps alone. A step that a `GradScaler` skipped counts as one: whether it was skipped is known on the
    device only.

    Args:
        scheduler: Any object with `step()`, `state_dict()` and `load_state_dict()`.
        step_mode: When to step it.
        frequency: Step only at every `frequency`-th such occasion.

    Raises:
        TrainerError: The arguments do not fit together; all mistakes are listed.
    """

    class StepMode(enum.Enum):
        """When `scheduler.step()` is called.

        Attributes:
            STEP_EVERY_EPOCH: Once for each epoch, at the last optimizer step that falls into it; for an epoch
                without any (shorter than an aggregation), at the next one.
            STEP_EVERY_BATCH: Once for each batch; under aggregation, for all batches of a group at its end.
            MANUAL_STEP: Never; the trial does it.
            STEP_EVERY_OPTIMIZER_STEP: Once for each `step_optimizer` that stepped the scheduler's own optimizer.
        """

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: StepMode, frequency: int = 1) -> None:
        problems = _problems(scheduler, step_mode, frequency)
        if problems:
            raise TrainerError.of("wrap_lr_scheduler(lr_scheduler, step_mode, frequency):", problems)
        self._scheduler = scheduler
        self._step_mode = step_mode
        self._frequency = frequency
        self._optimizer_steps = 0
        self._epochs: int | None = None
        self._next_batch: int | None = None
        self._fresh = True

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step the scheduler."""
        self._scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> list[Any]:
        """Return the learning rate of each parameter group."""
        return list(self._scheduler.get_last_lr())

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's own state."""
        return dict(self._scheduler.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the scheduler's own state."""
        self._scheduler.load_state_dict(state_dict)

    # --- for the trainer

    def _end_batch(
        self, batch_idx: int, epoch_idx: int, aggregation: int, optimizer_steps: int, *, last_of_epoch: bool
    ) -> None:
        """Take the steps that are due after a batch.

        Args:
            batch_idx: Index of the batch.
            epoch_idx: Of its epoch.
            aggregation: Batches per optimizer step.
            optimizer_steps: Steps of the scheduler's optimizer in this batch.
            last_of_epoch: Whether no later optimizer step will fall into this epoch.
        """
        if self._fresh:
            self._begin(batch_idx, epoch_idx)
        self._next_batch = batch_idx + 1
        mode, frequency = self._step_mode, self._frequency
        if mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
            before = self._optimizer_steps
            self._optimizer_steps = before + optimizer_steps
            self._step_times(self._optimizer_steps // frequency - before // frequency)
        elif (batch_idx + 1) % aggregation != 0:
            return
        elif mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            self._step_times((batch_idx + 1) // frequency - (batch_idx + 1 - aggregation) // frequency)
        elif mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            before = self._epochs or 0
            self._epochs = max(before, epoch_idx + last_of_epoch)
            self._step_times(self._epochs // frequency - before // frequency)

    def _begin(self, batch_idx: int, epoch_idx: int) -> None:
        """Keep the loaded counters if training continues where they were saved; else they are of another trial."""
        self._fresh = False
        if self._epochs is None or self._next_batch != batch_idx:
            self._epochs, self._optimizer_steps = epoch_idx, 0

    def _step_times(self, times: int) -> None:
        for _ in range(times):
            self._scheduler.step()

    def _state(self) -> dict[str, Any]:
        """Return the scheduler's state and these counters."""
        return {
            "class": type(self._scheduler).__name__,
            "scheduler": self._scheduler.state_dict(),
            "optimizer_steps": self._optimizer_steps,
            "epochs": self._epochs,
            "next_batch": self._next_batch,
        }

    def _mismatch(self, state: dict[str, Any]) -> str | None:
        """Say what tells this scheduler from the one that was saved."""
        saved, own = self._with_counters(state)["class"], type(self._scheduler).__name__
        return None if saved == own else f"the checkpoint has a {saved}, the trial a {own}"

    def _with_counters(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state as `_state` gives it; Determined saves that of the scheduler alone."""
        if state.keys() == self._state().keys():
            return state
        counters = {"optimizer_steps": 0, "epochs": None, "next_batch": None}
        return {"class": type(self._scheduler).__name__, "scheduler": state, **counters}

    def _load_state(self, state: dict[str, Any]) -> None:
        state = self._with_counters(state)
        self._scheduler.load_state_dict(state["scheduler"])
        self._optimizer_steps = state["optimizer_steps"]
        self._epochs, self._next_batch = state["epochs"], state["next_batch"]
        self._fresh = True


def _problems(scheduler: Any, step_mode: Any, frequency: Any) -> list[str]:
    problems = []
    methods = ("step", "state_dict", "load_state_dict")
    missing = [name for name in methods if not callable(getattr(scheduler, name, None))]
    if missing:
        problems.append(f"lr_scheduler must be a learning rate scheduler; {scheduler!r} has no {', '.join(missing)}()")
    if not isinstance(step_mode, LRScheduler.StepMode):
        known = ", ".join(mode.name for mode in LRScheduler.StepMode)
        problems.append(f"step_mode must be one of LRScheduler.StepMode ({known}), not {step_mode!r}")
    elif isinstance(scheduler, ReduceLROnPlateau) and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
        problems.append(
            "ReduceLROnPlateau.step() wants a metric: use step_mode=MANUAL_STEP, and call "
            "lr_scheduler.step(metrics[...]) in the on_validation_end of a callback"
        )
    if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
        problems.append(f"frequency must be an integer of 1 or more, not {frequency!r}")
    return problems
