"""The training loop of a `DeepSpeedTrial`: which batch, report, validation or checkpoint is next."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Any

import torch

from detlab.core import EarlyExitReason
from detlab.core.distributed.heartbeat import LoopState
from detlab.pytorch.callback import CallbackSet
from detlab.pytorch.checkpoint.manager import TrialProgress, best_so_far
from detlab.pytorch.deepspeed import checkpoint
from detlab.pytorch.deepspeed.data import MicroBatches, ValidationBatches
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.loop import BEST_VALIDATION_SECONDS, CONTROL_SECONDS, TrainingPlan
from detlab.pytorch.metrics.aggregate import TrainingMetrics, ValidationMetrics, to_plain
from detlab.pytorch.metrics.tensorboard import BatchMetricWriter

if TYPE_CHECKING:
    from detlab.pytorch.deepspeed.context import DeepSpeedTrialContext
    from detlab.pytorch.deepspeed.trial import DeepSpeedTrial

logger = logging.getLogger("detlab.pytorch")


class DeepSpeedLoop:
    """Trains one trial on this rank; all ranks run it in step.

    Args:
        plan: What to do.
        trial: The trial.
        context: Its context.

    Raises:
        TrainerError: The trial has no engine.
    """

    def __init__(self, plan: TrainingPlan, trial: DeepSpeedTrial, context: DeepSpeedTrialContext) -> None:
        if not context.models:
            raise TrainerError(
                f"{type(trial).__name__} has wrapped no engine",
                hint="in __init__: self.engine = context.wrap_model_engine(deepspeed.initialize(…)[0])",
            )
        self._plan = plan
        self._trial = trial
        self._context = context
        self._core = context._core
        self._distributed = context.distributed
        self._chief = self._distributed.rank == 0
        self._progress = TrialProgress()
        self._state = LoopState()
        self._callbacks = CallbackSet(trial.build_callbacks(), self._where)
        self._chunk = TrainingMetrics()
        self._chunk_start = 0
        self._next_control = 0
        self._control_at = (0, time.monotonic())
        self._ending: str | None = None

    def run(self) -> None:
        """Train to the end, or until the trial is to stop; then validate, checkpoint and clean up.

        Raises:
            TrainerError: The trial cannot be trained.
            CheckpointError: A checkpoint could not be read or written.
        """
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._callbacks.call("on_training_start")
            if self._plan.step_zero_validation and self._progress.steps_completed == 0:
                self._validate()
            self._train()
            self._finish()

    def _open(self, stack: contextlib.ExitStack) -> None:
        restored = checkpoint.Restored()
        if self._plan.latest_checkpoint is not None:
            restored = checkpoint.restore(self._plan.latest_checkpoint, self._trial, self._context, self._callbacks)
        self._progress = restored.progress
        self._context._steps_completed = self._progress.steps_completed
        stack.callback(self._callbacks.call_all, "on_trial_shutdown")
        self._callbacks.call("on_trial_startup", self._progress.steps_completed, self._plan.latest_checkpoint)
        self._data = MicroBatches(self._trial, self._context, restored.stream)
        stack.callback(self._data.close)
        self._validation = ValidationBatches(self._trial, self._context)
        stack.callback(self._validation.close)
        self._tell_batches = any(self._distributed.allgather(self._callbacks.wants("on_training_workload_end")))
        self._board = BatchMetricWriter(self._context)
        stack.callback(self._board.close)
        stack.enter_context(self._core._watch_loop(self._state, self._plan.hang_timeout))
        restored.restore_random_numbers()
        if self._plan.profiling:
            self._core.profiler.on()
            stack.callback(self._core.profiler.off)

    def _train(self) -> None:
        progress, due = self._progress, self._plan.due
        self._begin_chunk()
        self._control()
        while self._ending is None and not due.over(progress.steps_completed, progress.epochs_completed):
            ended = self._train_batch()
            names = due.at(progress.steps_completed, progress.epochs_completed, epoch_ended=ended)
            if names:
                self._at_boundary(names)
            if names or progress.steps_completed >= self._next_control:
                self._control()

    def _train_batch(self) -> bool:
        """Train on one batch, with all of its micro-batches; return whether an epoch has ended."""
        context, progress = self._context, self._progress
        step, length = progress.steps_completed, self._data.batches_per_epoch
        epoch, place = divmod(step, length) if length else (0, step)
        ends = length is not None and place == length - 1
        context._move_to(step, epoch, place == 0, ends, None)
        self._state.batch, self._state.phase = step, "train_batch"
        if place == 0:
            self._call("on_training_epoch_start", epoch)
        for _ in range(context._calls_per_batch):
            metrics = self._trial.train_batch(self._data.iterator, epoch, step)
            if context._mpu.should_report_metrics and metrics is not None:
                self._chunk.add(metrics)
        progress.steps_completed = step + 1
        if ends:
            progress.epochs_completed = epoch + 1
            self._call("on_training_epoch_end", epoch)
        return ends

    def _at_boundary(self, names: set[str]) -> None:
        self._close_chunk()
        if "validate" in names:
            self._validate()
        if "checkpoint" in names:
            self._checkpoint()
        if "validate" in names or "checkpoint" in names:
            self._board.flush_and_upload()
        self._begin_chunk()

    def _finish(self) -> None:
        if self._progress.steps_completed > self._chunk_start:
            self._close_chunk()
        if self._ending != "preempt" and self._progress.steps_completed > 0:
            self._validate()
        self._checkpoint()
        if self._chief:
            steps = self._progress.steps_completed
            self._core.train.set_status(f"{'stopped' if self._ending else 'finished'} after {steps} batches")
            if self._ending == "stop":
                self._core.train.report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)

    def _control(self) -> None:
        """Agree with the other ranks on whether to continue, and when to ask again."""
        self._state.phase = "sync"
        mine: dict[str, Any] = {"stop": self._context.get_stop_requested()}
        if self._chief:
            mine["preempt"] = self._core.preempt.should_preempt()
            mine["next"] = self._progress.steps_completed + self._batches_until_control()
        said = self._distributed.allgather(mine)
        self._next_control = said[0]["next"]
        if said[0]["preempt"]:
            self._ending = "preempt"
        elif any(rank["stop"] for rank in said):
            self._ending = "stop"

    def _batches_until_control(self) -> int:
        now, step = time.monotonic(), self._progress.steps_completed
        (before, then), self._control_at = self._control_at, (step, now)
        trained = step - before
        if trained <= 0:
            return 1
        return max(1, min(10 * trained, int(trained * CONTROL_SECONDS / max(now - then, 1e-6))))

    # --- metrics

    def _begin_chunk(self) -> None:
        self._chunk_start = self._progress.steps_completed
        self._context.reset_reducers()
        self._context._set_training(True)

    def _close_chunk(self) -> None:
        """Reduce and report what the batches since the last boundary gave."""
        self._state.phase = "sync"
        steps = self._progress.steps_completed
        averages, batch_metrics = self._chunk.reduce(self._distributed)
        averages.update(self._context.reduce_metrics(for_training=True))
        metrics = self._with_counts({name: to_plain(value, name) for name, value in averages.items()})
        if self._chief:
            self._core.train.report_training_metrics(steps_completed=steps, metrics=metrics)
            length = self._data.batches_per_epoch
            epochs = steps / length if length else 0.0
            self._core.train.report_progress(self._plan.due.progress(steps, epochs))
            self._board.on_train_step_end(steps, metrics)
        if self._tell_batches:
            told = self._distributed.broadcast((metrics, batch_metrics()) if self._chief else None)
            self._call("on_training_workload_end", *told)

    def _with_counts(self, metrics: dict[str, Any]) -> dict[str, Any]:
        return {**metrics, "batches": self._progress.steps_completed, "epochs": self._progress.epochs_completed}

    # --- validating and saving

    def _validate(self) -> None:
        progress, context = self._progress, self._context
        if progress.validated_at == progress.steps_completed:
            return
        self._state.phase = "validation"
        context.reset_reducers()
        context._set_training(False)
        self._callbacks.call("on_validation_start")
        with torch.no_grad():
            values = self._evaluate()
        values.update(context.reduce_metrics(for_training=False))
        metrics = self._with_counts({name: to_plain(value, name) for name, value in values.items()})
        progress.validated_at = progress.steps_completed
        self._call("on_validation_end", metrics)  # before the report: it may add metrics, as in Determined
        metrics = {name: to_plain(value, name) for name, value in metrics.items()}
        is_best = self._note_best(metrics)
        if self._chief:
            self._core.train.report_validation_metrics(progress.steps_completed, metrics)
            self._board.on_validation_step_end(progress.steps_completed, metrics)
        if self._plan.checkpoint_policy == "all" or (self._plan.checkpoint_policy == "best" and is_best):
            self._checkpoint()

    def _evaluate(self) -> dict[str, Any]:
        self._callbacks.call("on_validation_epoch_start")
        collected, outputs = ValidationMetrics(), []
        batches = self._validation.iterator()
        for index in range(1 if self._plan.test_mode else self._validation.calls):
            self._state.part = index
            metrics = self._trial.evaluate_batch(batches, index)
            if index < self._validation.counted and self._context._mpu.should_report_metrics and metrics is not None:
                collected.add(metrics, 0)
                outputs.append(metrics)
        if self._callbacks.wants("on_validation_epoch_end"):
            self._callbacks.call("on_validation_epoch_end", outputs)
        return collected.reduce(self._distributed, self._trial.evaluation_reducer())

    def _note_best(self, metrics: dict[str, Any]) -> bool:
        """Return whether this validation is the best of the experiment so far; the chief decides."""
        plan, progress = self._plan, self._progress
        if plan.checkpoint_policy != "best" or plan.metric is None:
            return False
        verdict = self._judge(plan.metric, metrics) if self._chief else None
        is_best, progress.best_validation = self._distributed.broadcast(verdict)
        return bool(is_best)

    def _judge(self, name: str, metrics: dict[str, Any]) -> tuple[bool, float | None]:
        value, own, less = metrics.get(name), self._progress.best_validation, self._plan.smaller_is_better
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            logger.warning("the searcher's metric %r is no number in this validation: no best checkpoint", name)
            return False, own
        best = best_so_far(
            lambda: self._core.train._best_validation(BEST_VALIDATION_SECONDS), own, smaller_is_better=less
        )

        def beats(other: float | None) -> bool:
            return other is None or (value < other if less else value > other)

        return beats(best), float(value) if beats(own) else own

    def _checkpoint(self) -> None:
        progress = self._progress
        if progress.steps_completed in {progress.saved_at, 0}:
            return
        self._state.phase = "checkpoint"
        progress.saved_at = progress.steps_completed
        uuid = checkpoint.save(self._trial, self._context, self._callbacks, progress, self._data.state_dict())
        progress.remember(uuid)
        self._callbacks.call("on_checkpoint_upload_end", uuid)

    def _call(self, hook: str, *args: Any) -> None:
        self._callbacks.call(hook, *args)

    def _where(self) -> str:
        progress, rank = self._progress, self._distributed.rank
        return f"rank {rank}, after {progress.steps_completed} batches (epoch {progress.epochs_completed})"
