"""The metadata of a checkpoint: values of NumPy, odd keys and texts, as they come from real training code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detlab.core.checkpoint.plain_metadata import plain_metadata
from detlab.errors import CheckpointError


def test_values_of_numpy_and_keys_that_are_numbers_become_json() -> None:
    """`{"loss": np.float32(…)}` was refused after the upload, as "Object of type float32 is not JSON serializable"."""
    found = plain_metadata(
        {
            "loss": np.float32(0.5),
            "counts": np.array([[1, 2]]),
            "classes": {3: "cat", np.int64(4): ("dog", True)},
            "at": Path("/data"),
            "none": None,
            "worst": math.inf,
        }
    )
    assert found == {
        "loss": 0.5,
        "counts": [[1, 2]],
        "classes": {"3": "cat", "4": ["dog", True]},
        "at": "/data",
        "none": None,
        "worst": math.inf,
    }
    assert json.loads(json.dumps(found)) == found


LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"a": {"b": [1, {2}]}}, r"metadata\['a'\]\['b'\]\[1\] is of type set"),
        ({"a": {(1, 2): 3}}, r"metadata\['a'\] has a key of type tuple: \(1, 2\)"),
        ({None: 3}, "metadata has a key of type NoneType"),
        ({"a": {1: 1, "1": 2}}, r"metadata\['a'\] has two keys that are '1'"),
        ({"file": "caf\udce9"}, r"metadata\['file'\] is no valid text: 'caf\\udce9'"),
        ({"caf\udce9": 1}, "a key of metadata is no valid text"),
        (LOOP, "contains itself"),
        ({"a": b"bytes"}, "is of type bytes"),
    ],
)
def test_what_json_cannot_hold_is_named(metadata: dict[Any, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        plain_metadata(metadata)
