"""Columns of a batch of reports hold what the reports say one by one: the last value of a step, in step order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.store.queries.metrics.columns import Column, ReportNumbers, columns_of
from detlab_hub.store.tables import clean_text

GROUPS = ("training", "validation")
NAMES = ("loss", "accuracy", "a\x00b", "a\N{REPLACEMENT CHARACTER}b", "\ud800")
numbers = st.dictionaries(st.sampled_from(NAMES), st.floats(allow_nan=False))
said = st.builds(ReportNumbers, st.sampled_from(GROUPS), st.integers(0, 6), st.floats(0, 9), numbers)
alike = st.builds(
    lambda steps: [
        ReportNumbers("training", step, step / 2, {"loss": float(number)}) for number, step in enumerate(steps)
    ],
    st.lists(st.integers(0, 9)),
)


def gathered(reports: list[ReportNumbers]) -> dict[tuple[str, str], dict[int, tuple[float, float]]]:
    """The same, value by value."""
    found: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for one in reports:
        for name, number in one.numbers.items():
            found.setdefault((clean_text(one.group), clean_text(name)), {})[one.step] = (number, one.time)
    return found


@given(st.lists(said) | alike)
def test_columns_hold_what_reports_say_one_by_one(reports: list[ReportNumbers]) -> None:
    found = columns_of(reports)
    wanted = {key: sorted(points.items()) for key, points in gathered(reports).items()}
    turned = {
        key: [(step, (value, time)) for step, value, time in zip(one.steps, one.values, one.times, strict=True)]
        for key, one in found.items()
    }
    assert turned == wanted


def test_reports_of_several_kinds_share_a_column() -> None:
    reports = [
        ReportNumbers("training", 1, 1.0, {"loss": 1.0}),
        ReportNumbers("training", 2, 2.0, {"loss": 2.0, "rate": 0.1}),
        ReportNumbers("training", 1, 3.0, {"loss": 3.0}),
    ]
    assert columns_of(reports) == {
        ("training", "loss"): Column([1, 2], (3.0, 2.0), (3.0, 2.0)),
        ("training", "rate"): Column([2], (0.1,), [2.0]),
    }


def test_names_that_are_stored_as_the_same_one_share_a_column() -> None:
    said = ReportNumbers("training", 1, 1.0, {"a\x00b": 1.0, "a\N{REPLACEMENT CHARACTER}b": 2.0})
    assert columns_of([said]) == {("training", "a\N{REPLACEMENT CHARACTER}b"): Column([1], (2.0,), (1.0,))}


def test_a_report_without_numbers_has_no_column() -> None:
    assert columns_of([ReportNumbers("training", 1, 1.0, {})]) == {}
