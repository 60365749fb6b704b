"""Streams of numbers by all their ranks, and the sizes that property tests draw."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.resumable import FetchedBatch, TrainingStream

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SIZES = {
    "n": st.integers(1, 60),
    "batch_size": st.integers(1, 9),
    "size": st.integers(1, 5),
    "drop_last": st.booleans(),
    "shuffle": st.booleans(),
}
State = dict[str, Any]


class Numbers(torch.utils.data.Dataset):
    """Sample i is the number i."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index


def cut(n: int, batch_size: int = 1, **more: Any) -> DataLoader:
    return DataLoader(Numbers(n), batch_size=batch_size, **more)


def ranks(make: Callable[[], Any], size: int, seed: int = 0, state: State | None = None) -> list[TrainingStream]:
    return [TrainingStream(make(), rank=rank, size=size, seed=seed, state=state) for rank in range(size)]


def step(streams: list[TrainingStream]) -> tuple[list[FetchedBatch], State]:
    """Take one batch on every rank, and the state, which must not depend on the rank.

    A rank with weight zero has another's batch, and none of its samples.
    """
    weights = [stream.next_weight for stream in streams]
    batches = [next(stream) for stream in streams]
    states = [stream.state_dict() for stream in streams]
    assert all(state == states[0] for state in states)
    assert json.loads(json.dumps(states[0])) == states[0]
    places = {(one.epoch, one.batch_in_epoch, one.starts_epoch, one.ends_epoch) for one in batches}
    assert len(places) == 1
    for batch, weight in zip(batches, weights, strict=True):
        assert batch.ids == (batch.data.tolist() if weight else [])
        assert batch.data.tolist() in [other.ids for other in batches]
    return batches, states[0]


def epoch_of(streams: list[TrainingStream]) -> list[list[list[int]]]:
    """Take steps to the end of the epoch; return ids by step and rank."""
    steps = []
    while True:
        batches, _ = step(streams)
        steps.append([batch.ids for batch in batches])
        if batches[0].ends_epoch:
            return steps


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [index for one in steps for ids in one for index in ids]


def joined(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def has_step(n: int, batch_size: int, size: int, drop_last: bool) -> bool:
    return n >= size * batch_size if drop_last else n >= size
