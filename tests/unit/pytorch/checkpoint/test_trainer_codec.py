"""Encoding a tree as JSON and tensors, and back."""

from __future__ import annotations

import datetime
import json
import logging
import math
import pathlib
import random
import struct
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any, NamedTuple

import hypothesis.extra.numpy as some_numpy
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint import codec
from detlab.pytorch.checkpoint.codec import STORABLE, PickleRefused, decode, encode


class Foreign:
    def __init__(self, value: int) -> None:
        self.value = value


Point = namedtuple("Point", "x y")


def through(tree: Any, **options: Any) -> Any:
    structure, tensors = encode(tree)
    return decode(json.loads(json.dumps(structure, allow_nan=False)), tensors, **options)


def same(one: Any, other: Any) -> bool:
    """Equal in type, value, order and bits."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return struct.pack("d", one) == struct.pack("d", other)
        case complex():
            return same(one.real, other.real) and same(one.imag, other.imag)
        case dict():
            return same(list(one.items()), list(other.items()))
        case list() | tuple() | deque():
            return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
        case torch.Tensor():
            return one.dtype == other.dtype and one.shape == other.shape and bits(one) == bits(other)
        case np.ndarray():
            return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        case np.generic():
            return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return bool(one == other)


def bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


simple = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.complex_numbers()
    | some.text(some.characters(exclude_categories=[]))  # lone surrogates too
    | some.binary()
    | some.binary(min_size=1000, max_size=1100)
)
keys = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text() | some.just("$"),
    lambda inner: some.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
others = (
    some.datetimes(timezones=some.none() | some.just(datetime.UTC) | some.just(zoneinfo.ZoneInfo("Europe/Berlin")))
    | some.timedeltas()
    | some.dates()
    | some.times()
    | some.sampled_from([torch.float32, torch.bfloat16, torch.device("cuda:1"), torch.channels_last, torch.strided])
    | some.lists(some.integers(0, 9)).map(torch.Size)
    | some.sampled_from([pathlib.Path("a/b"), pathlib.PurePosixPath("/x"), pathlib.PureWindowsPath("c:\\x")])
    | some.builds(range, some.integers(-5, 5), some.integers(-5, 5), some.integers(1, 3))
    | some.builds(Counter, some.dictionaries(some.text(), some.integers()))
    | some.builds(bytearray, some.binary())
)
arrays = some_numpy.arrays(
    dtype=some_numpy.scalar_dtypes() | some_numpy.byte_string_dtypes() | some_numpy.unicode_string_dtypes(),
    shape=some_numpy.array_shapes(min_dims=0, min_side=0, max_side=3),
)
trees = some.recursive(
    simple | others | arrays | some_numpy.scalar_dtypes().flatmap(some_numpy.from_dtype),
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.lists(inner, max_size=4).map(tuple)
        | some.dictionaries(keys, inner, max_size=4)
        | some.dictionaries(keys, inner, max_size=4).map(OrderedDict)
        | some.dictionaries(keys, inner, max_size=4).map(lambda d: defaultdict(list, d))
        | some.lists(inner, max_size=4).map(lambda items: deque(items, maxlen=7))
        | some.sets(keys, max_size=4)
        | some.frozensets(keys, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(trees)
@settings(max_examples=200, deadline=None)
def test_every_tree_comes_back_the_same(tree: Any) -> None:
    back = through(tree)
    assert same(tree, back)
    if isinstance(tree, deque | defaultdict):
        assert getattr(tree, "maxlen", None) == getattr(back, "maxlen", None)
        assert getattr(tree, "default_factory", None) == getattr(back, "default_factory", None)


ALL_DTYPES = [*STORABLE, torch.complex32, torch.complex128, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (3, 4)], ids=str)
def test_every_dtype_and_shape_comes_back_bit_by_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    count = math.prod(shape)
    raw = torch.arange(count * dtype.itemsize, dtype=torch.uint8) % (2 if dtype is torch.bool else 251)
    tensor = raw.view(dtype).reshape(shape)
    assert same(tensor, through(tensor))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4).T,
        torch.arange(12)[::3],
        torch.arange(3.0).expand(4, 3),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex128).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
    ],
    ids=["transposed", "strided", "expanded", "channels_last", "conj64", "conj128", "negative"],
)
def test_unusual_views_come_back_by_value(tensor: torch.Tensor) -> None:
    assert same(tensor, through(tensor))


def test_tensors_are_referred_to_and_not_copied() -> None:
    weight = torch.nn.Parameter(torch.randn(4))
    _, tensors = encode({"w": weight, "n": np.arange(3)})
    assert tensors["w"].data_ptr() == weight.data_ptr()
    assert not tensors["w"].requires_grad


def test_what_is_alive_may_change_after_encoding_but_for_tensors() -> None:
    tree = {"list": [1, 2], "dict": {"a": [3]}, "big": bytearray(5000)}
    structure, tensors = encode(tree)
    tree["list"].append(3)
    tree["dict"]["a"][0] = 0
    tree["big"][0] = 1
    assert decode(structure, tensors) == {"list": [1, 2], "dict": {"a": [3]}, "big": bytearray(5000)}


def test_a_tensor_that_occurs_twice_is_kept_once_and_comes_back_as_one() -> None:
    weight = torch.randn(3, 2)
    _, tensors = encode([weight, weight.view(3, 2), {"again": weight.detach()}])
    assert len(tensors) == 1
    first, second, third = through([weight, weight.view(3, 2), weight.detach()])
    assert first is second is third


def test_different_views_of_one_storage_are_kept_apart() -> None:
    base = torch.arange(6.0)
    back = through({"all": base, "head": base[:2], "as_rows": base.view(2, 3)})
    assert same(back, {"all": base, "head": base[:2], "as_rows": base.view(2, 3)})


def test_temporaries_at_one_address_are_not_taken_for_one_tensor() -> None:
    arrays = [np.full((50, 2), float(i)).T for i in range(50)]  # each is copied to be contiguous
    assert same(through(arrays), arrays)


def test_paths_that_read_the_same_do_not_collide() -> None:
    one, two, three = torch.tensor(1), torch.tensor(2), torch.tensor(3)
    tree = {"a/b": one, "a": {"b": two}, 1: torch.tensor(4), "1": three, "__metadata__": torch.tensor(5)}
    _, tensors = encode(tree)
    assert "__metadata__" not in tensors
    assert same(through(tree), tree)


def test_parameters_and_gradients_flags_come_back() -> None:
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    leaf = torch.ones(2, requires_grad=True)
    back = through({"p": torch.nn.Parameter(torch.ones(2)), "frozen": frozen, "leaf": leaf, "plain": torch.ones(2)})
    assert isinstance(back["p"], torch.nn.Parameter)
    assert back["p"].requires_grad
    assert isinstance(back["frozen"], torch.nn.Parameter)
    assert not back["frozen"].requires_grad
    assert back["leaf"].requires_grad
    assert not back["plain"].requires_grad


def test_a_state_dict_keeps_the_versions_of_its_modules() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    assert through(state)._metadata == state._metadata == {"": {"version": 2}}


class Fields(NamedTuple):
    place: Point
    name: str = "x"


class Ranked(Fields):
    _fields = Fields._fields

    def __new__(cls, *_: Any) -> Ranked:
        raise AssertionError("no code of a class runs")


def test_a_named_tuple_comes_back_as_itself() -> None:
    """A callback's state lost its fields: `state.best.loss` failed after a resume."""
    assert same(through([Point(1, [2.0])]), [Point(1, [2.0])])
    inner = tuple.__new__(Ranked, (Point(0, 1), "n"))
    back = through({"deep": inner})["deep"]
    assert type(back) is Ranked
    assert (back.place.y, back.name) == (1, "n")
    assert same(through(torch.ones(3).max(0)), (torch.tensor(1.0), torch.tensor(0)))


