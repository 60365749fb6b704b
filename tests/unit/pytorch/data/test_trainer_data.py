"""`DataLoader`, `to_device` and `data_length`."""

from __future__ import annotations

import collections
import inspect
import logging
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.utils.data

from detlab.pytorch import samplers
from detlab.pytorch.data.loader import DataLoader, adapt_batch_sampler, data_length, dataset_repro_warning, to_device
from detlab.pytorch.errors import TrainerError

CPU = torch.device("cpu")
META = torch.device("meta")


def dataset(n: int = 10) -> torch.utils.data.TensorDataset:
    return torch.utils.data.TensorDataset(torch.arange(n))


def values(loader: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


# --- DataLoader


def test_the_signature_is_torchs_as_determined_has_it() -> None:
    ours, torchs = (inspect.signature(cls.__init__).parameters for cls in (DataLoader, torch.utils.data.DataLoader))
    left_out = {"pin_memory_device", "in_order"}
    assert list(ours) == [name for name in torchs if name not in left_out]
    for name, parameter in ours.items():
        assert parameter.kind == torchs[name].kind
        if name != "shuffle":  # torch says None for False
            assert parameter.default == torchs[name].default
    get = inspect.signature(DataLoader.get_data_loader).parameters
    assert [(name, parameter.default) for name, parameter in get.items()][1:] == [
        ("repeat", False),
        ("skip", 0),
        ("num_replicas", 1),
        ("rank", 0),
    ]


def test_it_can_be_iterated_by_hand_like_torchs() -> None:
    loader = DataLoader(dataset(), batch_size=4)
    plain = torch.utils.data.DataLoader(dataset(), batch_size=4)
    assert len(loader) == len(plain) == 3
    assert values(loader) == values(plain) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(DataLoader(dataset(), batch_size=4, drop_last=True)) == 2


def test_by_hand_a_generator_decides_on_the_order_as_in_torch() -> None:
    ours, torchs = (
        cls(dataset(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))
        for cls in (DataLoader, torch.utils.data.DataLoader)
    )
    assert values(ours) == values(torchs)


def test_get_data_loader_shards_skips_and_repeats() -> None:
    loader = DataLoader(dataset(), batch_size=2)
    assert values(loader.get_data_loader(num_replicas=2, rank=1)) == [[2, 3], [6, 7]]
    assert values(loader.get_data_loader(skip=3)) == [[6, 7], [8, 9]]
    plain = loader.get_data_loader(repeat=True, skip=1, num_replicas=2, rank=1)
    assert type(plain) is torch.utils.data.DataLoader
    endless = iter(plain)
    assert [next(endless)[0].tolist() for _ in range(4)] == [[6, 7], [0, 1], [4, 5], [8, 9]]


def test_a_batch_sampler_is_taken_as_it_is() -> None:
    loader = DataLoader(dataset(), batch_sampler=[[3], [1, 2]])
    assert values(loader) == [[3], [1, 2]]
    assert loader.batch_size is None


def test_adapting_with_no_wish_changes_nothing() -> None:
    sampler = torch.utils.data.BatchSampler(range(4), 2, False)
    assert adapt_batch_sampler(sampler) is sampler
    assert isinstance(adapt_batch_sampler(sampler, skip=1), samplers.SkipBatchSampler)


class Lines(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(3))


class NoLength(torch.utils.data.Dataset):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dataset": Lines()}, ["Lines is an IterableDataset", "disable_dataset_reproducibility_checks"]),
        ({"dataset": NoLength()}, ["NoLength has no len()"]),
        ({"shuffle": True, "sampler": [1]}, ["shuffle and sampler"]),
        ({"batch_sampler": [[1]], "batch_size": 4, "drop_last": True}, ["batch_sampler with batch_size, drop_last"]),
        ({"batch_sampler": [[1]], "shuffle": True, "sampler": [1]}, ["batch_sampler with shuffle, sampler"]),
        ({"batch_size": None}, ["batch_size is None"]),
        ({"batch_size": 0}, ["batch_size is 0"]),
        ({"batch_size": 2.5}, ["batch_size is 2.5"]),
        ({"batch_size": True}, ["batch_size is True"]),
        ({"num_workers": -1}, ["num_workers is -1"]),
        ({"num_workers": 1, "timeout": -1}, ["timeout is -1"]),
        ({"num_workers": 1, "prefetch_factor": 0}, ["prefetch_factor is 0"]),
        ({"timeout": 3, "persistent_workers": True}, ["timeout, persistent_workers: only for loading with workers"]),
        ({"prefetch_factor": 2, "multiprocessing_context": "fork"}, ["multiprocessing_context, prefetch_factor"]),
        (
            {"batch_size": -1, "num_workers": -2, "timeout": -3},
            ["batch_size is -1", "num_workers is -2", "timeout is -3"],
        ),
    ],
)
def test_what_cannot_work_is_refused_with_all_mistakes_at_once(arguments: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(TrainerError) as caught:
        DataLoader(**{"dataset": dataset(), **arguments})
    for words in said:
        assert words in str(caught.value)
    assert isinstance(caught.value, ValueError)  # as torch's


def test_an_empty_dataset_may_be_wrapped_shuffled_or_not() -> None:
    """The trainer names the method that built it; torch alone would refuse to shuffle, naming nothing."""
    assert len(DataLoader([], shuffle=True)) == len(DataLoader([])) == 0


def test_the_warning_names_method_class_and_way_out() -> None:
    said = dataset_repro_warning("build_training_data_loader", torch.utils.data.DataLoader(dataset()))
    assert "build_training_data_loader()" in said
    assert "torch.utils.data.dataloader.DataLoader" in said
    assert "context.experimental.disable_dataset_reproducibility_checks()" in said


# --- to_device


class Pair(NamedTuple):
    left: Any
    right: Any


class Own:
    def __init__(self) -> None:
        self.device: Any = None

    def to(self, device: Any) -> str:
        return f"on {device}"


class Opaque:
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t,
        lambda t: [t, t],
        lambda t: (t, [t, {"a": t}]),
        lambda t: {"a": t, "b": "text", "c": [1, None, 2.5]},
    ],
)
def test_what_is_there_already_is_the_very_same_object(make: Any) -> None:
    data = make(torch.zeros(3))
    assert to_device(data, CPU) is data


