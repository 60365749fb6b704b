"""What may come next in a filter that is being written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.filters.completion import (
    Place,
    at,
    field_at,
    operators_of,
    values_of,
    written,
    written_metric,
    written_path,
)
from detlab_hub.core.filters.fields import FilterTable, HyperparameterField, MetricField, MetricSummary, field_of
from detlab_hub.core.filters.grammar import FilterError, parse, parse_field

TRIALS = FilterTable.TRIALS


@pytest.mark.parametrize(
    ("text", "place", "prefix", "begin", "field"),
    [
        ("", "field", "", 0, ""),
        ("acc", "field", "acc", 0, ""),
        ("acc ", "operator", "", 4, "acc"),
        ("acc >", "value", "", 5, "acc"),
        ("acc > 0.", "value", "0.", 6, "acc"),
        ("acc > 0.9 ", "connective", "", 10, "acc"),
        ("acc > 0.9 an", "connective", "an", 10, "acc"),
        ("acc > 0.9 and ", "field", "", 14, "acc"),
        ("acc > 0.9 and (not sta", "field", "sta", 19, "acc"),
        ("state = ", "value", "", 8, "state"),
        ("state in (a, b", "value", "b", 13, "state"),
        ("state in ", "list", "", 9, "state"),
        ("state in (a, b) ", "connective", "", 16, "state"),
        ("label = 'my la", "value", "my la", 8, "label"),
        ("label is ", "null", "", 9, "label"),
        ("label not ", "operator", "", 10, "label"),
        ("name ~ ", "value", "", 7, "name"),
        ("hparams.", "field", "hparams.", 0, ""),
        ('hparams."my lr".x', "field", 'hparams."my lr".x', 0, ""),
        ('hparams."my lr" ', "operator", "", 16, 'hparams."my lr"'),
        ("(a = 1) or b", "field", "b", 11, "a"),
    ],
)
def test_what_is_expected_at_the_end(text, place, prefix, begin, field):
    found = at(text, len(text))
    assert (found.place, found.prefix, found.begin) == (place, prefix, begin)
    if place not in {"field", "connective"}:
        assert found.field == field


def test_what_stands_after_the_cursor_does_not_matter():
    assert at("sta = x and y = 2", 3) == at("sta", 3)


@given(st.text(alphabet=" ab()[]='\"\\,<>!.~1andornti\n`\x00ä", max_size=50), st.integers(-3, 60))
def test_any_text_has_a_place(text, cursor):
    found = at(text, cursor)
    assert 0 <= found.begin <= len(text)
    assert found.place in list(Place)


@pytest.mark.parametrize(
    "name", ["loss", "my loss", "a.b", "and", "in", 'x"y', "it's", "ä", "a=b", "layer/0:w", "max", "\\"]
)
def test_what_is_offered_means_the_very_name(name):
    for group in ("training", "validation", "metric", "hp", "max"):
        metric = field_of(TRIALS, parse_field(written_metric(group, name)))
        assert isinstance(metric, MetricField)
        assert metric.summary is MetricSummary.BEST
        assert metric.readings[0] == (group, name)
    if '"' not in name:
        assert field_of(TRIALS, parse_field(written_path(["opt", name]))) == HyperparameterField(("opt", name))
    assert parse(f"label = {written(name)}").values[0].text == name


@pytest.mark.parametrize("name", ["state", "label", "accuracy", "id"])
def test_each_kind_of_field_has_operators_and_the_filter_that_is_made_of_them_is_read(name):
    field = field_at(TRIALS, name)
    for operator in operators_of(field):
        value = {"in": " (1)", "is null": "", "is not null": ""}.get(operator, " 1")
        assert parse(f"{name} {operator}{value}") is not None
    assert "me" in values_of(TRIALS, field_at(TRIALS, "owner"))
    assert "RUNNING" in values_of(TRIALS, field_at(TRIALS, "state"))
    assert field_at(TRIALS, "a..b") is None
    assert values_of(TRIALS, None) == []


def test_what_is_no_name_is_refused():
    with pytest.raises(FilterError, match="empty"):
        field_of(TRIALS, parse_field("hparams.."))