@pytest.mark.parametrize(
    "change",
    [
        {"class": ["nowhere", "Point"]},
        {"class": [__name__, "Point.nothing"]},
        {"class": [__name__, "Foreign"]},
        {"class": ["subprocess", "Popen"]},
        {"fields": ["x", "z"]},
    ],
)
def test_a_named_tuple_of_another_class_comes_back_as_a_tuple(change: dict[str, Any]) -> None:
    structure, tensors = encode(Point(1, 2))
    assert same(decode({**structure, **change}, tensors), (1, 2))


def test_nan_keeps_its_sign_and_payload() -> None:
    odd = struct.unpack(">d", bytes.fromhex("fff8000000000abc"))[0]
    assert struct.pack(">d", through({"x": [odd]})["x"][0]).hex() == "fff8000000000abc"
    assert same(through([math.inf, -math.inf, -0.0, 5e-324]), [math.inf, -math.inf, -0.0, 5e-324])


def test_very_long_integers_pass_pythons_limit_for_decimals() -> None:
    assert through(-(7**9000)) == -(7**9000)


def test_structured_object_and_readonly_arrays() -> None:
    structured = np.array([(1, 2.5, "x")], dtype=[("a", "<i4"), ("b", ">f8"), ("c", "U3")])
    objects = np.array([[1, "a"], [None, (2, 3)]], dtype=object)
    readonly = np.arange(4)
    readonly.flags.writeable = False
    back = through([structured, readonly, structured[0]])
    assert same(back, [structured, readonly, structured[0]])
    assert back[1].flags.writeable
    assert through(objects).tolist() == objects.tolist()


