"""Loading with workers, with pinned memory, and in one process: the batches are the same, their random draws too."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.resumable import FetchedBatch, TrainingStream, validation_loader

N = 23


class Augmented(torch.utils.data.Dataset):
    """Each sample is its number and a draw from each source of random numbers."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, torch.rand(()).item(), np.random.rand(), random.random()], dtype=torch.float64)


class Many(Augmented):
    """Fetches many at once."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        noise = torch.rand(len(indices))
        return [torch.tensor([index, draw]) for index, draw in zip(indices, noise.tolist(), strict=True)]

    def __getitem__(self, index: int) -> torch.Tensor:
        raise AssertionError("one at a time")


class Where(torch.utils.data.Dataset):
    """Says which process loaded a sample, and what `mark` was set there."""

    mark = -1

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[int, int]:
        return os.getpid(), self.mark


def mark_own_dataset(worker_id: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert type(info.dataset) is Where
    info.dataset.mark = worker_id


def drawing_collate(samples: list[torch.Tensor]) -> dict[str, Any]:
    return {"x": torch.stack(samples), "drawn": torch.rand(()).item()}


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    gc.collect()
    assert multiprocessing.active_children() == []


def stream(loader: DataLoader, rank: int = 0, size: int = 1, **more: Any) -> TrainingStream:
    return TrainingStream(loader, rank=rank, size=size, **{"seed": 4, **more})


def take(source: TrainingStream, count: int) -> list[tuple[Any, ...]]:
    def plain(one: FetchedBatch) -> tuple[Any, ...]:
        data = {"x": one.data} if isinstance(one.data, torch.Tensor) else one.data
        listed = {name: part.tolist() if isinstance(part, torch.Tensor) else part for name, part in data.items()}
        return listed, one.ids, one.epoch, one.batch_in_epoch, one.starts_epoch, one.ends_epoch

    return [plain(next(source)) for _ in range(count)]


def drawn(loader: DataLoader, count: int, **more: Any) -> list[tuple[Any, ...]]:
    source = stream(loader, **more)
    taken = take(source, count)
    source.close()
    return taken


def test_batches_are_the_same_with_and_without_workers() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(N), torch.rand(N, 2))
    seen = []
    for workers in (0, 2):
        source = stream(DataLoader(data, batch_size=4, shuffle=True, num_workers=workers), rank=1, size=2)
        for _ in range(7):
            one = next(source)
            assert one.data[0].tolist() == one.ids
            seen.append((one.ids, one.data[1].tolist(), source.state_dict()))
        source.close()
    assert seen[:7] == seen[7:]


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [Augmented(), Many()], ids=["one", "many"])
def test_random_draws_in_workers_depend_on_the_batch_alone(dataset: Any) -> None:
    """Not on how many workers there are, on what they loaded ahead, or on whether they stay."""
    variants = [
        {"num_workers": 1, "prefetch_factor": 1},
        {"num_workers": 2, "prefetch_factor": 4},
        {"num_workers": 2, "persistent_workers": True},
    ]
    seen = [drawn(DataLoader(dataset, batch_size=5, shuffle=True, **variant), 8) for variant in variants]
    assert seen[0] == seen[1] == seen[2]
    numbers = [row[1] for batch in seen[0] for row in batch[0]["x"]]
    assert len(set(numbers)) == len(numbers)


def test_a_collate_functions_draws_are_the_batchs_too() -> None:
    seen = [
        drawn(DataLoader(Augmented(), batch_size=5, collate_fn=drawing_collate, num_workers=workers), 6)
        for workers in (1, 2)
    ]
    assert seen[0] == seen[1]


def test_random_draws_of_a_batch_are_the_same_on_any_rank() -> None:
    loader = DataLoader(Augmented(), batch_size=4, num_workers=1)
    alone = drawn(loader, 4)
    shared = [drawn(loader, 2, rank=rank, size=2) for rank in range(2)]
    assert [batch[0] for batch in alone] == [shared[k % 2][k // 2][0] for k in range(4)]


@pytest.mark.slow
def test_resume_with_workers_continues_identically() -> None:
    loader = DataLoader(Augmented(), batch_size=4, shuffle=True, num_workers=2)
    source = stream(loader)
    take(source, 8)
    state = source.state_dict()  # workers have loaded further than this
    calm = take(source, 6)
    source.close()
    assert drawn(loader, 6, state=state) == calm


@pytest.mark.slow
def test_workers_may_be_spawned() -> None:
    loader = DataLoader(Augmented(), batch_size=12, num_workers=1, multiprocessing_context="spawn")
    forked = DataLoader(Augmented(), batch_size=12, num_workers=1, multiprocessing_context="fork")
    assert drawn(loader, 2) == drawn(forked, 2)


def rng_states() -> list[Any]:
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_leave_the_processs_random_numbers_alone(persistent: bool) -> None:
    loader = DataLoader(Augmented(), batch_size=5, shuffle=True, num_workers=2, persistent_workers=persistent)
    before = rng_states()
    drawn(loader, 12)
    share = validation_loader(loader, rank=0, size=1)
    list(share)
    share.close()
    assert rng_states() == before


def test_without_workers_loading_draws_from_the_process_as_torch_does() -> None:
    plain = torch.utils.data.DataLoader(Augmented(), batch_size=5)
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    iterator = iter(plain)
    torch.manual_seed(1)  # torch drew one number at iter()
    expected = [next(iterator).tolist() for _ in range(5)]
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    assert [batch[0]["x"] for batch in drawn(DataLoader(Augmented(), batch_size=5), 5)] == expected


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_stay_over_the_epochs_only_if_they_shall(persistent: bool) -> None:
    loader = DataLoader(Where(), batch_size=N, num_workers=1, persistent_workers=persistent)
    source = stream(loader)
    pids = [int(next(source).data[0][0]) for _ in range(3)]
    assert os.getpid() not in pids
    assert len(set(pids)) == (1 if persistent else 3)
    assert len(multiprocessing.active_children()) == (1 if persistent else 0)
    source.close()


def test_a_worker_init_function_finds_its_own_dataset() -> None:
    loader = DataLoader(Where(), batch_size=3, num_workers=2, worker_init_fn=mark_own_dataset)
    source = stream(loader)
    marks = [set(next(source).data[1].tolist()) for _ in range(4)]
    source.close()
    assert marks == [{0}, {1}, {0}, {1}]


@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_in_a_worker_comes_through_and_the_workers_end(persistent: bool) -> None:
    loader = DataLoader({0: 1, 1: 2}, sampler=[0, 1, 2], num_workers=1, persistent_workers=persistent)
    source = stream(loader)
    next(source), next(source)
    with pytest.raises(KeyError) as caught:
        next(source)
    source.close()
    assert multiprocessing.active_children() == []  # although the error's frames still refer to them
    assert caught.value


def test_closing_in_the_middle_ends_the_workers_without_a_warning() -> None:
    for persistent in (False, True):
        source = stream(DataLoader(Augmented(), batch_size=2, num_workers=2, persistent_workers=persistent))
        take(source, 2)
        assert len(multiprocessing.active_children()) == 2
        source.close()
        assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_validation_with_workers_is_the_same_each_time_even_if_broken_off(persistent: bool) -> None:
    loader = DataLoader(Augmented(), batch_size=4, num_workers=2, persistent_workers=persistent)
    share = validation_loader(loader, rank=0, size=2)
    first = [batch.tolist() for batch in share]
    for batch in share:
        assert batch.tolist() == first[0]
        break
    assert [batch.tolist() for batch in share] == first
    share.close()


# --- one process: what is fetched is what torch would have made


class Rows(torch.utils.data.TensorDataset):
    """Not a plain TensorDataset: its samples are its own."""

    def __getitem__(self, index: int) -> Any:
        return tuple(part + 100 for part in super().__getitem__(index))


@pytest.mark.parametrize(
    "dataset",
    [
        torch.utils.data.TensorDataset(torch.rand(N, 3, 4), torch.arange(N), torch.rand(N) > 0.5),
        torch.utils.data.TensorDataset(
            torch.rand(3, N).T, torch.rand(N, 2, 5, 5).to(memory_format=torch.channels_last)
        ),
        torch.utils.data.TensorDataset(torch.rand(N, 2, dtype=torch.float16), torch.zeros(N, 0)),
        torch.utils.data.Subset(torch.utils.data.TensorDataset(torch.arange(2 * N)), list(range(0, 2 * N, 2))),
        Rows(torch.arange(N)),
        [{"x": float(index), "y": (index, str(index))} for index in range(N)],
    ],
    ids=["rows", "strided", "half", "subset", "own", "dicts"],
)
def test_what_is_fetched_is_what_torch_makes(dataset: Any) -> None:
    plain = iter(torch.utils.data.DataLoader(dataset, batch_size=5))
    source = stream(DataLoader(dataset, batch_size=5))
    for _ in range(5):
        expected, found = next(plain), next(source).data
        assert type(found) is type(expected)
        expected, found = ([*one.values()] if isinstance(one, dict) else one for one in (expected, found))
        for left, right in zip(expected, found, strict=True):
            if isinstance(left, torch.Tensor):
                assert torch.equal(left, right)
                assert (left.dtype, left.stride(), left.device) == (right.dtype, right.stride(), right.device)
            else:
                assert str(left) == str(right)


def test_negative_indices_count_from_the_end_as_in_torch() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(5))
    assert next(stream(DataLoader(data, sampler=[-1, 0], batch_size=2))).data[0].tolist() == [4, 0]


def test_gradients_to_the_data_are_kept() -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(4, 2, requires_grad=True))
    batch = next(stream(DataLoader(data, batch_size=2))).data[0]
    batch.sum().backward()
    assert data.tensors[0].grad.sum() == 4


def test_pinned_memory_goes_through_torch() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(N))
    source = stream(DataLoader(data, batch_size=5, shuffle=True, pin_memory=True))
    before = rng_states()
    if torch.accelerator.is_available():
        one = next(source)
        assert one.data[0].is_pinned()
    else:
        with pytest.warns(UserWarning, match="pin_memory"):  # torch's own
            one = next(source)
    assert one.data[0].tolist() == one.ids
    assert rng_states() == before
