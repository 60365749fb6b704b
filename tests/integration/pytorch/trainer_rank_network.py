"""What both processes train, its course in one process, and counts of what is sent meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

STEPS = 6
TOLERANCE = 1e-12


class Network(torch.nn.Module):
    """Two heads on one trunk, in float64, and a method that runs it without `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh())
        self.heads = torch.nn.ModuleList([torch.nn.Linear(7, 2), torch.nn.Linear(7, 3)])
        self.double()

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        features = self.trunk(x)
        return [head(features) for head in self.heads]

    def loss_of(self, x: torch.Tensor) -> torch.Tensor:
        return total(self.forward(x))


def network() -> Network:
    torch.manual_seed(11)
    return Network()


def total(outputs: list[torch.Tensor]) -> torch.Tensor:
    return outputs[0].square().mean() + outputs[1].sin().mean()


def data(index: int, rank: int | None = None, size: int = 2) -> torch.Tensor:
    """Return a rank's part of a batch, or all of it."""
    generator = torch.Generator().manual_seed(100 + index)
    x = torch.randn(8, 5, dtype=torch.float64, generator=generator)
    return x if rank is None else x[rank * 8 // size : (rank + 1) * 8 // size]


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


def reference(aggregation: int = 1, *, average: bool = True) -> torch.Tensor:
    """Return the weights after training in one process on whole batches."""
    model = network()
    optimizer = sgd(model)
    for index in range(STEPS):
        total(model(data(index))).backward()
        if (index + 1) % aggregation == 0:
            if average:
                for parameter in model.parameters():
                    parameter.grad /= aggregation
            optimizer.step()
            optimizer.zero_grad()
    return weights(model)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def train(context: Any, train_batch: Any, first: int = 0, last: int = STEPS) -> None:
    for index in range(first, last):
        context._begin_batch(index, 0, index == 0, False)
        train_batch(index)
        context._end_batch(None)


def assert_equal_to(found: list[Any], expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    """Check that both ranks have the same weights to the bit, and that they are those of the reference."""
    assert found[0] == found[1]
    difference = (torch.tensor(found[0], dtype=torch.float64) - expected).abs().max().item()
    assert difference <= tolerance


@contextlib.contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count calls of collectives, without those of `count_buckets`, which do not wait."""
    counts = {"all_reduce": 0, "broadcast": 0}
    originals = {name: getattr(dist, name) for name in counts}

    def counting(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += not kwargs.get("async_op", False)
            return originals[name](*args, **kwargs)

        return call

    for name in counts:
        setattr(dist, name, counting(name))
    try:
        yield counts
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


def count_buckets(model: Any) -> list[int]:
    """Return a list that grows whenever DDP exchanges a bucket of gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    sent: list[int] = []

    def hook(group, bucket):  # torch wants its own types in annotations, or none
        sent.append(bucket.index())
        return allreduce_hook(group, bucket)

    model.register_comm_hook(None, hook)
    return sent


def count_buffers(model: Any) -> list[int]:
    """Return a list that grows whenever DDP sends the chief's buffers to all ranks."""
    sent: list[int] = []
    original = model._sync_buffers
    model.__dict__["_sync_buffers"] = lambda: (sent.append(1), original())
    return sent
