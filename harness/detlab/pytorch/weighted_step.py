"""A step for which not every rank has samples: each rank is weighted by its number of samples.

On more ranks than before, the rest of an epoch may be too small to give each a batch
(`detlab.pytorch.data.epoch.Share`). All ranks run the trial's `train_batch` all the same, for only that takes part in
all that ranks do together in it, of which the trainer knows nothing beforehand. A rank without samples runs it with
another's batch: its gradients become zero, its metrics and what its reducers were told are dropped.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext
    from detlab.pytorch.trial import PyTorchTrial

logger = logging.getLogger("detlab.pytorch")


class WeightedStep:
    """Runs the batch of such a step, the first after a resume.

    Args:
        trial: The trial.
        context: Its context.
        weight: Of this rank's gradients in their mean over the ranks.
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext, weight: float) -> None:
        self._trial = trial
        self._context = context
        self._weight = weight

    def train_batch(self, **arguments: Any) -> Any:
        """Return the metrics of the trial's `train_batch`, none if this rank takes no sample."""
        context = self._context
        # Under a policy samples are weighed one by one, over all ranks: those of a rank that lends its hands, by zero.
        weight = 1.0 if context._governed is not None else self._weight
        with weighted_gradients(context._all_parameters(), weight):
            metrics = self._trial.train_batch(**arguments)
        if self._weight > 0:
            return metrics
        logger.info(
            "no sample of the rest of epoch %d was left for this rank: it took part with weight zero",
            context.current_train_epoch(),
        )
        context.reset_reducers()  # of this batch alone: they were reset before it
        return {}


@contextlib.contextmanager
def weighted_gradients(parameters: Iterable[torch.nn.Parameter], weight: float) -> Iterator[None]:
    """Multiply what the block adds to `.grad` of parameters, before DDP exchanges it; zero makes zero of NaN too.

    What `torch.autograd.grad` returns stays as it is.
    """
    nodes = [torch.autograd.graph.get_gradient_edge(one).node for one in parameters if one.requires_grad]
    handles = [node.register_prehook(functools.partial(_weigh, weight)) for node in nodes]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _weigh(weight: float, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    if weight == 0:
        return tuple(None if one is None else torch.zeros_like(one) for one in gradients)
    return tuple(None if one is None else one * weight for one in gradients)
