"""How `python3 -m detlab.pytorch module:Class` makes a trial."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.pytorch.__main__ import make
from detlab.pytorch._errors import TrainerError


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
    assert make(Plain, context, {"lr": 1}).given == (context,)  # type: ignore[arg-type,attr-defined]
    assert make(WithHparams, context, {"lr": 1}).given == (context, {"lr": 1})  # type: ignore[arg-type,attr-defined]


def test_a_class_that_wants_more_is_told_what_to_take() -> None:
    with pytest.raises(TrainerError, match=r"Wants.*'depth'[\s\S]*take \(self, context\)"):
        make(Wants, object(), {})  # type: ignore[arg-type]
