"""The place of a Lightning `Trainer` in its data, which Lightning's checkpoints lack."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.pytorch import Trainer
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher

from detlab.frameworks import random_states

logger = logging.getLogger("detlab.lightning")


@dataclasses.dataclass(frozen=True)
class DataPosition:
    """Where one rank was.

    Attributes:
        now: States of its random number generators.
        epoch_began: Those from which the order of the epoch's data was drawn.
        batches: Batches of that epoch that were trained; 0 at the end of one.
    """

    now: dict[str, Any]
    epoch_began: dict[str, Any] | None
    batches: int

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self))


def rewind(trainer: Trainer, position: DataPosition) -> None:
    """Draw the data of an epoch again in the same order, and pass over the batches that were trained.

    Data loaders with a `state_dict` are left to Lightning, which has put them where they were. A module that takes its
    batches from an iterator itself (`dataloader_iter`) begins its data anew, as Lightning does.
    """
    loop = trainer.fit_loop
    fetcher, combined = loop._data_fetcher, loop._combined_loader
    if fetcher is None or combined is None or position.epoch_began is None:
        return
    loaders = combined.flattened
    if all(hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict") for loader in loaders):
        return
    if isinstance(fetcher, _DataLoaderIterDataFetcher):
        logger.warning("a training_step with dataloader_iter: the data of this epoch begin anew")
        return
    for loader in loaders:
        _set_sampler_epoch(loader, loop.epoch_progress.current.processed)
    random_states.restore(position.epoch_began)
    iter(fetcher)
    for _ in range(position.batches):
        next(fetcher)
    fetcher.fetched = 0  # Lightning adds the batches of the epoch so far
    logger.info("passed over %d batches of this epoch, which were trained before", position.batches)
