"""`DetCheckpointCallback`: checkpoints, preemption and resuming of a Lightning `Trainer`."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from detlab import core
from detlab.frameworks import random_states
from detlab.frameworks.errors import FrameworkError
from detlab.frameworks.trial import TrialControl
from detlab.lightning.logger import DetLogger, epochs_of
from detlab.lightning.position import DataPosition, rewind

logger = logging.getLogger("detlab.lightning")

CHECKPOINT = "trainer.ckpt"
"""Of a checkpoint: what `Trainer.save_checkpoint` writes."""
LENGTH_SETTING = "Trainer(max_epochs=…) or (max_steps=…)"


class DetCheckpointCallback(Callback):
    """Stores Lightning's checkpoints as those of the trial, and lets the trial stop and resume.

    A checkpoint holds what `Trainer.save_checkpoint` writes, and for each rank the states of its random number
    generators and its place in the data. When the trial is to stop (a pause, a stop by the searcher, another trial's
    turn), one is stored after the batch, and the process ends. A later attempt passes `ckpt_path` to `trainer.fit` and
    goes on with the next batch of the same epoch.

    All ranks make one. Local checkpoints of Lightning's `ModelCheckpoint` are left alone.

    Args:
        core_context: What `core.init()` gave; with several processes made with
            `distributed=DistributedContext.from_torch_distributed()`.
        checkpoint_epochs: Store a checkpoint after so many epochs; 0 stores only at the end and when the trial stops.

    Attributes:
        ckpt_path: For `trainer.fit(…, ckpt_path=…)`; None for a trial that starts.

    Raises:
        FrameworkError: The checkpoint to resume from is not one of Lightning.
        CheckpointError: It cannot be read.
    """

    def __init__(self, core_context: core.Context, *, checkpoint_epochs: int = 1) -> None:
        super().__init__()
        if isinstance(checkpoint_epochs, bool) or not isinstance(checkpoint_epochs, int) or checkpoint_epochs < 0:
            raise FrameworkError(f"checkpoint_epochs must be an integer from 0, not {checkpoint_epochs!r}")
        self._trial = TrialControl(core_context)
        self._checkpoint_epochs = checkpoint_epochs
        self._files = contextlib.ExitStack()
        self._position: DataPosition | None = None
        self._epoch_began: dict[str, Any] | None = None
        self._saved_at: int | None = None
        self._must_resume = False
        self.ckpt_path = self._fetch()

    def _fetch(self) -> str | None:
        """Open the latest checkpoint until training starts; return the path of Lightning's part."""
        uuid = self._trial.latest_checkpoint
        if uuid is None:
            return None
        folder = self._files.enter_context(self._trial.core.checkpoint.restore_path(uuid))
        if not (folder / CHECKPOINT).exists():
            self._files.close()
            raise FrameworkError(f"checkpoint {uuid} has no {CHECKPOINT}: detlab.lightning did not write it")
        self._trial.resumed_at = int(self._trial.core.checkpoint.get_metadata(uuid)["steps_completed"])
        self._must_resume = True
        own = folder / _rank_file(self._trial.distributed.rank)
        if own.is_file():  # there are more ranks now than there were
            self._position = DataPosition(**json.loads(own.read_text(encoding="utf-8")))
        return str(folder / CHECKPOINT)

    # --- the course of Lightning's hooks

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check that the Trainer fits the trial.

        Raises:
            FrameworkError: It has other processes, or trains for another length than the search.
        """
        for found in trainer.loggers:
            if isinstance(found, DetLogger):
                found.follow(trainer, self._trial.resumed_at)
        if stage != "fit":
            return
        size = self._trial.distributed.size
        if trainer.world_size != size:
            raise FrameworkError(
                f"the Trainer has {trainer.world_size} processes, and core_context {size}",
                hint="Start with `python3 -m detlab.launch.torch_distributed SCRIPT`, make the context by"
                " det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()), and give"
                " Trainer(devices=core_context.distributed.local_size, num_nodes=core_context.distributed.cross_size).",
            )
        self._trial.check_length(
            batches=trainer.max_steps if trainer.max_steps > 0 else None,
            epochs=trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs > 0 else None,
            setting=LENGTH_SETTING,
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go to the place in the data where the checkpoint was made, now that Lightning has loaded it.

        Raises:
            FrameworkError: Lightning has not.
        """
        if self._must_resume and trainer.global_step != self._trial.resumed_at:
            raise FrameworkError(
                f"this attempt of the trial is to resume at step {self._trial.resumed_at}, and the Trainer begins at"
                f" {trainer.global_step}",
                hint="Call trainer.fit(…, ckpt_path=callback.ckpt_path).",
            )
        if self._must_resume:
            self._saved_at, self._must_resume = self._trial.resumed_at, False
        self._files.close()
        if self._position is not None:
            if self._position.batches:
                self._epoch_began = self._position.epoch_began
                rewind(trainer, self._position)
            random_states.restore(self._position.now)
            self._position = None
        self._trial.set_status("training")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the random states from which the order of this epoch's data is drawn; leave, if the trial is to stop.

        Raises:
            SystemExit: With code 0; the end of the epoch before has stored the checkpoint.
        """
        self._leave_if_stored(trainer)
        self._epoch_began = random_states.capture()
        loop = trainer.fit_loop
        renews = trainer.current_epoch > 0 and not loop.is_resuming and not loop.epoch_loop.restarting
        if not renews and loop._data_fetcher is not None:
            iter(loop._data_fetcher)  # as Lightning does at the start of each further epoch

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Leave, if the trial is to stop: Lightning logs a batch after its last hook, so not in that one.

        Raises:
            SystemExit: With code 0; the end of the batch before has stored the checkpoint.
        """
        self._leave_if_stored(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report progress; store a checkpoint, if the trial is to stop."""
        length = trainer.num_training_batches
        self._trial.report_progress(_share_done(trainer))
        loop = trainer.fit_loop
        if not self._trial.should_stop(trainer.global_step):
            return
        if batch_idx + 1 >= length or loop.epoch_loop.batch_progress.is_last_batch:
            return  # after the validation, in on_train_epoch_end
        if loop._should_accumulate() or (
            loop._data_fetcher is not None and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
        ):
            return  # the next attempt would begin after the validation that is due now: stop a batch later
        self._save(trainer, batch_idx + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Store a checkpoint if one is due or the trial is to stop, which it does once the epoch's metrics are out."""
        every = self._checkpoint_epochs
        if self._trial.ask(trainer.global_step) or (every and (trainer.current_epoch + 1) % every == 0):
            self._save(trainer, 0)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Store the last checkpoint."""
        self._save(trainer, 0)
        self._trial.set_status("finishing")

    def _leave_if_stored(self, trainer: Trainer) -> None:
        if self._trial.stopping and self._saved_at == trainer.global_step:
            self._trial.leave()

    def _save(self, trainer: Trainer, batches: int) -> None:
        """Store a checkpoint, unless there is one of this step.

        Args:
            trainer: The Trainer.
            batches: Of the current epoch that were trained; 0 at the end of one.
        """
        step = trainer.global_step
        if self._saved_at == step:
            return
        metadata = {
            "steps_completed": step,
            "framework": f"lightning-{lightning.__version__}",
            "format": "lightning",
            "epoch": trainer.current_epoch,
        }
        position = DataPosition(now=random_states.capture(), epoch_began=self._epoch_began, batches=batches)
        with self._trial.core.checkpoint.store_path(metadata, shard=True) as (folder, _):
            trainer.save_checkpoint(folder / CHECKPOINT)
            (folder / _rank_file(self._trial.distributed.rank)).write_text(position.to_json(), encoding="utf-8")
        self._saved_at = step


def _rank_file(rank: int) -> Path:
    return Path(f"rank-{rank}.json")


def _share_done(trainer: Trainer) -> float:
    if trainer.max_steps > 0:
        return trainer.global_step / trainer.max_steps
    if trainer.max_epochs is None or trainer.max_epochs < 1:
        return 0.0
    return epochs_of(trainer) / trainer.max_epochs
