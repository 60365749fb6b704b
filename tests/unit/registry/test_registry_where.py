"""The language of queries for versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.registry import where
from detlab_hub.core.registry.where import AllOf, AnyOf, Compare, Not, QueryError, parse


def bare(condition):
    """The condition without columns."""
    match condition:
        case Compare(field, operator, values):
            return (field, operator, *values)
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
        ("a < b", 5, "< compares numbers, and 'b' is none"),
        ("a < nan", 5, "compares numbers"),
        ("a in 1", 6, "a list is missing"),
        ("a in ()", 7, "a value is missing"),
        ("a in (1 2)", 9, "')' is missing"),
        ("a not = 1", 7, "an operator is missing"),
        ("a = 'x", 5, "never closed"),
        ("a = 1 and", 10, "the query ends where a field"),
        ("a = `x`", 5, "means nothing here"),
        ("a ! b", 3, "means nothing here"),
        ("  '' = 1", 3, "a field is missing"),
    ],
)
def test_an_error_says_where(text, column, said):
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert refused.value.column == column
    assert said in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100 + "a = 1" + ")" * 100,
        "not " * 100 + "a = 1",
        " and ".join(["a = 1"] * (where.MOST_PARTS + 1)),
        f"a in ({', '.join(['x'] * (where.MOST_VALUES + 1))})",
        "a = " + "x" * where.MOST_CHARS,
    ],
)
def test_what_is_too_much_is_refused(text):
    with pytest.raises(QueryError):
        parse(text)


@given(st.text(alphabet=" ab()[]='\"\\,<>!.1andornti\n\x00ä", max_size=60))
def test_any_text_is_read_or_refused_with_a_column_in_it(text):
    column = 1
    try:
        parse(text)
    except QueryError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1
