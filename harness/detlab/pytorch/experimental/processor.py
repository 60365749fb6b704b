"""What users write for batch inference, `TorchBatchProcessor`, and what it is given."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from detlab.core import Context
from detlab.pytorch.context.trial_context import choose_device
from detlab.pytorch.data.loader import to_device
from detlab.pytorch.errors import NotTraining, TrainerError
from detlab.pytorch.metrics.reducer import _PyTorchReducerContext

if TYPE_CHECKING:
    from detlab.pytorch.experimental.outputs import RankOutputs


class TorchBatchProcessorContext(_PyTorchReducerContext):
    """What a `TorchBatchProcessor` gets: device, output folder, reports, and the model to start from.

    Args:
        core_context: The Core API of this process.
        outputs: Where this rank's files go.
        source_checkpoint: The checkpoint that the experiment starts from.
        num_gpus: GPUs of this trial on this node.

    Attributes:
        distributed: Messages between the ranks.
        device: Where this rank computes.
        source_checkpoint: Uuid of the checkpoint that the experiment starts from (`searcher.source_checkpoint_uuid`),
            which is the same in all attempts; None if the config names none.
    """

    def __init__(
        self, core_context: Context, outputs: RankOutputs, source_checkpoint: str | None, num_gpus: int
    ) -> None:
        super().__init__(core_context.distributed.allgather)
        self._core = core_context
        self._outputs = outputs
        self._samples: range | None = None
        self._warned: set[type] = set()
        self.distributed = core_context.distributed
        self.device = choose_device(num_gpus, core_context.distributed)
        self.source_checkpoint = source_checkpoint

    def to_device(self, data: Any, warned_types: set[type] | None = None) -> Any:
        """Return data with its tensors and arrays on this rank's device; dicts, lists and tuples are searched.

        Args:
            data: A batch, or anything else.
            warned_types: Types already warned about; by default those of earlier calls.
        """
        return to_device(data, self.device, self._warned if warned_types is None else warned_types)

    def prepare_model_for_inference(self, model: torch.nn.Module) -> torch.nn.Module:
        """Put a model in evaluation mode and on this rank's device; return it."""
        if not isinstance(model, torch.nn.Module):
            raise TrainerError(f"prepare_model_for_inference(model): it must be a torch.nn.Module, not {model!r:.200}")
        return model.eval().to(self.device)

    def current_sample_ids(self) -> range:
        """Return the indices in the dataset of the samples of the batch that is being processed.

        Raises:
            NotTraining: Called outside of `process_batch`.
        """
        if self._samples is None:
            raise NotTraining("current_sample_ids() is known while process_batch() runs")
        return self._samples

    @contextlib.contextmanager
    def upload_path(self) -> Iterator[Path]:
        """Give this rank's output folder.

        What is in it is stored with the next checkpoint. It holds what this rank has written so far, in earlier
        attempts too, up to the checkpoint that this attempt resumed from: nothing that was written later.
        """
        yield self._outputs.folder

    @contextlib.contextmanager
    def source_checkpoint_path(self) -> Iterator[Path]:
        """Give a folder with the verified files of `source_checkpoint`, to be read while the block lasts.

        All ranks call it together, and one for each node fetches the files.

        Raises:
            TrainerError: The config names no checkpoint to start from.
        """
        if self.source_checkpoint is None:
            raise TrainerError(
                "the experiment's config names no checkpoint to start from",
                hint="searcher.source_checkpoint_uuid: `det model list-versions MODEL` shows those of its versions",
            )
        with self._core.checkpoint.restore_path(self.source_checkpoint) as path:
            yield path

    def report_metrics(self, group: str, steps_completed: int, metrics: dict[str, Any]) -> None:
        """Report metrics, if this is the chief (rank 0); those of all ranks together come from `wrap_reducer`.

        Args:
            group: `validation`, `inference` or any other name without a dot.
            steps_completed: Batches of this rank so far: `batch_idx + 1`.
            metrics: By name.
        """
        if self.distributed.rank != 0:
            return
        if group == "training":
            self._core.train.report_training_metrics(steps_completed, metrics)
        elif group == "validation":
            self._core.train.report_validation_metrics(steps_completed, metrics)
        else:
            self._core.train.report_metrics(group, steps_completed, metrics)

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Record `checkpoint`, or its uuid, in the lineage of the output."""
        self._core.experimental.report_task_using_checkpoint(checkpoint)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Record the checkpoint of a `ModelVersion` of `detlab.client` likewise."""
        self._core.experimental.report_task_using_model_version(model_version)

    def get_tensorboard_path(self) -> Path:
        """Return a directory for TensorBoard event files of this rank; it exists."""
        return self._core.train.get_tensorboard_path()


class TorchBatchProcessor(abc.ABC):
    """Processes the batches of a dataset: load the model in `__init__`, use it in `process_batch`.

    Each rank has one. A rank that is resumed makes a new one, and the batches before the last checkpoint are not
    processed again: what it keeps in memory has to be written out in `on_checkpoint_start`.

    Args:
        context: The device, the output folder, the reports.
    """

    @abc.abstractmethod
    def __init__(self, context: TorchBatchProcessorContext) -> None: ...

    @abc.abstractmethod
    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Process one batch.

        Args:
            batch: As the data loader made it, on the CPU: `context.to_device(batch)` moves it.
            batch_idx: Counts this rank's batches over all attempts, so that rank and `batch_idx` name it.
                `context.current_sample_ids()` says which samples it has.
        """

    def on_checkpoint_start(self) -> None:  # noqa: B027 - most need none
        """Do what has to be done before a checkpoint: write out what is held in memory; nothing by default."""

    def on_finish(self) -> None:  # noqa: B027 - most need none
        """Do what has to be done after the last batch, on each rank; nothing by default.

        An attempt that dies after it, and before the last checkpoint is stored, is resumed, and calls it again.
        """
