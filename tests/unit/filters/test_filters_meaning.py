"""What filters mean: fields, kinds of values, times, and what cannot be compared."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.filters.fields import (
    COLUMNS,
    ColumnField,
    FieldKind,
    FilterTable,
    HyperparameterField,
    MetricField,
    MetricSummary,
    field_of,
)
from detlab_hub.core.filters.grammar import AllOf, AnyOf, FilterError, Not, parse_field
from detlab_hub.core.filters.meaning import (
    Asker,
    HasValue,
    IsNaN,
    Number,
    NumberIn,
    Runs,
    TextIn,
    TextWith,
    Truth,
    fields,
    is_about_archived,
    read,
)

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
MIDNIGHT, DAY = NOON - 43_200, 86_400.0
ASKER = Asker("ada", NOON)
TRIALS, EXPERIMENTS = FilterTable.TRIALS, FilterTable.EXPERIMENTS
A = HyperparameterField(("a",))
BEST, LAST, MIN, MAX = MetricSummary.BEST, MetricSummary.LAST, MetricSummary.MIN, MetricSummary.MAX


def meant(text, table=TRIALS):
    return read(text, table, ASKER)


def column(name, table=TRIALS):
    return COLUMNS[table][name]


def metric(name, summary=BEST):
    return MetricField((("validation", name),), summary)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("state", column("state")),
        ("State", column("state")),
        ("'state'", metric("state")),
        ("metric.state", metric("state")),
        ("metric.state.last", metric("state", LAST)),
        ("accuracy", metric("accuracy")),
        ("accuracy.MAX", metric("accuracy", MAX)),
        ("accuracy.best", metric("accuracy")),
        ("last", metric("last")),
        ("'a.b'", metric("a.b")),
        ("'a.b'.min", metric("a.b", MIN)),
        ("a.b", MetricField((("a", "b"), ("validation", "a.b")))),
        ("a.b.c.min", MetricField((("a", "b.c"), ("validation", "a.b.c")), MIN)),
        ("training.'min'", MetricField((("training", "min"), ("validation", "training.min")))),
        ("hp.lr", HyperparameterField(("lr",))),
        ("HParams.a.b", HyperparameterField(("a", "b"))),
        ("hparams.'a.b'", HyperparameterField(("a.b",))),
        ("hparams.last", HyperparameterField(("last",))),
        ("'hparams'.lr", MetricField((("hparams", "lr"), ("validation", "hparams.lr")))),
        ("hp", metric("hp")),
    ],
)
def test_what_a_name_means(name, wanted):
    assert field_of(TRIALS, parse_field(name)) == wanted


def test_tables_have_fields_of_their_own():
    assert field_of(EXPERIMENTS, parse_field("trials")) == column("trials", EXPERIMENTS)
    assert field_of(TRIALS, parse_field("trials")) == metric("trials")
    assert field_of(EXPERIMENTS, parse_field("steps")) == metric("steps")


@pytest.mark.parametrize("name", ["a.", ".a", "a..b", "hp.", "hparams..x", "metric.", "''.a", 'hp."q\\"t"'])
def test_what_no_name_means(name):
    with pytest.raises(FilterError):
        field_of(TRIALS, parse_field(name))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("accuracy > 0.9", Number(metric("accuracy"), ">", 0.9)),
        ("accuracy != 1", Not(Number(metric("accuracy"), "=", 1.0))),
        ("accuracy = nan", IsNaN(metric("accuracy"))),
        ("accuracy >= -inf", Number(metric("accuracy"), ">=", -math.inf)),
        ("accuracy in (1, 2, nan)", AnyOf((IsNaN(metric("accuracy")), NumberIn(metric("accuracy"), (1.0, 2.0))))),
        ("accuracy is not null", Not(Not(HasValue(metric("accuracy"))))),
        ("owner = me", TextIn(column("owner"), ("ada",))),
        ("owner = 'me'", TextIn(column("owner"), ("me",))),
        ("name = me", TextIn(column("name"), ("me",))),
        ("label not in (a, b, a)", Not(TextIn(column("label"), ("a", "b")))),
        ("label ~ A", TextWith(column("label"), "A")),
        ("state = Completed", TextIn(column("state"), ("COMPLETED",))),
        ("state = running", Runs()),
        ("state in (error, running)", AnyOf((Runs(), TextIn(column("state"), ("ERROR",))))),
        ("archived = no", Truth(column("archived"), value=False)),
        (
            "hp.a = 0.1",
            AnyOf((Number(A, "=", 0.1), TextIn(A, ("0.1",)))),
        ),
        ("hp.a = '0.1'", TextIn(A, ("0.1",))),
        (
            "hp.a = true",
            AnyOf((Truth(A, True), TextIn(A, ("true",)))),
        ),
        ("state = failed", TextIn(column("state"), ("ERROR",))),
        ("state in (Failed, 'being killed')", TextIn(column("state"), ("ERROR", "STOPPING_KILLED"))),
        ("duration > 1h30m", Number(column("duration"), ">", 5400.0)),
        ("duration > 90", Number(column("duration"), ">", 90.0)),
        ("duration <= 1.5d", Number(column("duration"), "<=", 1.5 * DAY)),
        ("created > -7d", Number(column("created"), ">", NOON - 7 * DAY)),
        ("created > now-1H", Number(column("created"), ">", NOON - 3600)),
        ("created < now", Number(column("created"), "<", NOON)),
        ("created > 2026-11-29", Number(column("created"), ">=", MIDNIGHT + DAY)),
        ("created >= 2026-11-29", Number(column("created"), ">=", MIDNIGHT)),
        ("created < today", Number(column("created"), "<", MIDNIGHT)),
        ("created <= yesterday", Number(column("created"), "<", MIDNIGHT)),
        ("created > '2026-11-29 12:00'", Number(column("created"), ">", NOON)),
        ("created > 2026-11-29T13:00+01:00", Number(column("created"), ">", NOON)),
        ("created = 1700000000.5", Number(column("created"), "=", 1700000000.5)),
        (
            "created = 2026-11-29",
            AllOf((Number(column("created"), ">=", MIDNIGHT), Number(column("created"), "<", MIDNIGHT + DAY))),
        ),
    ],
)
def test_what_a_filter_means(text, wanted):
    assert meant(text) == wanted


@pytest.mark.parametrize(
    ("text", "column_", "said"),
    [
        ("acc = paper", 7, "'acc' is no field, and a metric is a number"),
        ("experment = paper", 13, "did you mean `experiment`?"),
        ("steps = many", 9, "`steps` is a number"),
        ("steps = nan", 9, "use = or !=, with a metric"),
        ("acc < nan", 7, "neither less nor greater"),
        ("hp.a > 'x'", 8, "> compares numbers"),
        ("hp.a < nan", 8, "< compares numbers"),
        ("label < 3", 1, "`label` is a text: use =, !=, in or contains"),
        ("state > active", 1, "`state` is a state: use =, !=, in"),
        ("archived < true", 1, "use =, !=, in"),
        ("state = deleted", 9, "'deleted' is no state"),
        ("archived = 2", 12, "is true or false"),
        ("steps contains 3", 1, "contains is for texts"),
        ("created ~ 2026", 1, "contains is for texts"),
        ("created > 7d", 11, "is no time"),
        ("created > -7x", 11, "is no time"),
        ("created > nan", 11, "is no time"),
        ("created > 2026-02-30", 11, "is no date"),
        ("duration > -1h", 12, "is no duration"),
        ("duration > inf", 12, "is no duration"),
        ("acc > -1e999", 7, "beyond what a number can be"),
    ],
)
def test_what_cannot_be_compared_is_said_with_its_place(text, column_, said):
    with pytest.raises(FilterError) as refused:
        meant(text)
    assert refused.value.column == column_
    assert said in refused.value.message


def test_a_text_is_meant_in_each_of_its_forms_of_unicode():
    composed, apart = "\u00e9", "e\u0301"
    for text in (composed, apart):
        label = meant(f"label = {text}")
        assert set(label.texts) == {composed, apart}
        assert {one.text for one in meant(f"name ~ {text}").parts} == {composed, apart}
        assert {composed, apart} <= set(meant(f"hp.a in ({text}, x)").texts)


def test_a_state_of_experiments_alone_is_none_of_trials():
    assert meant("state = deleting", EXPERIMENTS) == TextIn(column("state", EXPERIMENTS), ("DELETING",))
    with pytest.raises(FilterError):
        meant("state = deleting")


def test_fields_of_a_filter_are_told():
    found = fields(meant("not (accuracy > 1 and (label = x or state = running)) or hp.a is null"))
    assert found == [metric("accuracy"), column("label"), A]
    assert is_about_archived(meant("loss < 1 or not archived = true"))
    assert not is_about_archived(meant("'archived' = 1"))


def test_every_column_has_a_kind_that_is_compared():
    for table in FilterTable:
        for name, one in COLUMNS[table].items():
            assert isinstance(one, ColumnField)
            assert one.kind is not FieldKind.ANY
            assert meant(f"{name} is null", table) == Not(HasValue(one))


@given(st.text(alphabet="abe .()'\"<>=!~,-0129dnoritcusla\n\x00", max_size=60))
def test_any_text_means_something_or_is_refused_with_a_place_in_it(text):
    place = 1
    try:
        meant(text)
    except FilterError as error:
        place = error.column
    assert 1 <= place <= len(text) + 1
