"""The training loop: which batch, report, validation or checkpoint is next."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from detlab import core
from detlab.core import EarlyExitReason
from detlab.core.distributed.heartbeat import LoopState
from detlab.pytorch.callback import CallbackSet
from detlab.pytorch.checkpoint import rng
from detlab.pytorch.checkpoint.governed import admit, damage_refused
from detlab.pytorch.checkpoint.manager import (
    Checkpointing,
    RestoredCheckpoint,
    TrialProgress,
    apply,
    best_so_far,
    fetch,
    identity,
)
from detlab.pytorch.data.epoch import derive_seed
from detlab.pytorch.data.resumable import TrainingStream
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics.aggregate import TrainingMetrics, to_plain
from detlab.pytorch.metrics.tensorboard import BatchMetricWriter
from detlab.pytorch.parallel.process_group import is_own_failure, note_failing_rank
from detlab.pytorch.source_step import SourceStep, is_parted, source_by_source
from detlab.pytorch.units import Due
from detlab.pytorch.validation import TRAINING_BUILDER, Validation, check_loader, problems_of
from detlab.pytorch.weighted_step import WeightedStep

if TYPE_CHECKING:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext
    from detlab.pytorch.trial import PyTorchTrial

logger = logging.getLogger("detlab.pytorch")

CONTROL_SECONDS = 1.0
"""Time between two agreements of the ranks on whether to continue."""

BEST_VALIDATION_SECONDS = 5.0
"""How long the master may take to say what the experiment's best validation is."""


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """What `Trainer.fit` was asked for.

    Attributes:
        due: Length and periods: `report`, `validate`, `checkpoint`.
        checkpoint_policy: `best`, `all` or `none`: which validations are followed by a checkpoint.
        latest_checkpoint: To resume from.
        step_zero_validation: Whether to validate before training.
        test_mode: Whether one batch of each kind is enough.
        profiling: Whether to sample system metrics.
        metric: The searcher's metric, if known.
        smaller_is_better: Whether less of it is better.
        hang_timeout: Seconds without progress after which a rank counts as hung.
    """

    due: Due
    checkpoint_policy: str
    latest_checkpoint: str | None
    step_zero_validation: bool
    test_mode: bool
    profiling: bool
    metric: str | None
    smaller_is_better: bool
    hang_timeout: float


