"""Cutting spans of time at midnight (UTC), and cells that no spreadsheet executes."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detlab.schemas.taskwire import UsageRow, UsageView
from detlab_hub.services.cluster.usage import safe_cell, to_csv
from detlab_hub.services.lifecycle.accounting import day_of, split_by_day

moments = st.floats(0, 4e9, allow_nan=False)
spans = st.floats(0, 40 * 86400, allow_nan=False)


@given(begin=moments, length=spans)
@example(begin=431999.99999999953, length=86401.0).via("rounded to microseconds this is the day after")
def test_the_parts_of_a_span_are_the_whole_span(begin: float, length: float) -> None:
    end = begin + length
    parts = list(split_by_day(begin, end))
    assert sum(seconds for _, seconds in parts) == pytest.approx(end - begin, abs=1e-3)
    days = [day for day, _ in parts]
    assert days == sorted(set(days)), "each day once, in order"
    assert all(0 < seconds <= 86400 for _, seconds in parts)
    if parts:
        assert days[0] == day_of(begin)
        assert (days[-1] - days[0]).days == len(days) - 1, "no day is left out"


@given(begin=moments, length=spans, cut=st.floats(0, 1))
def test_two_spans_that_meet_count_as_one(begin: float, length: float, cut: float) -> None:
    middle, end = begin + cut * length, begin + length
    sums: dict[date, float] = {}
    for part in (split_by_day(begin, middle), split_by_day(middle, end)):
        for day, seconds in part:
            sums[day] = sums.get(day, 0.0) + seconds
    whole = dict(split_by_day(begin, end))
    assert sums.keys() == whole.keys()
    assert all(sums[day] == pytest.approx(whole[day], abs=1e-3) for day in whole)


def test_midnight_belongs_to_the_new_day() -> None:
    midnight = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    assert list(split_by_day(midnight - 5, midnight)) == [(date(2026, 2, 28), 5.0)]
    assert list(split_by_day(midnight, midnight + 5)) == [(date(2026, 3, 1), 5.0)]
    assert list(split_by_day(midnight - 5, midnight + 7)) == [(date(2026, 2, 28), 5.0), (date(2026, 3, 1), 7.0)]


def test_an_empty_or_backward_span_is_nothing() -> None:
    assert list(split_by_day(100.0, 100.0)) == []
    assert list(split_by_day(100.0, 50.0)) == []


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "'=1", '"=1', "\uff1d1", "=cmd|' /C calc'!A0"],
)
def test_a_name_that_is_a_formula_stays_text(name: str) -> None:
    assert safe_cell(name) == f"'{name}"


@given(st.text())
def test_a_cell_is_its_text_or_the_text_behind_an_apostrophe(text: str) -> None:
    cell = safe_cell(text)
    assert cell in (text, f"'{text}")
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_the_table_can_be_read_back_whatever_a_user_is_called() -> None:
    names = ['a"b', "a,b", "a\nb", "=x", "plain"]
    items = [UsageRow(day="2026-01-02", user=name, kind="trial", slot_hours=0.5) for name in names]
    table = list(csv.reader(io.StringIO(to_csv(UsageView(first="", last="", items=items)))))
    assert table[0] == ["day", "user", "kind", "slot_hours"]
    assert [row[1] for row in table[1:]] == ['a"b', "a,b", "a\nb", "'=x", "plain"]
    assert {row[3] for row in table[1:]} == {"0.500000"}
