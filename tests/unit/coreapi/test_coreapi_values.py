"""What may be reported, decided when it is reported."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from detlab.core.metrics.spool import _line
from detlab.core.metrics.values import check_group, check_metrics, check_progress, check_steps


class FakeTensor:
    """What a 0-d tensor of any library looks like."""

    ndim = 0

    def __init__(self, value: float) -> None:
        self._value = value

    def item(self) -> float:
        return self._value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1, 1),
        (True, True),
        (0.5, 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(2.0), 2.0),
        (np.array([2.0]), 2.0),
        (np.array([[2]]), 2),
        ([2.0], [2.0]),
        (np.array([1.0, 2.0]), [1.0, 2.0]),
        (np.array([[1, 0], [0, 1]]), [[1, 0], [0, 1]]),
        (FakeTensor(0.25), 0.25),
        ("a string", "a string"),
        ({"bins": (1, 2), "counts": [np.int32(3)]}, {"bins": [1, 2], "counts": [3]}),
        ({1: "x"}, {"1": "x"}),
    ],
)
def test_values_become_plain(value: Any, plain: Any) -> None:
    got = check_metrics({"m": value})["m"]
    assert got == plain
    assert type(got) is type(plain)


def test_nan_and_infinity_are_kept() -> None:
    got = check_metrics({"a": float("nan"), "b": np.float64("-inf"), "c": [math.inf]})
    assert math.isnan(got["a"])
    assert got["b"] == -math.inf
    assert got["c"] == [math.inf]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([1], "must be a dict"),
        (None, "must be a dict"),
        ({1: 2}, "must be a string"),
        ({"m": None}, r"metrics\['m'\] is None"),
        ({"m": {"deep": [1, None]}}, r"\['m'\]\['deep'\]\[1\] is None"),
        ({"m": object()}, "is a object"),
        ({"m": b"bytes"}, "is a bytes"),
        ({"m": 1j}, "is a complex"),
    ],
)
def test_wrong_types_are_named(metrics: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_metrics(metrics)


@pytest.mark.parametrize("name", ["", "x" * 513, "a\0b", "\ud800"])
def test_bad_names(name: str) -> None:
    with pytest.raises(ValueError, match="metric name"):
        check_metrics({name: 1})


def test_markup_in_a_name_is_just_text() -> None:
    assert check_metrics({"<img onerror=alert(1)>": 1}) == {"<img onerror=alert(1)>": 1}


def test_endless_nesting_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper"):
        check_metrics({"m": loop})


@pytest.mark.parametrize("value", [0, 5, np.int64(5), np.array(5)])
def test_steps(value: Any) -> None:
    assert check_steps(value) == int(value)


@pytest.mark.parametrize(
    ("value", "error"), [(-1, ValueError), (1.0, TypeError), ("1", TypeError), (True, TypeError), (None, TypeError)]
)
def test_bad_steps(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="steps_completed"):
        check_steps(value)


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5)])
def test_progress(value: Any) -> None:
    assert check_progress(value) == float(value)


@pytest.mark.parametrize(
    ("value", "error"),
    [(-0.1, ValueError), (1.1, ValueError), (math.nan, ValueError), ("1", TypeError), (True, TypeError)],
)
def test_bad_progress(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="progress"):
        check_progress(value)


def test_groups() -> None:
    assert check_group("training") == "training"
    with pytest.raises(ValueError, match=r"must not contain '\.'"):
        check_group("a.b")
    with pytest.raises(TypeError):
        check_group(1)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"m": "x" * 300_000}, r"metrics\['m'\] has 300002 bytes"),
        ({"m": [0.5] * 100_000}, "at most 256000"),
        ({"m": "\ud800"}, "not valid Unicode"),
        ({"m": {"a": "b\0"}}, "NUL"),
        ({str(number): 1 for number in range(20_001)}, "20001 entries"),
    ],
)
def test_what_the_master_would_refuse_raises_here(metrics: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_metrics(metrics)


def test_limits_are_those_of_the_master() -> None:
    """Both sides judge the same report; neither may be stricter."""
    from detlab.core.metrics import values
    from detlab_hub.store.queries.metrics import reports

    assert reports.GROUP_CHARS == values.MAX_GROUP
    assert reports.NAME_CHARS == values.MAX_NAME
    assert reports.MAX_STEP == values.MAX_STEPS
    assert reports.MAX_NAMES == values.MAX_METRICS
    assert reports.STRUCTURED_BYTES == values.MAX_STRUCTURED_BYTES


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_too_long_to_be_read_raises_where_it_is_reported(sign: int) -> None:
    """It was written, and whoever reads the spool skipped the line: acknowledged and lost."""
    for value in (2**63, 10**4299):
        assert check_metrics({"m": sign * value, "n": [sign * value]}) == {"m": sign * value, "n": [sign * value]}
        assert json.loads(_line({"m": sign * value}))["m"] == sign * value
    for wrong in (10**4300, [10**5000], {"a": 10**5000}):
        with pytest.raises(ValueError, match=r"metrics\['m'\].* more than 4300 digits"):
            check_metrics({"m": wrong, "loss": 0.5})
