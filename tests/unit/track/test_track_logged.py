"""What a script logs, sorted: numbers by plain names, texts, the rest. Nothing raises."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schemas.wire.logged_names import check_key, near_key
from detlab.track.logged import number_of, plain_config, sorted_values


class Tensor:
    """As arrays and tensors of any library are."""

    def __init__(self, value: Any, shape: tuple[int, ...] = ()) -> None:
        self.value, self.shape = value, shape

    def item(self) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (True, 1.0),
        (0.5, 0.5),
        (2**70, float(2**70)),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (Tensor(3.0), 3.0),
        (Tensor(3.0, (1, 1)), 3.0),
        (Tensor(3.0, (2,)), None),
        ("0.5", None),
        (None, None),
        ([1.0], None),
    ],
)
def test_numbers_are_known_whatever_holds_them(value: Any, number: float | None) -> None:
    assert number_of(value) == number


def test_an_item_that_raises_is_no_number() -> None:
    class Bad:
        shape = ()

        def item(self) -> float:
            raise OSError("CUDA error")

    assert number_of(Bad()) is None


def test_values_that_json_lacks_stay_numbers() -> None:
    found = sorted_values({"a": math.nan, "b": math.inf, "c": -math.inf})
    assert math.isnan(found.numbers["a"])
    assert (found.numbers["b"], found.numbers["c"]) == (math.inf, -math.inf)


def test_mappings_are_looked_into_and_texts_and_others_told_apart() -> None:
    found = sorted_values({"val": {"loss": 1, "best": {"acc": 0.5}}, "note": "warm", "none": None, "list": [1, 2]})
    assert found.numbers == {"val.loss": 1.0, "val.best.acc": 0.5}
    assert found.texts == {"note": "warm"}
    assert found.others == {"list": [1, 2]}


def test_a_name_that_can_be_none_is_kept_as_near_to_it_as_can_be() -> None:
    found = sorted_values({"top@1": 1, "/loss/": 2, "été/größe": 3, "a//b/../c": 4})
    assert found.numbers == {"top_1": 1.0, "loss": 2.0, "été/größe": 3.0, "a/b/__/c": 4.0}
    assert len(found.problems) == 3


@given(st.dictionaries(st.text() | st.integers(), st.floats() | st.text() | st.none() | st.booleans(), max_size=20))
def test_nothing_that_is_logged_raises_and_all_names_are_valid(data: dict[Any, Any]) -> None:
    found = sorted_values(data)
    for name in {**found.numbers, **found.texts, **found.others}:
        check_key(name, "metric")


@given(st.text(max_size=600))
def test_the_nearest_name_is_a_name(text: str) -> None:
    name = near_key(text)
    assert check_key(name, "metric") == name
    assert near_key(name) == name


def test_a_mapping_that_holds_itself_is_no_end_of_the_script() -> None:
    data: dict[str, Any] = {}
    data["self"] = data
    assert sorted_values(data).problems


def test_a_million_values_at_once_are_bounded() -> None:
    found = sorted_values({f"m{i}": float(i) for i in range(100_000)})
    assert len(found.numbers) == 20_000
    assert "the first 20,000 are kept" in found.problems[0]


def test_configurations_of_all_kinds_become_json() -> None:
    @dataclasses.dataclass
    class Settings:
        lr: float = 0.1
        layers: tuple[int, ...] = (1, 2)

    assert plain_config(Settings()) == {"lr": 0.1, "layers": [1, 2]}
    assert plain_config(argparse.Namespace(lr=0.1, device=Settings)) == {"lr": 0.1, "device": str(Settings)}
    assert plain_config(OrderedDict(a={"b": {1}}, c=Tensor(2.0))) == {"a": {"b": [1]}, "c": 2.0}
    assert plain_config(None) == {}
