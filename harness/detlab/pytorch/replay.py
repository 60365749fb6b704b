"""Training recorded segments of a trial anew, to compare the weights: what `det governance replay` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detlab import core
from detlab.info import ReplayInfo
from detlab.pytorch.checkpoint.manager import RestoredCheckpoint
from detlab.pytorch.loop import Loop, TrainingPlan

if TYPE_CHECKING:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext
    from detlab.pytorch.trial import PyTorchTrial


class ReplayLoop(Loop):
    """Trains from one checkpoint to a later one, and saves one where the trial did, and nowhere else.

    Reports and validations come when they came then, since a callback may act on them; nobody is told.

    Args:
        plan: What to do.
        trial: The trial.
        context: Its context.
        core_context: Off-cluster.
        replay: Where it saves and ends.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        core_context: core.Context,
        replay: ReplayInfo,
    ) -> None:
        super().__init__(plan, trial, context, core_context)
        self._replay = replay

    def _train_until(self, stop: int) -> bool:
        """Train as far as there, but not beyond the next stop, where `_control` is to be called."""
        steps = self._progress.steps_completed
        nearest = min((one for one in self._replay.stops if one > steps), default=steps)
        epoch_ended = super()._train_until(min(stop, nearest))
        if self._progress.steps_completed >= nearest:
            self._next_control = self._progress.steps_completed
        return epoch_ended

    def _control(self) -> None:
        """Save where the trial has, and end at the last stop: as if preempted there, unless the training was over."""
        super()._control()
        self._checkpoint()
        progress = self._progress
        over = self._plan.due.over(progress.steps_completed, progress.epochs_completed)
        if progress.steps_completed >= self._replay.stops[-1] and not over:
            self._ending = "preempt"

    def _checkpoint(self) -> None:
        if self._progress.steps_completed in self._replay.stops:
            super()._checkpoint()

    def _canaries_of(self, restored: RestoredCheckpoint | None) -> str | None:
        return super()._canaries_of(restored) or self._replay.canaries
