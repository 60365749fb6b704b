"""Cards of mistakes that newcomers make say what to write instead."""

from __future__ import annotations

import pytest

from detlab_hub.services.failures.common_mistakes import advice


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("ModuleNotFoundError: No module named 'determined'", "import detlab as det"),
        ("ModuleNotFoundError: No module named 'determined.pytorch'", "from detlab.pytorch import"),
        ("ImportError: cannot import name 'x' from 'determined'", "import detlab as det"),
        ("ModuleNotFoundError: No module named 'tensorflow'", "KERAS_BACKEND=torch"),
        ("NameError: name 'np' is not defined", "`import numpy as np` in the module itself"),
        ("NameError: name 'math' is not defined. Did you forget to import 'math'?", "`import math`"),
        ("NameError: name 'my_data' is not defined", "define my_data in it"),
        ("IndentationError: unexpected indent", "same indentation"),
        ("TabError: inconsistent use of tabs and spaces in indentation", "spaces only"),
        ("yaml.scanner.ScannerError: mapping values are not allowed here", "begin in one column"),
        ("yaml.parser.ParserError: while parsing a block mapping", "begin in one column"),
        ("KernelDied: the cell killed its kernel: killed by SIGKILL; it ran out of memory", "executed.ipynb"),
    ],
)
def test_the_card_of_a_common_mistake_says_what_to_write(message: str, said: str) -> None:
    assert said in (advice(message) or "")


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: x",
        "ModuleNotFoundError: No module named 'mine'",
        "ModuleNotFoundError: No module named 'tensorflow_hub'",
        "NameError: name '' is not defined",
        "",
        "x" * 9999,
    ],
)
def test_other_errors_get_no_such_advice(message: str) -> None:
    assert advice(message) is None
