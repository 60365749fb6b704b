"""`init()` and `Trainer.fit`: where a training script begins."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch

from detlab import core
from detlab.core.searcher import parse_length, parse_units
from detlab.info import ClusterInfo, get_cluster_info
from detlab.pytorch.checkpoint import rng
from detlab.pytorch.checkpoint.isolated_import import importing
from detlab.pytorch.context.trial_context import PyTorchTrialContext
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.loop import Loop, TrainingPlan
from detlab.pytorch.parallel import process_group
from detlab.pytorch.replay import ReplayLoop
from detlab.pytorch.trial import PyTorchTrial
from detlab.pytorch.units import Batch, Due, Epoch, TrainUnit

logger = logging.getLogger("detlab.pytorch")

POLICIES = ("best", "all", "none")
HANG_TIMEOUT = 1800.0
"""Seconds without progress after which a rank counts as hung; the same as torch's own patience."""


@contextlib.contextmanager
def init(
    *,
    hparams: dict[str, Any] | None = None,
    exp_conf: dict[str, Any] | None = None,
    distributed: core.DistributedContext | None = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
    hang_timeout: float = HANG_TIMEOUT,
    strategy: str | None = None,
) -> Iterator[PyTorchTrialContext]:
    """Give the context of this process; `with pytorch.init() as train_context:` surrounds a training script.

    The same script runs locally, under torchrun, and on a cluster with one process or one per slot.

    Args:
        hparams: Hyperparameters of a local run; on a cluster the trial's are used instead.
        exp_conf: Experiment config of a local run; on a cluster the experiment's is used instead.
        distributed: Ranks; by default from torchrun's environment.
        aggregation_frequency: Batches whose gradients one optimizer step takes together.
        enable_tensorboard_logging: Whether reported metrics also become TensorBoard event files.
        checkpoint_storage: As for `core.init`.
        hang_timeout: Seconds without progress on all ranks after which the attempt ends, naming the rank that hangs;
            a single batch, `evaluate_full_dataset` or upload of a checkpoint must take less time. Off-cluster there is
            no launcher to watch the ranks: there torch's collectives fail a minute after this time.
        strategy: How models are spread over the processes, by the name of an entry point in `detlab.strategies`; by
            default `single` for one process, `ddp` for several.

    Raises:
        TrainerError: An argument is invalid, or the processes do not fit the slots or the strategy.
    """
    if (
        isinstance(aggregation_frequency, bool)
        or not isinstance(aggregation_frequency, int)
        or aggregation_frequency < 1
    ):
        raise TrainerError(f"aggregation_frequency must be a positive integer, not {aggregation_frequency!r}")
    with begun(hparams, exp_conf, distributed, checkpoint_storage, hang_timeout) as start:
        context = PyTorchTrialContext(
            core_context=start.core_context,
            trial_seed=start.seed,
            hparams=start.hparams,
            slots_per_trial=start.core_context.distributed.size,
            num_gpus=start.num_gpus,
            exp_conf=start.config,
            aggregation_frequency=aggregation_frequency,
            steps_completed=0,
            managed_training=True,
            debug_enabled=bool(start.config.get("debug", False)),
            enable_tensorboard_logging=enable_tensorboard_logging,
            strategy=strategy,
        )
        context._hang_timeout = hang_timeout
        yield context


@dataclasses.dataclass(frozen=True)
class TrainingStart:
    """What a training script begins with.

    Attributes:
        core_context: The Core API of this process.
        seed: Of the trial; the generators of random numbers are seeded by it.
        hparams: Of the trial.
        config: The experiment config; empty if there is none.
        num_gpus: GPUs of this trial on this node.
    """

    core_context: core.Context
    seed: int
    hparams: dict[str, Any]
    config: dict[str, Any]
    num_gpus: int


