"""A batch of a trial under the engine `microbatch`: its `train_batch` runs once for each source of the batch.

The samples of a source are put together by the user's own collate function, apart from all others: nothing of the one
source, not even the length that sequences are padded to, is in the batches of another.
"""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from detlab.governance import GovernanceError, source_lookup
from detlab.governance.sources import BatchPart, SamplesBySource
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.parallel.data_parallel import Replica

if TYPE_CHECKING:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext
    from detlab.pytorch.governance.governed import Governed


def is_parted(governed: Governed | None) -> bool:
    """Return whether batches are run source by source."""
    return governed is not None and governed.plan.policy.engine == "microbatch"


class CollateEach:
    """Makes a batch of each of several lists of samples.

    Args:
        collate_fn: Makes a batch of a list of samples.
    """

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self._collate = collate_fn

    def __call__(self, lists: list[list[Any]]) -> list[Any]:
        """Return a batch of each list."""
        return [self._collate(one) for one in lists]


def source_by_source(loader: Any, context: PyTorchTrialContext) -> Any:
    """Return a loader whose batches are lists: one batch for each source, made by the collate function of the loader.

    Without the engine `microbatch` it is the loader itself.

    Args:
        loader: The trial's, which stays as it is.
        context: The trial's.

    Raises:
        GovernanceError: SAMPLES: batches cannot be told apart by source.
    """
    governed = context._governed
    if governed is None or not is_parted(governed):
        return loader
    wanted = "`engine: microbatch` needs the source of each sample before it is loaded:"
    if not isinstance(loader, DataLoader):
        message = f"{wanted} the training data has to be a detlab.pytorch.DataLoader, not a {type(loader).__name__}"
        raise GovernanceError.of("SAMPLES", message)
    if source_lookup(loader.dataset) is None:
        raise GovernanceError.of("SAMPLES", f"{wanted} make the data set with detlab.governance.label or combine")
    apart = copy.copy(loader)
    apart.dataset = SamplesBySource(loader.dataset, governed.plan.policy.index())
    apart.collate_fn = CollateEach(loader.collate_fn)
    return apart


class SourceStep:
    """Runs a trial's `train_batch` for each source of a batch; optimizers step in the last run.

    Args:
        trial: The trial.
        context: Its context.
    """

    def __init__(self, trial: Any, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context
        if context.experimental._find_unused_parameters:
            # DDP exchanges what the last part has used: what earlier ones alone have used would drift apart
            for model in context.models:
                if isinstance(model, Replica):
                    model.share_at_step()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        """Return the metrics of a batch, which is a list of one batch for each source."""
        context, governed = self._context, self._context._governed
        assert governed is not None
        parts, ids, steps = governed.batch_parts, context._sample_ids, context._is_sync_step
        found = []
        try:
            for number, part in enumerate(parts):
                context._sample_ids = [ids[place] for place in part.places]
                context._is_sync_step = steps and number == len(parts) - 1
                context._strategy.begin_batch(step=context._is_sync_step)
                with governed.part(part):
                    metrics = self._run(part, batch=batch[number], epoch_idx=epoch_idx, batch_idx=batch_idx)
                found.append((len(part.places), metrics))
        finally:
            context._sample_ids, context._is_sync_step = ids, steps
        return mean_of_parts(found)

    def _run(self, part: BatchPart, **arguments: Any) -> Any:
        try:
            return self._trial.train_batch(**arguments)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            message = f"a batch has {len(part.places)} sample of one source, and batch norm needs more of each source"
            hint = "larger batches, or a batch_sampler that gives each source several samples or none"
            raise GovernanceError.of("ENGINE", f"{message}: {hint}") from error


def mean_of_parts(found: Sequence[tuple[int, Any]]) -> Any:
    """Return the metrics of a batch: the mean over samples of what is a number, of all else what the last part told.

    Args:
        found: Number of samples and metrics of each part: a tensor, or a mapping.
    """
    if len(found) == 1:
        return found[0][1]
    if not all(isinstance(metrics, Mapping) for _, metrics in found):
        return _mean(found)
    names = dict.fromkeys(name for _, metrics in found for name in metrics)
    return {name: _mean([(count, one[name]) for count, one in found if name in one]) for name in names}


def _mean(values: Sequence[tuple[int, Any]]) -> Any:
    shapes = {tuple(getattr(one, "shape", ())) for _, one in values}
    if not all(_is_number(one) for _, one in values) or len(shapes) > 1:
        return values[-1][1]
    total = sum(count for count, _ in values)
    return sum(count * (one.detach() if isinstance(one, torch.Tensor) else one) for count, one in values) / total


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_complex()
    return isinstance(value, numbers.Real) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
