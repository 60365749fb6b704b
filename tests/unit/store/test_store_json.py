"""What the database keeps as JSON comes back as it was, by the fast encoder or, where that cannot, by the usual one."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.store.tables.base import decode_json, encode_bulk, encode_json

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner))


@pytest.mark.slow
@given(values)
def test_every_value_comes_back(value: Any) -> None:
    # By repr: NaN equals nothing, and True equals 1.
    assert repr(json.loads(encode_bulk(value))) == repr(value)
    assert repr(decode_json(encode_bulk(value))) == repr(value)
    assert repr(decode_json(encode_json(value))) == repr(value)


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1.0}, ["a\x00b"], 10**400, -(2**63) - 1, 5e-324, 1e22, -0.0])
def test_what_is_hard_to_write_comes_back(value: Any) -> None:
    assert repr(json.loads(encode_bulk(value))) == repr(value)
    assert repr(decode_json(encode_bulk(value))) == repr(value)
    assert repr(decode_json(encode_json(value))) == repr(value)


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":{"a":2}}', "1e400", "-1e400", "0.1000000000000000055511151231257827", "-0"]
)
def test_text_is_read_as_the_standard_library_does(text: str) -> None:
    assert repr(decode_json(text)) == repr(json.loads(text))


def test_numbers_that_are_none_are_written_as_the_standard_library_does() -> None:
    assert encode_bulk([math.nan, math.inf, -math.inf]) == "[NaN,Infinity,-Infinity]"


def test_deep_nesting_is_kept() -> None:
    value: Any = 0.5
    for _ in range(600):
        value = [value]
    assert json.loads(encode_bulk(value)) == value
    assert decode_json(encode_bulk(value)) == value


def test_what_no_json_can_be_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_bulk({"x": object()})
