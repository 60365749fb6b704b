"""The exceptions that stand for those of functions that ran elsewhere."""

from __future__ import annotations

import pytest

from detlab.remote_functions.failures import raised


@pytest.mark.parametrize(("text", "key"), [("'missing 1'", "missing 1"), ("7", "7"), ("not code(", "not code(")])
def test_a_key_error_has_its_key(text: str, key: str) -> None:
    error = raised({"type": "KeyError", "message": text}, "cell-1")
    assert isinstance(error, KeyError)
    assert error.args[0] == key
