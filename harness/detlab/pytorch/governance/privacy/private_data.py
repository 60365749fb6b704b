"""What the level `dp` needs of a trial beside its model: its data, its optimizer, its steps and its ranks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from detlab.governance import GovernanceError, Refusal
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.sources import is_cut
from detlab.pytorch.parallel.replicas import Replicas
from detlab.pytorch.parallel.strategy import Strategy, choose_strategy


def strategy_under(config: Mapping[str, Any] | None, name: str | None, device: Any, distributed: Any) -> Strategy:
    """Return the training strategy of this rank; the level `dp` has one of its own.

    Args:
        config: The experiment config.
        name: The strategy that was asked for; None leaves it to the number of ranks.
        device: Where this rank trains.
        distributed: The ranks of the trial.

    Raises:
        GovernanceError: LEVEL: another strategy was asked for.
        TrainerError: As `choose_strategy`.
    """
    block = (config or {}).get("governance")
    if not isinstance(block, Mapping) or block.get("level") != "dp":
        return choose_strategy(name, device, distributed)
    if name is not None:
        message = f"the strategy {name!r} adds up gradients before each sample's is clipped: leave strategy= out"
        raise GovernanceError.of("LEVEL", f"`dp` exchanges gradients itself, and {message}")
    return Replicas(device, distributed)


def shape_problems(context: Any, loader: Any) -> list[Refusal]:
    """Return LEVEL for all that a trial does and `dp` does not allow, before its first step."""
    return [Refusal("LEVEL", message) for message in _problems(context, loader)]


def _problems(context: Any, loader: Any) -> Iterator[str]:
    if len(context.optimizers) != 1:
        yield f"`dp` is for one optimizer, and {len(context.optimizers)} are wrapped"
    for facts in context._facts.values():
        if facts.backward_passes > 1:
            yield f"backward_passes_per_step is {facts.backward_passes}, and `dp` takes one backward pass for each step"
        if facts.fp16_compression:
            yield "fp16_compression: `dp` exchanges gradients as they are"
    if context._aggregation_frequency > 1:
        yield f"aggregation_frequency is {context._aggregation_frequency}: each batch has to be a step of its own"
    if not isinstance(loader, DataLoader):
        yield f"the training data is a {type(loader).__name__}: `dp` draws from a detlab.pytorch.DataLoader"
        return
    if not is_cut(loader):
        yield "the training data has a batch sampler of its own, and `dp` draws each sample by itself: give batch_size"
    elif not _plain(loader.sampler):
        yield f"the training data has a {type(loader.sampler).__name__}, and `dp` draws all samples alike: leave it out"
    if not hasattr(type(loader.dataset), "__len__"):
        yield "the length of the training data is not known, and with it not how likely a sample is drawn"


def _plain(sampler: Any) -> bool:
    if type(sampler) is torch.utils.data.RandomSampler:
        return not sampler.replacement and len(sampler) == len(sampler.data_source)
    return type(sampler) is torch.utils.data.SequentialSampler


def drawn_from(loader: DataLoader, ranks: int) -> Any:
    """Return a loader of the same data, each sample of which is drawn by itself; on average in batches of that size.

    Args:
        loader: The trial's, which stays as it is.
        ranks: Among which the samples are dealt out.
    """
    drawn = copy.copy(loader)
    drawn._sample_rate = min(1.0, (loader.batch_size or 1) * ranks / max(1, len(loader.dataset)))
    return drawn