@contextlib.contextmanager
def begun(
    hparams: dict[str, Any] | None,
    exp_conf: dict[str, Any] | None,
    distributed: core.DistributedContext | None,
    checkpoint_storage: str | Mapping[str, Any] | None,
    hang_timeout: float,
) -> Iterator[TrainingStart]:
    """Connect the ranks, seed them, and open the Core API; the arguments are those of `init`."""
    if (code := importing.get()) is not None:
        raise TrainerError(
            f"the script in {code} trains as soon as it is imported, which loading a checkpoint does",
            hint='put its last lines under `if __name__ == "__main__":`, or pass trial_class=YourTrial',
        )
    info = _trial_info()
    if info is not None:
        hparams, exp_conf = _of_cluster(info, hparams)
    config = exp_conf or {}
    with process_group.joined(info, distributed, hang_timeout) as connected:
        ranks = connected or core.DummyDistributedContext()
        seed = info.trial.trial_seed if info is not None else ranks.broadcast(_local_seed(config))
        rng.seed(seed)
        with core.init(
            distributed=connected,
            checkpoint_storage=checkpoint_storage,
            preempt_mode=core.PreemptMode.ChiefOnly,
            tensorboard_mode=core.TensorboardMode.MANUAL,
        ) as core_context:
            core_context._leave_watch()  # until the loop begins, which tells its progress
            num_gpus = len(info.gpu_uuids) if info is not None else torch.cuda.device_count()
            yield TrainingStart(core_context, seed, hparams or {}, config, num_gpus)


def _trial_info() -> ClusterInfo | None:
    """Return the task if it is a trial: training in a notebook of the cluster is local training."""
    info = get_cluster_info()
    return info if info is not None and info.task_type == "TRIAL" else None


