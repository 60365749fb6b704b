"""Which ranks hold one copy of a model together, and what each of them does."""

from __future__ import annotations

import dataclasses
from typing import Any

from detlab import core


@dataclasses.dataclass
class ModelParallelUnit:
    """This rank's place when a model is spread over several ranks.

    Attributes:
        data_parallel_rank: Number of the copy of the model that this rank is a part of: it tells its share of the data.
        data_parallel_world_size: How many copies there are.
        should_report_metrics: Whether what this rank's `train_batch` and `evaluate_batch` return counts.
        should_build_data_loader: Whether this rank reads data; the others get None for their iterator.
    """

    data_parallel_rank: int
    data_parallel_world_size: int
    should_report_metrics: bool
    should_build_data_loader: bool


def make_data_parallel_mpu(dist_context: core.DistributedContext) -> ModelParallelUnit:
    """Return the place of a rank that has a copy of its own."""
    return ModelParallelUnit(dist_context.rank, dist_context.size, True, True)


def make_deepspeed_mpu(topology: Any) -> ModelParallelUnit:
    """Return the place of a rank in a pipeline.

    Args:
        topology: The grid of a DeepSpeed pipeline engine, its `mpu`. The first and the last stage read data.
    """
    stage, stages = topology.get_pipe_parallel_rank(), topology.get_pipe_parallel_world_size()
    reads = topology.get_slice_parallel_rank() == 0 and stage in {0, stages - 1}
    return ModelParallelUnit(
        topology.get_data_parallel_rank(), topology.get_data_parallel_world_size(), True, bool(reads)
    )
