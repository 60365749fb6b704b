"""This rank's micro-batches, as iterators for `train_batch` and `evaluate_batch`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.resumable import TrainingStream, ValidationShare, validation_loader
from detlab.pytorch.errors import LoaderRefused, TrainerError
from detlab.pytorch.validation import TRAINING_BUILDER, VALIDATION_BUILDER

if TYPE_CHECKING:
    from detlab.pytorch.deepspeed.context import DeepSpeedTrialContext
    from detlab.pytorch.deepspeed.trial import DeepSpeedTrial


class MicroBatches:
    """The training data, without end; on a rank that reads none the place in it alone.

    Args:
        trial: Builds the loader.
        context: Of the trial.
        state: What `state_dict` said.

    Attributes:
        iterator: For `train_batch`; None on a rank that reads no data.
        batches_per_epoch: Whole batches of an epoch, the same on all ranks; None if the length is not known. What is
            left of the micro-batches begins the next epoch.
    """

    def __init__(
        self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext, state: Mapping[str, Any] | None = None
    ) -> None:
        mpu = context._mpu
        self._stream: TrainingStream | None = None
        length = None
        if mpu.should_build_data_loader:
            loader = _checked(trial.build_training_data_loader(), TRAINING_BUILDER, context)
            self._stream = TrainingStream(
                loader,
                rank=mpu.data_parallel_rank,
                size=mpu.data_parallel_world_size,
                seed=context.get_trial_seed(),
                state=state,
            )
            length = self._stream.epoch_length
        self.iterator = None if self._stream is None else (fetched.data for fetched in self._stream)
        known = [one for one in context.distributed.allgather(length) if one is not None]
        self.batches_per_epoch = max(1, min(known) // context.num_micro_batches_per_slot) if known else None

    def state_dict(self) -> dict[str, Any] | None:
        """Return the place in the data, the same on all ranks that read; None on one that does not."""
        return None if self._stream is None else self._stream.state_dict()

    def close(self) -> None:
        """Stop the workers."""
        if self._stream is not None:
            self._stream.close()


class ValidationBatches:
    """This rank's part of the validation data; all ranks take equally many, as ZeRO's collectives want.

    Args:
        trial: Builds the loader.
        context: Of the trial.

    Attributes:
        calls: How often `evaluate_batch` is called on each rank.
        counted: For how many of them it has data of its own.
    """

    def __init__(self, trial: DeepSpeedTrial, context: DeepSpeedTrialContext) -> None:
        mpu, distributed = context._mpu, context.distributed
        self._share: Any = None
        mine = None
        if mpu.should_build_data_loader:
            loader = _checked(trial.build_validation_data_loader(), VALIDATION_BUILDER, context)
            self._share = validation_loader(loader, rank=mpu.data_parallel_rank, size=mpu.data_parallel_world_size)
            self._first = validation_loader(loader, rank=0, size=1)
            try:
                mine = len(self._share)
            except TypeError:
                raise TrainerError(
                    f"{VALIDATION_BUILDER}() returned a {type(loader).__name__} without a length",
                    hint="all ranks validate equally often: give it a __len__",
                ) from None
        lengths = [one for one in distributed.allgather(mine) if one is not None]
        per_call = context.num_micro_batches_per_slot if context.use_pipeline_parallel else 1
        most = max(lengths)
        self._most = -(-most // per_call) * per_call
        self.calls = self._most // per_call
        self.counted = self.calls if mine is None or per_call > 1 else mine

    def iterator(self) -> Iterator[Any] | None:
        """Return an iterator for one validation; None on a rank that reads no data."""
        return None if self._share is None else self._padded()

    def _padded(self) -> Iterator[Any]:
        yield from self._share
        for _ in range(self._most - len(self._share)):
            yield from itertools.islice(self._first, 1)

    def close(self) -> None:
        """Stop the workers."""
        if isinstance(self._share, ValidationShare):  # another loader is the user's to close
            self._share.close()
            self._first.close()


def _checked(loader: Any, builder: str, context: DeepSpeedTrialContext) -> Any:
    """Return a data loader that a trial has built, if the trainer can use it.

    Raises:
        LoaderRefused: It is none, or not detlab's own and the check is not disabled.
    """
    if loader is None:
        raise LoaderRefused(f"{builder}() returned None: return a detlab.pytorch.DataLoader")
    if not isinstance(loader, DataLoader) and not context._any_loader:
        kind = type(loader)
        raise LoaderRefused(
            f"{builder}() returned a {kind.__module__}.{kind.__qualname__}, which the trainer cannot shard over ranks"
            " or resume exactly: return a detlab.pytorch.DataLoader, or, if sharding and resuming are the trial's own,"
            " call context.disable_dataset_reproducibility_checks() in __init__"
        )
    return loader
