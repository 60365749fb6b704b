"""`init()` and `Trainer.fit` for a `DeepSpeedTrial`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import deepspeed
import torch
import torch.distributed as dist

from detlab import core
from detlab.pytorch.deepspeed.context import DeepSpeedTrialContext
from detlab.pytorch.deepspeed.loop import DeepSpeedLoop
from detlab.pytorch.deepspeed.trial import DeepSpeedTrial
from detlab.pytorch.loop import TrainingPlan
from detlab.pytorch.trainer import HANG_TIMEOUT, Trainer, begun


@contextlib.contextmanager
def init(
    *,
    hparams: dict[str, Any] | None = None,
    exp_conf: dict[str, Any] | None = None,
    distributed: core.DistributedContext | None = None,
    enable_tensorboard_logging: bool = True,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
    hang_timeout: float = HANG_TIMEOUT,
) -> Iterator[DeepSpeedTrialContext]:
    """Give the context of this process; `with deepspeed.init() as context:` surrounds a training script.

    Start several processes with `python3 -m detlab.launch.deepspeed`. The arguments are those of `pytorch.init`.
    """
    with begun(hparams, exp_conf, distributed, checkpoint_storage, hang_timeout) as start:
        _connect()
        context = DeepSpeedTrialContext(
            core_context=start.core_context,
            trial_seed=start.seed,
            hparams=start.hparams,
            slots_per_trial=start.core_context.distributed.size,
            num_gpus=start.num_gpus,
            exp_conf=start.config,
            enable_tensorboard_logging=enable_tensorboard_logging,
        )
        context._hang_timeout = hang_timeout
        yield context


def _connect() -> None:
    """Have DeepSpeed use torch's process group; it wants one for a single process, too."""
    if not dist.is_initialized():
        os.environ.setdefault("LOCAL_RANK", "0")
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        # It stays: DeepSpeed keeps groups that it has made of it for as long as the process lives.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    if not torch.cuda.is_available():
        # Where a compiler is installed DeepSpeed would build an operator for CPUs first, which takes minutes.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=dist.get_backend(), auto_mpi_discovery=False, verbose=False)


class DeepSpeedTrainer(Trainer):
    """Trains a `DeepSpeedTrial`; `fit` is that of `detlab.pytorch.Trainer`.

    A batch is one step of the optimizer, with all of its micro-batches.
    """

    _trial_type = DeepSpeedTrial
    _context_type = DeepSpeedTrialContext
    _init = "deepspeed.init()"

    def _run(self, plan: TrainingPlan) -> None:
        DeepSpeedLoop(plan, self._trial, self._context).run()