def test_states_of_all_generators_come_back() -> None:
    numpy_state = np.random.default_rng(3).bit_generator.state
    tree = [random.getstate(), np.random.get_state(), numpy_state, torch.get_rng_state()]
    assert same(through(tree), tree)


def make_optimizer() -> torch.optim.Optimizer:
    model = torch.nn.Linear(2, 1)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


SCHEDULERS = {
    "LambdaLR": lambda o, s: s.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o, s: s.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o, s: s.StepLR(o, 2),
    "MultiStepLR": lambda o, s: s.MultiStepLR(o, [1, 3, 3]),
    "ConstantLR": lambda o, s: s.ConstantLR(o),
    "LinearLR": lambda o, s: s.LinearLR(o),
    "ExponentialLR": lambda o, s: s.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o, s: s.SequentialLR(o, [s.ConstantLR(o), s.ExponentialLR(o, 0.9)], [2]),
    "PolynomialLR": lambda o, s: s.PolynomialLR(o),
    "CosineAnnealingLR": lambda o, s: s.CosineAnnealingLR(o, 10),
    "ChainedScheduler": lambda o, s: s.ChainedScheduler([s.ConstantLR(o), s.ExponentialLR(o, 0.9)], o),
    "ReduceLROnPlateau": lambda o, s: s.ReduceLROnPlateau(o, patience=0),
    "CyclicLR": lambda o, s: s.CyclicLR(o, 0.01, 0.1),
    "OneCycleLR": lambda o, s: s.OneCycleLR(o, 0.1, total_steps=20),
    "CosineAnnealingWarmRestarts": lambda o, s: s.CosineAnnealingWarmRestarts(o, 3),
    "SWALR": lambda o, s: torch.optim.swa_utils.SWALR(o, 0.05),
}


