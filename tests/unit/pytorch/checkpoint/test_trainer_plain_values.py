"""What a trial returns, as the plain values that are reported."""

from __future__ import annotations

import datetime
import fractions
from typing import Any

import numpy as np
import pytest
import torch

from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics.aggregate import to_plain


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("good", "good"),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.int64(3), 3),
        (np.array([0.5]), 0.5),
        (np.array([[1, 2]]), [[1, 2]]),
        (torch.tensor(3), 3),
        (torch.tensor([[0.5]], requires_grad=True), 0.5),
        (torch.tensor([1.5, 2.0], dtype=torch.bfloat16), [1.5, 2.0]),
        (torch.tensor([1.5, 2.0], requires_grad=True), [1.5, 2.0]),
        (fractions.Fraction(1, 2), 0.5),
        ({"a": torch.tensor(1), 2: (np.float64(1.0), "x")}, {"a": 1, "2": [1.0, "x"]}),
        (np.array([{"a": np.int8(1)}, "x"], dtype=object), [{"a": 1}, "x"]),
        (b"raw", b"raw"),
    ],
    ids=repr,
)
def test_to_plain(value: Any, plain: Any) -> None:
    result = to_plain(value, "m")
    assert result == plain
    assert type(result) is type(plain)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "the metric 'm' is a NoneType"),
        (1j, "the metric 'm' is a complex"),
        (object(), "the metric 'm' is a object"),
        ({1, 2}, "the metric 'm' is a set"),
        ({"a": [1, None]}, "the metric \"m['a'][1]\" is a NoneType"),
        (torch.tensor(1j), "the metric 'm' is a Tensor of torch.complex64"),
        (torch.ones(2, device="meta"), "on meta"),
        (torch.eye(2).to_sparse(), "torch.sparse_coo"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), "the metric 'm' is a date"),
        (datetime.timedelta(1), "the metric 'm' is a timedelta"),
    ],
)
def test_what_is_not_reportable_is_named(value: Any, said: str) -> None:
    with pytest.raises(TrainerError) as named:
        to_plain(value, "m")
    assert said in str(named.value)
    with pytest.raises(TrainerError, match="a metric is a NoneType"):
        to_plain(None)
