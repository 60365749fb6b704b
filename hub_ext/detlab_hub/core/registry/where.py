"""The language of queries for versions: `label = vision and (dataset = v3 or not hp.lr > 0.1)`.

    query      := and_part ("or" and_part)*
    and_part   := factor ("and" factor)*
    factor     := "not" factor | "(" query ")" | FIELD operator
    operator   := ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") VALUE | ["not"] "in" "(" VALUE ("," VALUE)* ")"

A FIELD is a word or quoted: `label`, `name`, `owner`, `version`, `version.label`, `semver`, `format`, `hp.NAME`, a
metric, or a key of the metadata. A VALUE is a word, a number or quoted. Errors name the column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

MOST_CHARS = 4000
MOST_PARTS = 50
"""Comparisons of one query."""
MOST_DEPTH = 20
MOST_VALUES = 200
"""Values of one `in`."""
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
_OPERATORS: dict[str, Operator] = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<operator><=|>=|!=|==|=|<|>)
      | (?P<mark>[()\[\],])
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>[^\s()\[\],=!<>"'`]+)
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"and", "or", "not", "in"})


class QueryError(ValueError):
    """A query that cannot be read.

    Attributes:
        column: Where, from 1.
        message: What is wrong there.
    """

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.message, self.column = message, column


@dataclass(frozen=True)
class Compare:
    """`field operator value`; with several values, `=` means any of them and `!=` none."""

    field: str
    operator: Operator
    values: tuple[str, ...]
    column: int = 0

    @property
    def number(self) -> float | None:
        """Its first value, if that is a finite number."""
        return number_in(self.values[0])


@dataclass(frozen=True)
class Not:
    """What is not so."""

    part: Condition


@dataclass(frozen=True)
class AllOf:
    """What is all so."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """What is so in any of them."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Compare | Not | AllOf | AnyOf


def number_in(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def parse(text: str) -> Condition | None:
    """Parse a query; an empty one is None, which all versions fulfil.

    Raises:
        QueryError: It cannot be read; it says at which column.
    """
    if len(text) > MOST_CHARS:
        raise QueryError(f"the query has {len(text):,} characters; {MOST_CHARS:,} is the most", MOST_CHARS + 1)
    parser = _Parser(_tokens(text), len(text.rstrip()) + 1)
    return parser.whole()


@dataclass(frozen=True)
class _Token:
    kind: Literal["operator", "mark", "word", "quoted"]
    text: str
    column: int

    @property
    def keyword(self) -> str:
        return self.text.lower() if self.kind == "word" and self.text.lower() in _KEYWORDS else ""


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            what = "this quotation mark is never closed" if text[at] in "\"'" else f"{text[at]!r} means nothing here"
            raise QueryError(what, at + 1)
        kind = str(token.lastgroup)
        column = token.start(kind) + 1
        if kind in {"double", "single"}:
            found.append(_Token("quoted", re.sub(r"\\(.)", r"\1", token[kind]), column - 1))
        else:
            found.append(_Token(kind, token[kind], column))  # type: ignore[arg-type]  # names of the groups
        at = token.end()
    return found


class _Parser:
    """Goes through the tokens once."""

    def __init__(self, tokens: Sequence[_Token], end: int) -> None:
        self._tokens, self._end = tokens, end
        self._at = 0
        self._compared = 0

    def whole(self) -> Condition | None:
        if not self._tokens:
            return None
        found = self._any(0)
        if (left := self._peek()) is not None:
            raise QueryError(f"`and` or `or` is missing before {left.text[:40]!r}", left.column)
        return found

    def _any(self, depth: int) -> Condition:
        if depth > MOST_DEPTH:
            raise QueryError(f"there are more than {MOST_DEPTH} levels of parentheses", self._column())
        parts = [self._all(depth)]
        while self._takes_keyword("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self, depth: int) -> Condition:
        parts = [self._factor(depth)]
        while self._takes_keyword("and"):
            parts.append(self._factor(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _factor(self, depth: int) -> Condition:
        if self._takes_keyword("not"):
            if depth > MOST_DEPTH:
                raise QueryError("there are too many `not`", self._column())
            return Not(self._factor(depth + 1))
        if self._takes_mark("("):
            found = self._any(depth + 1)
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> Condition:
        field = self._next("a field, such as label or hp.lr")
        if field.kind not in {"word", "quoted"} or field.keyword or not field.text:
            raise QueryError(f"a field is missing before {field.text[:40]!r}", field.column)
        self._compared += 1
        if self._compared > MOST_PARTS:
            raise QueryError(f"there are more than {MOST_PARTS} comparisons", field.column)
        negated = self._takes_keyword("not")
        if self._takes_keyword("in"):
            return Compare(field.text, "!=" if negated else "=", self._list(), field.column)
        operator = self._next(f"an operator after {field.text[:40]!r}: =, !=, <, <=, >, >= or in")
        if negated or operator.kind != "operator":
            message = f"an operator is missing after {field.text[:40]!r}: =, !=, <, <=, >, >= or in"
            raise QueryError(message, operator.column)
        value = self._value(f"after {operator.text}")
        sign = _OPERATORS[operator.text]
        if sign not in {"=", "!="} and number_in(value.text) is None:
            raise QueryError(f"{sign} compares numbers, and {value.text[:40]!r} is none", value.column)
        return Compare(field.text, sign, (value.text,), field.column)

    def _list(self) -> tuple[str, ...]:
        opened = self._next("a list after `in`: (a, b)")
        if opened.text not in {"(", "["} or opened.kind != "mark":
            raise QueryError("a list is missing after `in`: (a, b)", opened.column)
        values = [self._value("in the list").text]
        while self._takes_mark(","):
            values.append(self._value("in the list").text)
            if len(values) > MOST_VALUES:
                raise QueryError(f"a list has {MOST_VALUES} values at most", opened.column)
        self._expect(")" if opened.text == "(" else "]")
        return tuple(values)

    def _value(self, where: str) -> _Token:
        value = self._next(f"a value {where}")
        if value.kind not in {"word", "quoted"} or value.keyword:
            raise QueryError(f"a value is missing {where}; quote it if it is {value.text[:40]!r}", value.column)
        return value

    # --- tokens

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _column(self) -> int:
        token = self._peek()
        return self._end if token is None else token.column

    def _next(self, wanted: str) -> _Token:
        token = self._peek()
        if token is None:
            raise QueryError(f"the query ends where {wanted} is expected", self._end)
        self._at += 1
        return token

    def _takes_keyword(self, word: str) -> bool:
        token = self._peek()
        taken = token is not None and token.keyword == word
        self._at += taken
        return taken

    def _takes_mark(self, mark: str) -> bool:
        token = self._peek()
        taken = token is not None and token.kind == "mark" and token.text == mark
        self._at += taken
        return taken

    def _expect(self, mark: str) -> None:
        if not self._takes_mark(mark):
            raise QueryError(f"{mark!r} is missing here", self._column())