def test_no_scheduler_of_torch_is_forgotten() -> None:
    base = torch.optim.lr_scheduler.LRScheduler
    own = {name for name, kind in vars(torch.optim.lr_scheduler).items() if isinstance(kind, type)}
    known = {name for name in own if issubclass(getattr(torch.optim.lr_scheduler, name), base)}
    assert known - {"LRScheduler", "_LRScheduler"} == set(SCHEDULERS) - {"SWALR"}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_continues_from_its_decoded_state(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def advance(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
        rates = []
        for step in range(steps):
            optimizer.step()
            scheduler.step(*([step * 0.5] if name == "ReduceLROnPlateau" else []))
            rates.append(float(optimizer.param_groups[0]["lr"]))
        return rates

    first = make_optimizer()
    calm = SCHEDULERS[name](first, torch.optim.lr_scheduler)
    advance(first, calm, 4)
    with caplog.at_level(logging.WARNING):
        saved = through({"o": first.state_dict(), "s": calm.state_dict()})
    assert not caplog.records, "nothing of it may be pickled"
    second = make_optimizer()
    resumed = SCHEDULERS[name](second, torch.optim.lr_scheduler)
    second.load_state_dict(saved["o"])
    resumed.load_state_dict(saved["s"])
    assert advance(first, calm, 6) == advance(second, resumed, 6)


def test_a_foreign_class_is_pickled_with_a_warning_that_names_it_once(caplog: pytest.LogCaptureFixture) -> None:
    codec._warned.clear()
    with caplog.at_level(logging.WARNING, "detlab.pytorch"):
        structure, tensors = encode({"callbacks": {"mine": [Foreign(7)]}})
        encode({"callbacks": {"mine": [Foreign(8)]}})
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"callbacks/mine/0 in the checkpoint is a {__name__}.Foreign"
    ]
    assert decode(structure, tensors, allow_pickle=True)["callbacks"]["mine"][0].value == 7


def test_a_pickled_value_is_refused_unless_it_is_allowed() -> None:
    structure, tensors = encode({"a": {"b": Foreign(1)}})
    with pytest.raises(PickleRefused, match=r"a/b in the checkpoint is a pickled .*Foreign"):
        decode(structure, tensors)


def test_what_cannot_even_be_pickled_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"callbacks/mine/hook in the state .* is a builtins.function"):
        encode({"callbacks": {"mine": {"hook": lambda: None}}})


def test_a_class_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    structure, tensors = encode({"a": Foreign(1)})
    monkeypatch.delattr(f"{__name__}.Foreign")
    with pytest.raises(CheckpointError, match=r"a in the checkpoint is a pickled .*Foreign that cannot be read"):
        decode(structure, tensors, allow_pickle=True)


def test_a_tree_that_contains_itself_is_an_error_and_no_crash() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CheckpointError, match="contains itself"):
        encode(loop)


@pytest.mark.parametrize(
    "node",
    [
        {"$": "no such tag"},
        {"$": "tuple"},
        {"$": "int", "v": "zz"},
        {"$": "float", "v": "00"},
        {"$": "bytes", "v": "!!"},
        {"$": "tensor", "k": "missing"},
        {"$": "tensor", "k": ["t"]},
        {"$": "torch", "v": "load"},
        {"$": "tensor", "k": "t", "dtype": "float64", "shape": [7]},
        {"$": "ndarray", "dtype": "<f8", "shape": [3], "k": "t"},
        {"$": "ndarray", "dtype": "|O", "shape": [1], "k": "t"},
        {"$": "ndarray", "dtype": "nonsense", "shape": [1]},
        {"$": "defaultdict", "v": [], "factory": "eval"},
        {"$": "dict", "v": [[{"$": "dict", "v": []}, 1]]},
        {"$": 3},
        {"$": ["x"]},
    ],
    ids=str,
)
def test_a_damaged_structure_is_a_checkpoint_error(node: Any) -> None:
    with pytest.raises(CheckpointError):
        decode({"deep": [node]}, {"t": torch.zeros(5, dtype=torch.uint8)})


def test_a_structure_nested_beyond_reason_is_a_checkpoint_error() -> None:
    node: Any = 1
    for _ in range(5000):
        node = [node]
    with pytest.raises(CheckpointError, match="damaged"):
        decode(node, {})
