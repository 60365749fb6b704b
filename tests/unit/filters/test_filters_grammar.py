"""The grammar of filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.filters import grammar
from detlab_hub.core.filters.grammar import (
    AllOf,
    AnyOf,
    Compare,
    FilterError,
    NamePart,
    Not,
    parse,
    parse_field,
    pointed,
    quoted,
)


def bare(condition):
    """The condition without columns."""
    match condition:
        case Compare(field, operator, values):
            return (field.text, operator, *(value.text for value in values))
        case Not(part):
            return ("not", bare(part))
        case AllOf(parts):
            return ("and", *map(bare, parts))
        case AnyOf(parts):
            return ("or", *map(bare, parts))
    return None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("   ", None),
        ("a = 1", ("a", "=", "1")),
        ("a==1", ("a", "=", "1")),
        ("a != b", ("a", "!=", "b")),
        ("hp.lr<=1e-3", ("hp.lr", "<=", "1e-3")),
        ("a = 1 and b = 2 or c = 3", ("or", ("and", ("a", "=", "1"), ("b", "=", "2")), ("c", "=", "3"))),
        ("a = 1 AND (b = 2 OR c = 3)", ("and", ("a", "=", "1"), ("or", ("b", "=", "2"), ("c", "=", "3")))),
        ("not a = 1 and b = 2", ("and", ("not", ("a", "=", "1")), ("b", "=", "2"))),
        ("a in (x, 'y z', \"w\")", ("a", "=", "x", "y z", "w")),
        ("a in [x]", ("a", "=", "x")),
        ("a not in (x, y)", ("a", "!=", "x", "y")),
        ('\'my key\' = "a \\" b"', ("my key", "=", 'a " b')),
        ("version.label = 'in'", ("version.label", "=", "in")),
        ("data-set = s3://b/c@v3:1", ("data-set", "=", "s3://b/c@v3:1")),
        ("a = ''", ("a", "=", "")),
        ("ä = ü", ("ä", "=", "ü")),
        ("name contains 'a b'", ("name", "contains", "a b")),
        ("name not contains a", ("not", ("name", "contains", "a"))),
        ("name ~ a", ("name", "contains", "a")),
        ("name ~a", ("name", "contains", "a")),
        ("name~a and b~'c d'", ("and", ("name", "contains", "a"), ("b", "contains", "c d"))),
        ("name !~ a", ("not", ("name", "contains", "a"))),
        ("a~b = ~/data", ("a~b", "=", "~/data")),
        ("a~b is null", ("a~b", "is null")),
        ("hp.lr is null or hp.lr IS NOT NULL", ("or", ("hp.lr", "is null"), ("not", ("hp.lr", "is null")))),
        ("is = null and contains = contains", ("and", ("is", "=", "null"), ("contains", "=", "contains"))),
        ("validation.'a b.c'.last > 1", ("validation.a b.c.last", ">", "1")),
        ("created>-7d", ("created", ">", "-7d")),
    ],
)
def test_what_is_said(text, wanted):
    assert bare(parse(text)) == wanted


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("a", 2, "an operator after 'a'"),
        ("a b = 1", 3, "an operator is missing"),
        ("a = ", 4, "a value after ="),
        ("a = and", 5, "a value is missing"),
        ("= 1", 1, "a field is missing before '='"),
        ("a = 1 b = 2", 7, "`and` or `or` is missing before 'b'"),
        ("(a = 1", 7, "')' is missing"),
        ("a = 1)", 6, "`and` or `or` is missing before ')'"),
        ("a contains", 11, "a value after contains"),
        ("a is 1", 6, "`null` is missing after is"),
        ("a not is null", 7, "an operator is missing"),
        ("a not ~ b", 7, "an operator is missing"),
        ("a ~", 4, "a value after ~"),
        ("a 'b' = 1", 3, "an operator is missing"),
        ("a in 1", 6, "a list is missing"),
        ("a in ()", 7, "a value is missing"),
        ("a in (1 2)", 9, "')' is missing"),
        ("a not = 1", 7, "an operator is missing"),
        ("a = 'x", 5, "never closed"),
        ("a = 1 and", 10, "the filter ends where a field"),
        ("a = `x`", 5, "means nothing here"),
        ("a ! b", 3, "means nothing here"),
        ("  '' = 1", 3, "a field is missing"),
    ],
)
def test_an_error_says_where(text, column, said):
    with pytest.raises(FilterError) as refused:
        parse(text)
    assert refused.value.column == column
    assert said in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100 + "a = 1" + ")" * 100,
        "not " * 100 + "a = 1",
        " and ".join(["a = 1"] * (grammar.MOST_PARTS + 1)),
        f"a in ({', '.join(['x'] * (grammar.MOST_VALUES + 1))})",
        "a = " + "x" * grammar.MOST_CHARS,
    ],
)
def test_what_is_too_much_is_refused(text):
    with pytest.raises(FilterError):
        parse(text)


@given(st.text(alphabet=" ab()[]='\"\\,<>!.1andornti\n\x00ä", max_size=60))
def test_any_text_is_read_or_refused_with_a_column_in_it(text):
    column = 1
    try:
        parse(text)
    except FilterError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hparams.optimizer.lr", ["hparams", "optimizer", "lr"]),
        ("hparams.'a.b'", ["hparams", ("a.b",)]),
        ("'a.b'.last", [("a.b",), "last"]),
        ("validation.'a b'.max", ["validation", ("a b",), "max"]),
        ("'a'.'b'.c.'d'", [("a",), ("b",), "c", ("d",)]),
        ("a..b", ["a", "", "b"]),
        ("a~b", ["a~b"]),
    ],
)
def test_parts_of_a_name_may_be_quoted(text, parts):
    wanted = tuple(NamePart(part[0], quoted=True) if isinstance(part, tuple) else NamePart(part) for part in parts)
    assert parse_field(text).parts == wanted


@pytest.mark.parametrize(("text", "column"), [("", 1), ("and", 1), ("a b", 3), ("a = 1", 3), ("(a)", 1), ("'a", 1)])
def test_a_name_alone_is_nothing_else(text, column):
    with pytest.raises(FilterError) as refused:
        parse_field(text)
    assert refused.value.column == column


@given(st.text(max_size=30))
def test_what_is_quoted_is_itself(text):
    condition = parse(f"{quoted(text)} = {quoted(text)}") if text else None
    if text:
        assert bare(condition) == (text, "=", text)


def test_the_caret_stands_below_the_mistake_wherever_that_is():
    for column in (1, 5, 59, 60, 61, 200, 301):
        text = "\n".join(["x" * 99] * 3)
        shown, mark = pointed(text, column).splitlines()
        assert mark.index("^") - 2 < len(shown)
        start = max(0, column - 60)
        assert start + mark.index("^") - 2 == column - 1
