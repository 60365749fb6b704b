"""The searcher shim for code from before Determined 0.38."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.core import DummyDistributedContext, SearcherContext, SearcherMode, Unit
from detlab.core.searcher import parse_length, parse_units


def searcher(length: int = 100) -> tuple[SearcherContext, list[float]]:
    seen: list[float] = []
    return SearcherContext(DummyDistributedContext(), length, seen.append), seen


@pytest.mark.parametrize(
    ("config", "length", "unit"),
    [
        ({"max_length": 50}, 50, None),
        ({"max_length": {"epochs": 7}}, 7, Unit.EPOCHS),
        ({"max_length": {"batches": 9}}, 9, Unit.BATCHES),
        ({"max_length": None, "max_time": 64}, 64, None),
        ({"max_time": 64}, 64, None),
        ({"max_length": {}}, 0, None),
        ({}, 0, None),
        ({"unit": "records", "max_length": 3}, 3, Unit.RECORDS),
    ],
)
def test_lengths_and_units(config: dict[str, Any], length: int, unit: Unit | None) -> None:
    assert parse_length(config) == length
    assert parse_units(config) is unit


def test_one_operation_with_progress() -> None:
    context, seen = searcher()
    with pytest.warns(FutureWarning, match="deprecated"):
        operations = context.operations()
    (operation,) = [op for op in operations if not (op.report_progress(25), op.report_completed(0.5))[0]]
    assert operation.length == 100
    assert seen == [0.25]


def test_the_chief_must_complete() -> None:
    context, _ = searcher()
    with pytest.warns(FutureWarning):
        operations = context.operations(SearcherMode.ChiefOnly)
    next(operations)
    with pytest.raises(RuntimeError, match="report_completed"):
        next(operations)


def test_completing_twice_and_late_progress() -> None:
    context, seen = searcher()
    with pytest.warns(FutureWarning):
        operation = next(context.operations())
    operation.report_completed(1)
    operation.report_progress(100)  # the whole length is fine, as it was in Determined
    assert seen == [1.0]
    with pytest.raises(RuntimeError, match="after"):
        operation.report_progress(50)
    with pytest.raises(RuntimeError, match="twice"):
        operation.report_completed(1)


def test_a_length_of_zero_reports_no_progress() -> None:
    context, seen = searcher(0)
    with pytest.warns(FutureWarning):
        operation = next(context.operations())
    operation.report_progress(3)
    assert seen == []
    assert context.get_configured_units() is None
    context.acknowledge_out_of_ops()