def tensors(data: Any) -> list[Any]:
    if isinstance(data, dict):
        data = list(data.values())
    return [item for part in data for item in tensors(part)] if isinstance(data, (list, tuple)) else [data]


@pytest.mark.parametrize(
    "data",
    [
        torch.zeros(3),
        [torch.zeros(3), torch.ones(2)],
        {"a": torch.zeros(3), "b": (torch.ones(2), {"c": torch.ones(1)})},
        Pair(torch.zeros(3), [torch.zeros(2)]),
        collections.OrderedDict(a=torch.zeros(3)),
        collections.defaultdict(list, a=torch.zeros(3)),
        np.zeros(3),
        [np.zeros(3), torch.zeros(1)],
    ],
    ids=lambda data: type(data).__name__,
)
def test_tensors_in_any_structure_are_moved(data: Any) -> None:
    moved = to_device(data, META)
    assert {tensor.device.type for tensor in tensors(moved)} == {"meta"}
    if not isinstance(data, np.ndarray):
        assert type(moved) is type(data)


def test_only_what_must_move_is_moved() -> None:
    there, elsewhere = torch.zeros(2, device="meta"), torch.zeros(2)
    moved = to_device([there, elsewhere], META)
    assert moved[0] is there
    assert moved[1].device == META


def test_arrays_become_tensors_of_the_same_values() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    moved = to_device({"x": array}, CPU)["x"]
    assert moved.dtype == torch.float32
    assert moved.tolist() == array.tolist()
    array.flags.writeable = False
    assert to_device(array, CPU).tolist() == array.tolist()  # torch alone warns of such arrays


def test_packed_sequences_and_own_types_move_themselves() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    moved = to_device([packed], META)[0]
    assert type(moved) is type(packed)
    assert moved.data.device == META
    assert to_device(Own(), META) == "on meta"


def test_other_types_are_warned_of_once_and_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    opaque, text, warned = Opaque(), np.array(["a"]), set()
    with caplog.at_level(logging.WARNING, logger="detlab.pytorch"):
        for _ in range(3):
            moved = to_device([opaque, text, torch.zeros(1)], CPU, warned)
            assert moved[0] is opaque
            assert moved[1] is text
    assert sorted(record.args[1] for record in caplog.records if record.args) == ["Opaque", "ndarray"]
    assert warned == {Opaque, np.ndarray}


def test_text_and_numbers_are_warned_of_once_for_each_type(caplog: pytest.LogCaptureFixture) -> None:
    """As in Determined: once in a call, or once in all calls that share a set."""
    data = {"name": "x", "other": "y", "size": 3, "none": None}
    assert to_device(data, CPU) is data
    assert [record.args[1] for record in caplog.records if record.args] == ["str", "int", "NoneType"]
    assert "not able to move data of type builtins.str to cpu" in caplog.text
    caplog.clear()
    warned: set[type] = set()
    for _ in range(3):
        to_device(data, CPU, warned)
    assert len(caplog.records) == 3


# --- data_length


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (torch.zeros(4, 2), 4),
        (np.zeros((5, 1)), 5),
        ([torch.zeros(3), torch.zeros(3, 9)], 3),
        ({"text": ["a", "b"], "x": {"y": (torch.tensor(1.0), torch.zeros(6))}}, 6),
        (Pair(torch.zeros(7), None), 7),
        (torch.nn.utils.rnn.pack_sequence([torch.arange(3.0), torch.arange(2.0)]), 2),
    ],
)
def test_the_length_is_that_of_the_first_tensor(data: Any, length: int) -> None:
    assert data_length(data) == length


@pytest.mark.parametrize("data", [{}, [], 0, "text", None, torch.tensor(1.0), {"a": ["b"]}])
def test_without_a_tensor_there_is_no_length(data: Any) -> None:
    with pytest.raises(TrainerError, match="get_batch_length") as caught:
        data_length(data)
    assert isinstance(caught.value, TypeError)  # what Determined raises for a number
    assert isinstance(caught.value, ValueError)  # and for an empty dict
