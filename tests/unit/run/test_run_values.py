"""Variables on their way between a notebook and a task: what comes back equals what went, and how it went."""

from __future__ import annotations

import collections
import datetime
import fractions
import math
import sys
import types

import numpy as np
import pandas as pd
import pytest
import torch

from detlab.run.values import ValueProblem, decode, encode


def there_and_back(value):
    encoded = encode(value, "x")
    return decode(encoded.data, "x"), encoded.pickled


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**80,
        -0.5,
        math.inf,
        "text \u2028 <b>",
        b"\x00\xff",
        bytearray(b"ab"),
        1 + 2j,
        [1, [2, "three"]],
        (1, (2,)),
        {1, 2},
        frozenset({"a"}),
        {"a": 1, 2: "b", (1, 2): None, "$": "dict"},
        collections.OrderedDict(b=1, a=2),
        {},
        [],
    ],
)
def test_plain_data_is_never_pickled_and_keeps_its_kind(value):
    back, pickled = there_and_back(value)
    assert back == value
    assert type(back) is type(value)
    assert pickled is None


def test_nan_stays_nan():
    back, pickled = there_and_back([math.nan])
    assert math.isnan(back[0])
    assert pickled is None


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.array(3.5),
        np.empty((0, 4), dtype=np.float32),
        np.array(["2026-01-01"], dtype="datetime64[D]"),
        np.array(["a", "bcd"]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
)
def test_arrays_come_back_with_dtype_and_shape_without_pickle(array):
    back, pickled = there_and_back(array)
    assert pickled is None
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_numpy_numbers_and_arrays_inside_of_containers():
    back, pickled = there_and_back(
        {"loss": np.float32(0.5), "all": [np.arange(3), np.int64(2)], "dtype": np.dtype("f4")}
    )
    assert pickled is None
    assert type(back["loss"]) is np.float32
    assert back["all"][0].tolist() == [0, 1, 2]
    assert type(back["all"][1]) is np.int64
    assert back["dtype"] == np.dtype("float32")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
def test_tensors_come_back_with_every_dtype_without_pickle(dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    back, pickled = there_and_back({"weight": tensor, "scalar": tensor[1, 1], "none": tensor[:0], "view": tensor.t()})
    assert pickled is None
    assert back["weight"].dtype == dtype
    assert torch.equal(back["weight"], tensor)
    assert torch.equal(back["scalar"], tensor[1, 1])
    assert back["none"].shape == (0, 3)
    assert torch.equal(back["view"], tensor.t())


def test_a_state_dict_comes_back_ordered_and_parameters_stay_parameters():
    model = torch.nn.Linear(2, 3)
    back, pickled = there_and_back({"state": model.state_dict(), "weight": model.weight})
    assert list(back["state"]) == ["weight", "bias"]
    assert isinstance(back["weight"], torch.nn.Parameter)
    assert back["weight"].requires_grad
    assert torch.equal(back["state"]["bias"], model.bias)
    # A state_dict carries an attribute (_metadata), which is no item: load_state_dict does without it.
    assert pickled is None


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1, 2], "b": [0.5, None], "c": ["x", "ü"], "d": [True, False]}),
        pd.DataFrame({"t": pd.to_datetime(["2026-01-01", "2026-01-02"])}, index=["first", "second"]),
        pd.DataFrame({"n": pd.array([1, None], dtype="Int64")}),
        pd.DataFrame(np.arange(4).reshape(2, 2)),
        pd.DataFrame(),
        pd.Series([1, 2, 3], name="s", index=pd.RangeIndex(5, 8, name="i")),
        pd.Series(["a", None]),
    ],
)
def test_tables_come_back_equal_without_pickle(table):
    back, pickled = there_and_back(table)
    assert pickled is None
    same = pd.testing.assert_frame_equal if isinstance(table, pd.DataFrame) else pd.testing.assert_series_equal
    same(back, table)


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame({"c": pd.Categorical(["a", "b"])}),
        np.array([object], dtype=object),
        fractions.Fraction(1, 3),
        datetime.date(2026, 1, 1),
        [torch.nn.Linear(1, 1)],
    ],
)
def test_anything_else_is_pickled_and_said_to_be(value):
    back, pickled = there_and_back(value)
    assert type(back) is type(value)
    assert pickled


def test_a_circle_is_pickled_and_shared_parts_stay_shared_in_a_pickle():
    circle: list = []
    circle.append(circle)
    back, pickled = there_and_back(circle)
    assert back[0] is back
    assert pickled == "list"


def test_a_class_of_the_notebook_itself_is_refused_with_what_to_do(monkeypatch):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec("class Net:\n    pass\n", main.__dict__)
    with pytest.raises(ValueProblem, match=r"x .Net. needs Net, defined in a cell.*%%det_module"):
        encode(main.Net(), "x")


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(ValueProblem, match=r"f .*cannot be pickled"):
        encode(lambda: 1, "f")


def test_a_pickle_of_a_module_that_is_not_here_names_it(monkeypatch):
    module = types.ModuleType("only_there")
    exec("class Thing:\n    pass\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_there", module)
    data = encode(module.Thing(), "t").data
    monkeypatch.delitem(sys.modules, "only_there")
    with pytest.raises(ValueProblem, match="needs only_there"):
        decode(data, "t")


@pytest.mark.parametrize("data", [b"", b"no zip", encode([1]).data[:-30]])
def test_damaged_bytes_are_refused(data):
    with pytest.raises(ValueProblem, match="x cannot be read"):
        decode(data, "x")


def test_the_same_value_is_the_same_bytes():
    assert encode({"a": np.arange(3)}).data == encode({"a": np.arange(3)}).data


def test_somebody_elses_pickle_is_not_read():
    with pytest.raises(ValueProblem, match="a pickle of another user"):
        decode(encode(fractions.Fraction(1, 2)).data, "f", own=False)
    assert decode(encode([1]).data, own=False) == [1]
