"""How `python3 -m detlab.pytorch module:Class` makes a trial."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.pytorch.__main__ import _FORMS
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.trial import make

HOW = {"source": "the config", "hint": _FORMS}


class Plain:
    def __init__(self, context: Any) -> None:
        self.given = (context,)


class WithHparams:
    def __init__(self, context: Any, hparams: dict[str, Any]) -> None:
        self.given = (context, hparams)


class Wants:
    def __init__(self, context: Any, depth: int) -> None:
        raise AssertionError


def test_a_class_that_takes_hparams_gets_them() -> None:
    context: Any = object()
    assert make(Plain, context, {"lr": 1}, **HOW).given == (context,)
    assert make(WithHparams, context, {"lr": 1}, **HOW).given == (context, {"lr": 1})


def test_a_class_that_wants_more_is_told_what_to_take() -> None:
    context: Any = object()
    with pytest.raises(TrainerError, match=r"Wants.*'depth'[\s\S]*take \(self, context\)"):
        make(Wants, context, {}, **HOW)
