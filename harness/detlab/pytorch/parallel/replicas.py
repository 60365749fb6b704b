"""The strategy of the level `dp`: each rank has a copy of the model, and the policy exchanges noised gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from detlab.pytorch.errors import TrainerError
from detlab.pytorch.parallel.data_parallel import broadcast_from_chief
from detlab.pytorch.parallel.strategy import Shard, SingleDevice, chief_writes_all

if TYPE_CHECKING:
    from detlab.pytorch.parallel.optimizer_step import OptimizerFacts


class Replicas(SingleDevice):
    """Copies that begin alike and take the same steps, on one rank or several.

    It is no entry point: without the policy nothing would exchange gradients.
    """

    name = "dp"

    @classmethod
    def refusal(cls, size: int) -> str | None:
        """Refuse nothing."""
        return None

    def ready(self, models: Sequence[torch.nn.Module], facts: Iterable[OptimizerFacts]) -> list[str]:
        """Give all ranks the chief's parameters and buffers.

        Raises:
            TrainerError: The ranks have no process group.
        """
        if self.distributed.size > 1:
            if not dist.is_initialized():
                raise TrainerError(
                    f"this trial has {self.distributed.size} processes, and torch.distributed is not initialised",
                    hint="make the context with `with pytorch.init() as context:`",
                )
            broadcast_from_chief([one for model in models for one in (*model.parameters(), *model.buffers())])
        return super().ready(models, facts)

    def state(self, models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> Shard:
        """Return the whole state on the chief, which writes it; the other ranks hold the same."""
        if self.distributed.rank == 0:
            return super().state(models, optimizers)
        return Shard([{} for _ in models], [{} for _ in optimizers], chief_writes_all(models, optimizers))