class Loop:
    """Trains one trial on this rank; all ranks run it in step.

    Args:
        plan: What to do.
        trial: The trial.
        context: Its context.
        core_context: Reports, checkpoints and signals go through it.
    """

    def __init__(
        self, plan: TrainingPlan, trial: PyTorchTrial, context: PyTorchTrialContext, core_context: core.Context
    ) -> None:
        self._plan = plan
        self._trial = trial
        self._context = context
        self._core = core_context
        self._chief = core_context.distributed.rank == 0
        self._progress = TrialProgress()
        self._state = context._loop_state = LoopState()
        self._callbacks = CallbackSet(trial.build_callbacks(), self._where)
        self._chunk = TrainingMetrics()
        self._chunk_start = 0
        self._chunk_time = time.monotonic()
        self._next_control = 0
        self._control_time = time.monotonic()
        self._control_step = 0
        self._ending: str | None = None
        self._budget_end: int | None = None
        self._first_step = 0
        self._prepared = False
        self._warned: set[str] = set()

    # --- the course

    def run(self) -> None:
        """Train to the end, or until the trial is to stop; then validate, checkpoint and clean up.

        Raises:
            TrainerError: The trial cannot be trained; everything found wrong is listed.
            CheckpointError: There is nothing to resume from, or a checkpoint could not be written.
        """
        problems = problems_of(self._trial)
        if problems:
            raise TrainerError.of("this trial cannot be trained:", problems)
        self._context._check_ready()
        with contextlib.ExitStack() as stack:
            self._open(stack, self._restore(stack))  # no name here: the checkpoint's tensors are freed once loaded
            self._callbacks.call("on_training_start")
            if self._plan.step_zero_validation and self._progress.steps_completed == 0:
                self._validate()
            self._train()
            self._finish()

    def _restore(self, stack: contextlib.ExitStack) -> RestoredCheckpoint | None:
        """Read the checkpoint to resume from, and start the callbacks."""
        restored = None
        if self._plan.latest_checkpoint is not None:
            with damage_refused(self._context, self._plan.latest_checkpoint):
                restored = fetch(self._core, self._plan.latest_checkpoint, identity(self._core.info))
            self._progress = restored.progress
        self._context._steps_completed = self._progress.steps_completed
        if self._chief and self._resumes_elsewhere(restored):
            self._core.train._report_resumed(self._progress.steps_completed)
        stack.push(self._shut_down)
        self._callbacks.call("on_trial_startup", self._progress.steps_completed, restored.uuid if restored else None)
        return restored

    def _resumes_elsewhere(self, restored: RestoredCheckpoint | None) -> bool:
        """Return whether training resumes from another checkpoint than the master gave this attempt."""
        given = self._core.info.latest_checkpoint if self._core.info is not None else None
        if restored is None:
            return given is not None
        return restored.fell_back or given not in {None, restored.uuid}

    def _shut_down(self, _: type[BaseException] | None, error: BaseException | None, __: Any) -> None:
        """Call the last hook; if training has failed, that is the error to see."""
        try:
            self._callbacks.call_all("on_trial_shutdown")
        except Exception as second:  # whatever a user's callback raises
            if error is None:
                raise
            logger.error("after training had failed: %s", second)

    def _open(self, stack: contextlib.ExitStack, restored: RestoredCheckpoint | None) -> None:
        """Open the data, load the state, start what runs beside the training."""
        context, distributed = self._context, self._core.distributed
        built = check_loader(self._trial.build_training_data_loader(), TRAINING_BUILDER, context)
        built = context._plant(built, self._canaries_of(restored), distributed)
        built, self._budget_end = context._draw(built, self._plan.due, self._progress, restored)
        context._use_data(built)
        built = source_by_source(built, context)
        admit(self._core, context, restored)
        self._stream = TrainingStream(
            built,
            rank=distributed.rank,
            size=distributed.size,
            seed=context.get_trial_seed(),
            state=restored.stream if restored else None,
        )
        stack.callback(self._stream.close)
        self._tell_batches = any(distributed.allgather(self._callbacks.wants("on_training_workload_end")))
        self._validation = Validation(
            self._trial, context, self._callbacks, self._state, test_mode=self._plan.test_mode
        )
        stack.callback(self._validation.close)
        name = identity(self._core.info)
        self._checkpointing = Checkpointing(
            self._core, context, self._trial, self._callbacks, self._progress, name, self._state.beat
        )
        stack.callback(self._checkpointing.close)
        self._board = BatchMetricWriter(context)  # the other ranks write no metrics, but copy what profilers wrote
        stack.callback(self._board.close)
        if restored is not None:
            apply(restored, context, self._callbacks)
            logger.info("resumed from checkpoint %s at batch %d", restored.uuid, self._progress.steps_completed)
        if distributed.rank > 0 and (restored is None or not restored.knows(distributed.rank)):
            # The ranks were seeded alike so that they build the same model; from here on they draw their own numbers.
            rng.seed(derive_seed("rank", context.get_trial_seed(), distributed.rank, self._progress.steps_completed))
        stack.enter_context(self._core._watch_loop(self._state, self._plan.hang_timeout))
        stack.push(self._note_failure)
        self._core.profiler._follow(lambda: self._progress.steps_completed)
        if self._plan.profiling:
            self._core.profiler.on()
            stack.callback(self._core.profiler.off)
        if context.profiler is not None:
            stack.enter_context(context.profiler)

    def _canaries_of(self, restored: RestoredCheckpoint | None) -> str | None:
        """Return the secret of the trial's canaries; None if it begins now, or has none."""
        return restored.canaries if restored else None

    def _note_failure(self, _: type[BaseException] | None, error: BaseException | None, __: Any) -> None:
        """Note that this rank failed before the others do for want of it."""
        if self._core.distributed.size > 1 and is_own_failure(error):
            note_failing_rank(self._core.distributed.rank, 1)

    def _train(self) -> None:
        progress, due = self._progress, self._plan.due
        self._first_step = progress.steps_completed
        self._begin_chunk()
        self._control()
        while self._ending is None and not due.over(progress.steps_completed, progress.epochs_completed):
            if self._budget_end is not None and progress.steps_completed >= self._budget_end:
                self._ending = "budget"
                break
            stop = min(due.next_batch(progress.steps_completed), self._next_control)
            epoch_ended = self._train_until(stop if self._budget_end is None else min(stop, self._budget_end))
            names = due.at(progress.steps_completed, progress.epochs_completed, epoch_ended=epoch_ended)
            if names:
                self._at_boundary(names)
            if names or progress.steps_completed >= self._next_control:
                self._control()

    def _train_until(self, stop: int) -> bool:
        """Train up to `stop` batches in all, or to the end of an epoch; return whether an epoch has ended."""
        context, state, progress, profiler = self._context, self._state, self._progress, self._context.profiler
        next_batch, collect = self._stream.__next__, self._chunk.add
        trial: Any = SourceStep(self._trial, context) if is_parted(context._governed) else self._trial
        train_batch: Any = trial.train_batch
        if self._stream.next_weight != 1:  # of one step, the rest of an epoch; with it this method returns
            train_batch = WeightedStep(trial, context, self._stream.next_weight).train_batch
        to_device = context.to_device if context.experimental._auto_to_device else None
        step = progress.steps_completed
        while step < stop:
            state.batch = step
            state.phase = "data"
            fetched = next_batch()
            data = fetched.data if to_device is None else to_device(fetched.data)
            context._begin_batch(step, fetched.epoch, fetched.starts_epoch, fetched.ends_epoch, fetched.ids)
            if fetched.starts_epoch:
                self._call("on_training_epoch_start", fetched.epoch)
            state.phase = "train_batch"
            metrics = train_batch(batch=data, epoch_idx=fetched.epoch, batch_idx=step)
            context._end_batch(self._stream.remaining_in_epoch)
            collect(metrics)
            step += 1
            progress.steps_completed = step
            if profiler is not None:
                profiler.step()
            if fetched.ends_epoch:
                progress.epochs_completed = fetched.epoch + 1
                self._call("on_training_epoch_end", fetched.epoch)
                return True
        return False

    def _at_boundary(self, names: set[str]) -> None:
        self._close_chunk()
        if "validate" in names:
            self._validate()
        if "checkpoint" in names:
            self._checkpoint()
        self._begin_chunk()

    def _finish(self) -> None:
        """Finish: report, validate unless preempted, checkpoint, and wait until the checkpoint is committed."""
        if self._progress.steps_completed > self._chunk_start:
            self._close_chunk()
        if self._ending != "preempt" and self._progress.steps_completed > 0:
            self._validate()
        self._checkpoint()
        self._state.phase = "sync"
        self._checkpointing.drain()
        if self._chief:
            steps = self._progress.steps_completed
            why = ": the privacy budget is spent" if self._ending == "budget" else ""
            self._core.train.set_status(f"{'stopped' if self._ending else 'finished'} after {steps} batches{why}")
            if why:
                logger.info("training ends after %d batches%s (governance.dp.target_epsilon)", steps, why)
            if self._ending in {"stop", "budget"}:
                self._core.train.report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)

    # --- agreeing

    def _control(self) -> None:
        """Agree with the other ranks on whether to continue, and when to ask again."""
        self._state.phase = "sync"
        mine: dict[str, Any] = {"stop": self._context.get_stop_requested()}
        if self._chief:
            mine["preempt"] = self._core.preempt.should_preempt()
            mine["committed"] = self._checkpointing.poll()
            mine["next"] = self._progress.steps_completed + self._batches_until_control()
        said = self._core.distributed.allgather(mine)
        self._next_control = said[0]["next"]
        if not self._prepared and self._progress.steps_completed > self._first_step:
            self._prepared = True  # by now the optimizer has its state
            self._checkpointing.prepare(self._stream)
        self._checkpointing.committed(said[0]["committed"])
        if said[0]["preempt"]:
            self._ending = "preempt"
        elif any(rank["stop"] for rank in said):
            self._ending = "stop"

    def _batches_until_control(self) -> int:
        """Return how many batches take about `CONTROL_SECONDS`, from the time that the last ones took."""
        now, step = time.monotonic(), self._progress.steps_completed
        trained, seconds = step - self._control_step, now - self._control_time
        self._control_time, self._control_step = now, step
        if trained == 0:
            return 1
        return max(1, min(10 * trained, int(trained * CONTROL_SECONDS / max(seconds, 1e-6))))

    # --- metrics

    def _begin_chunk(self) -> None:
        self._chunk_start = self._progress.steps_completed
        self._chunk_time = time.monotonic()
        self._context.reset_reducers()
        self._context._train()

    def _close_chunk(self) -> None:
        """Reduce and report what the batches since the last boundary gave."""
        self._state.phase = "sync"
        steps = self._progress.steps_completed
        averages, batch_metrics = self._chunk.reduce(self._core.distributed)
        averages.update(self._context.reduce_metrics(for_training=True))
        self._warn_not_finite()
        metrics = self._with_counts({name: to_plain(value, name) for name, value in averages.items()})
        if self._chief:
            seconds = max(time.monotonic() - self._chunk_time, 1e-9)
            logger.info(
                "trained %d batches, %.1f per second", steps - self._chunk_start, (steps - self._chunk_start) / seconds
            )
            self._core.train.report_training_metrics(steps_completed=steps, metrics=metrics)
            self._report_progress()
            self._board.on_train_step_end(steps, metrics)
        if self._tell_batches:
            told = {**dict.fromkeys(self._chunk.without_average), **metrics}
            shared = self._core.distributed.broadcast((told, batch_metrics()) if self._chief else None)
            self._call("on_training_workload_end", *shared)

    def _with_counts(self, metrics: dict[str, Any]) -> dict[str, Any]:
        counts = {"batches": self._progress.steps_completed, "epochs": self._progress.epochs_completed}
        for name in counts:
            if name in metrics and name not in self._warned:
                self._warned.add(name)
                logger.warning(
                    "the metric %r is reserved for the trainer's count; the value from the trial is not reported", name
                )
        return {**metrics, **counts}

    def _warn_not_finite(self) -> None:
        for name, index in self._chunk.not_finite.items():
            if name not in self._warned:
                self._warned.add(name)
                logger.warning(
                    "training metric %r was NaN or infinite first at batch %d: check the learning rate, the data of "
                    "that batch, and gradient clipping",
                    name,
                    self._chunk_start + index,
                )

    def _report_progress(self) -> None:
        progress, stream = self._progress, self._stream
        epochs = float(progress.epochs_completed)
        if stream.remaining_in_epoch and stream.epoch_length:
            epochs += stream.batch_in_epoch / stream.epoch_length
        self._core.train.report_progress(self._plan.due.progress(progress.steps_completed, epochs))

    # --- validating and saving

    def _validate(self) -> None:
        progress = self._progress
        if progress.validated_at == progress.steps_completed:
            return
        self._state.phase = "validation"
        if self._chief:
            self._core.train.set_status("validating")
        with self._context._probing():
            measured = self._validation.run()
        metrics = self._with_counts({**measured, **self._governance_metrics()})
        progress.validated_at = progress.steps_completed
        self._call("on_validation_end", metrics)  # before the report: it may add metrics, as in Determined
        metrics = {name: to_plain(value, name) for name, value in metrics.items()}
        is_best = self._note_best(metrics)
        if self._chief:
            self._core.train.report_validation_metrics(progress.steps_completed, metrics)
            self._board.on_validation_step_end(progress.steps_completed, metrics)
            self._core.train.set_status("training")
        if self._plan.checkpoint_policy == "all" or (self._plan.checkpoint_policy == "best" and is_best):
            self._checkpoint()

    def _governance_metrics(self) -> dict[str, Any]:
        context = self._context
        moves = context.experimental._auto_to_device
        memorised = context._memorisation(self._trial, self._core.distributed, moves=moves)
        return {**context._governance_metrics(), **memorised, **context._profiled(self._core.distributed)}

    def _note_best(self, metrics: dict[str, Any]) -> bool:
        """Return whether this validation is the best of the experiment so far; the chief decides."""
        plan, progress = self._plan, self._progress
        if plan.checkpoint_policy != "best" or plan.metric is None:
            return False
        verdict = self._judge(plan.metric, metrics) if self._chief else None
        is_best, progress.best_validation = self._core.distributed.broadcast(verdict)
        return bool(is_best)

    def _judge(self, name: str, metrics: dict[str, Any]) -> tuple[bool, float | None]:
        """Return whether this validation is the best of the experiment, and the best of this trial."""
        value, own, less = metrics.get(name), self._progress.best_validation, self._plan.smaller_is_better
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            self._warn_no_metric(name, metrics)
            return False, own
        if value == (-math.inf if less else math.inf):  # it has diverged: that beats no number
            return False, own
        best = best_so_far(
            lambda: self._core.train._best_validation(BEST_VALIDATION_SECONDS), own, smaller_is_better=less
        )
        is_best = best is None or (value < best if less else value > best)
        is_own_best = own is None or (value < own if less else value > own)
        return is_best, float(value) if is_own_best else own

    def _warn_no_metric(self, name: str, metrics: dict[str, Any]) -> None:
        if name not in self._warned:
            self._warned.add(name)
            known = ", ".join(metrics)
            logger.warning(
                "the searcher's metric %r is not a number in this validation (it has: %s): no best checkpoint",
                name,
                known,
            )

    def _checkpoint(self) -> None:
        progress = self._progress
        if progress.steps_completed in {progress.saved_at, 0}:
            return
        self._state.phase = "checkpoint"
        self._context._check_unmoved()
        if self._context._wants_probe:
            with self._context._probing():
                self._validation.look()
        self._checkpointing.save(self._stream)
        self._board.flush_and_upload()

    # --- small things

    def _call(self, hook: str, *args: Any) -> None:
        self._state.phase = "callback"
        self._callbacks.call(hook, *args)

    def _where(self) -> str:
        progress, rank = self._progress, self._core.distributed.rank
        return f"rank {rank}, after {progress.steps_completed} batches (epoch {progress.epochs_completed})"