def _of_cluster(info: ClusterInfo, hparams: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    if hparams is not None and hparams != info.trial.hparams:
        logger.info("on a cluster the trial's hyperparameters count: those given to pytorch.init() are not used")
    return dict(info.trial.hparams), dict(info.trial._config)


def _local_seed(config: Mapping[str, Any]) -> int:
    given = (config.get("reproducibility") or {}).get("experiment_seed")
    return int(given) if given is not None else random.SystemRandom().randrange(1 << 31)


class Trainer:
    """Trains a `PyTorchTrial`.

    Args:
        trial: The trial.
        context: The context from `init()`.

    Raises:
        TrainerError: An argument is of another type.
    """

    _trial_type: type = PyTorchTrial
    _context_type: type = PyTorchTrialContext
    _init = "pytorch.init()"

    def __init__(self, trial: Any, context: Any) -> None:
        problems: list[str] = []
        if not isinstance(trial, self._trial_type):
            problems.append(f"trial must be an instance of a {self._trial_type.__name__}, not {trial!r}")
        if not isinstance(context, self._context_type):
            problems.append(f"context must be what `with {self._init}` gives, not {context!r}")
        if problems:
            raise TrainerError.of("Trainer(trial, context):", problems)
        self._trial = trial
        self._context = context
        self._core = context._core
        self._info = _trial_info()

    def configure_profiler(
        self,
        sync_timings: bool = True,
        enabled: bool = False,
        begin_on_batch: int = 0,
        end_after_batch: int | None = None,
    ) -> None:
        """Do nothing but warn: as in Determined 0.38, `fit(profiling_enabled=True)` replaced it.

        Args:
            sync_timings: Not used.
            enabled: Not used.
            begin_on_batch: Not used.
            end_after_batch: Not used.
        """
        logger.warning("Trainer.configure_profiler() has no effect: call fit(..., profiling_enabled=True)")

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit = Batch(100),  # noqa: B008  # never changed
        checkpoint_policy: str = "best",
        latest_checkpoint: str | Literal[False] | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> None:
        """Train until `max_length`, or until the cluster or the trial stops it; then validate and checkpoint.

        Args:
            checkpoint_period: Between checkpoints; a last one is always taken.
            validation_period: Between validations; a last one is always done.
            max_length: Of the whole training, over all attempts; on a cluster by default the searcher's
                `max_length` or `max_time`.
            reporting_period: Between reports of training metrics.
            checkpoint_policy: Checkpoint after validations that are the experiment's `best`, after `all` or `none`.
            latest_checkpoint: UUID of the checkpoint to resume from; on a cluster by default the trial's latest one;
                False starts from scratch.
            step_zero_validation: Validate before the first batch.
            test_mode: Train and validate on one batch, to see that everything works; local runs only.
            profiling_enabled: Report the node's CPU, memory, disk, network and GPUs, as `core_context.profiler` does;
                on a cluster.

        Raises:
            TrainerError: Arguments are invalid (all mistakes are listed), or the trial cannot be trained.
            CheckpointError: A checkpoint could not be read or written.
            InvalidHP: As raised by the trial.
        """
        periods = {"report": reporting_period, "validate": validation_period, "checkpoint": checkpoint_period}
        if max_length is None and self._info is not None:
            max_length = searcher_length(self._info.trial._config.get("searcher") or {})
        if test_mode:
            max_length = Batch(1)
        self._check(periods, max_length, checkpoint_policy, latest_checkpoint, test_mode)
        assert max_length is not None
        searcher = self._context.get_experiment_config().get("searcher") or {}
        metric = searcher.get("metric")
        if checkpoint_policy == "best" and metric is None:
            logger.info(
                "searcher.metric is not known, so the best cannot be determined: a checkpoint follows every validation"
            )
            checkpoint_policy = "all"
        plan = TrainingPlan(
            due=Due(max_length, periods),
            checkpoint_policy=checkpoint_policy,
            latest_checkpoint=self._resume_from(latest_checkpoint),
            step_zero_validation=step_zero_validation,
            test_mode=test_mode,
            profiling=profiling_enabled,
            metric=metric,
            smaller_is_better=bool(searcher.get("smaller_is_better", True)),
            hang_timeout=self._context._hang_timeout or HANG_TIMEOUT,
        )
        self._run(plan)

    def _run(self, plan: TrainingPlan) -> None:
        if self._info is not None and self._info._replay is not None:
            ReplayLoop(plan, self._trial, self._context, self._core, self._info._replay).run()
        else:
            Loop(plan, self._trial, self._context, self._core).run()

    def _resume_from(self, given: str | Literal[False] | None) -> str | None:
        if given is False:
            return None
        return given or (self._info.latest_checkpoint if self._info is not None else None)

    def _check(
        self,
        periods: dict[str, Any],
        max_length: Any,
        policy: Any,
        latest_checkpoint: Any,
        test_mode: bool,
    ) -> None:
        names = {"report": "reporting_period", "validate": "validation_period", "checkpoint": "checkpoint_period"}
        problems = [
            f"{names[key]} must be pytorch.Batch(n) or pytorch.Epoch(n), not {unit!r}"
            for key, unit in periods.items()
            if unit is not None and not isinstance(unit, TrainUnit)
        ]
        if max_length is None:
            problems.append("max_length is missing: give pytorch.Batch(n) or pytorch.Epoch(n)")
        elif not isinstance(max_length, TrainUnit) or not isinstance(max_length.value, int):
            problems.append(f"max_length must be pytorch.Batch(n) or pytorch.Epoch(n), not {max_length!r}")
        if policy not in POLICIES:
            problems.append(f"checkpoint_policy must be one of {', '.join(POLICIES)}, not {policy!r}")
        named = isinstance(latest_checkpoint, str) and latest_checkpoint
        if not (named or latest_checkpoint is None or latest_checkpoint is False):
            problems.append(f"latest_checkpoint must be the uuid of a checkpoint, not {latest_checkpoint!r}")
        if test_mode and self._info is not None:
            problems.append("test_mode is for local runs, this is a trial of a cluster")
        if problems:
            raise TrainerError.of("Trainer.fit() cannot start:", problems)


def searcher_length(searcher: Mapping[str, Any]) -> TrainUnit | None:
    """Return the length that a `searcher` block asks for, in batches unless it says epochs, or None."""
    length = parse_length(searcher)
    if length < 1:
        return None
    unit = parse_units(searcher)
    name = unit.name if unit is not None else str(searcher.get("time_metric") or "").upper()
    return Epoch(length) if name == "EPOCHS" else Batch(length)
