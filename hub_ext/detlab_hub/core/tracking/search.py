"""The language in which MLflow's clients search: clauses joined by AND, and an order; parsed into typed values.

metrics.`val loss` < 0.3 AND params.optimizer = 'adam' AND tags.team LIKE 'vis%' AND status = 'FINISHED'
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from detlab_hub.core.filters.grammar import MOST_CHARS, MOST_PARTS, MOST_VALUES, FilterError, number_in


class FieldOf(StrEnum):
    """What a clause or an order is about."""

    METRIC = "metric"
    PARAM = "parameter"
    TAG = "tag"
    ATTRIBUTE = "attribute"
    DATASET = "dataset"


FieldType = Literal["number", "text"]
_PREFIXES: Mapping[str, FieldOf] = {
    **dict.fromkeys(("metric", "metrics"), FieldOf.METRIC),
    **dict.fromkeys(("param", "params", "parameter", "parameters"), FieldOf.PARAM),
    **dict.fromkeys(("tag", "tags"), FieldOf.TAG),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), FieldOf.ATTRIBUTE),
    **dict.fromkeys(("dataset", "datasets"), FieldOf.DATASET),
}
RUN_FIELDS: Mapping[str, FieldType] = {
    "run_id": "text",
    "run_name": "text",
    "status": "text",
    "user_id": "text",
    "start_time": "number",
    "end_time": "number",
}
_ALIASES = {
    "run name": "run_name",
    "id": "run_id",
    "user": "user_id",
    "created": "start_time",
    "created_at": "start_time",
    "ended": "end_time",
}
EXPERIMENT_FIELDS: Mapping[str, FieldType] = {"name": "text", "creation_time": "number", "last_update_time": "number"}
MODEL_FIELDS: Mapping[str, FieldType] = {"name": "text"}
LOGGED_MODEL_FIELDS: Mapping[str, FieldType] = {
    "name": "text",
    "model_id": "text",
    "model_type": "text",
    "status": "text",
    "source_run_id": "text",
    "creation_timestamp": "number",
    "last_updated_timestamp": "number",
}
VERSION_FIELDS: Mapping[str, FieldType] = {
    "name": "text",
    "run_id": "text",
    "source_path": "text",
    "version_number": "number",
}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<operator><=|>=|!=|=|<|>)
      | (?P<mark>[(),])
      | `(?P<back>[^`]*)`
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>[^\s()=!<>,'"`]+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_NUMBERS = frozenset({"=", "!=", "<", "<=", ">", ">="})
_TEXTS = frozenset({"=", "!=", "LIKE", "ILIKE", "IN", "NOT IN", "IS NULL", "IS NOT NULL"})


@dataclass(frozen=True)
class Clause:
    """One comparison.

    Attributes:
        of: What kind of field.
        key: Its name.
        operator: One of `_NUMBERS` or `_TEXTS`.
        values: Of `IN`: any; of `IS NULL`: none; else one.
    """

    of: FieldOf
    key: str
    operator: str
    values: tuple[str | float, ...] = ()


@dataclass(frozen=True)
class RunOrder:
    """One key of an order."""

    of: FieldOf
    key: str
    descending: bool = False


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int
    end: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


def parse_filter(text: str, fields: Mapping[str, FieldType]) -> tuple[Clause, ...]:
    """Parse a filter; an empty one has no clauses.

    Args:
        text: The filter.
        fields: The attributes that there are, and what they are compared with.

    Raises:
        FilterError: It cannot be read; it says at which column.
    """
    read = _Reader(text, fields)
    found: list[Clause] = []
    while not read.at_end:
        if found:
            read.expect_and()
        found.append(read.clause())
        if len(found) > MOST_PARTS:
            raise FilterError(f"there are more than {MOST_PARTS} comparisons", len(text))
    return tuple(found)


def parse_order(text: str, fields: Mapping[str, FieldType]) -> RunOrder:
    """Parse one key of an order: `metrics.loss ASC`.

    Raises:
        FilterError: It cannot be read.
    """
    return _Reader(text, fields).order()


def like_pattern(text: str) -> str:
    """Return a LIKE pattern as a regular expression that matches the same texts."""
    return "".join({"%": ".*", "_": "."}.get(char, re.escape(char)) for char in text)


class _Reader:
    """Goes through the tokens once."""

    def __init__(self, text: str, fields: Mapping[str, FieldType]) -> None:
        if len(text) > MOST_CHARS:
            raise FilterError(f"the filter has {len(text):,} characters; {MOST_CHARS:,} is the most", MOST_CHARS + 1)
        self._fields, self._tokens, self._at = fields, _tokens(text), 0
        self._end = len(text.rstrip()) + 1

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def expect_and(self) -> None:
        token = self._next("`and`")
        if token.word != "AND":
            raise FilterError(
                f"comparisons are joined by `and` alone, which is missing before {token.text[:40]!r}", token.column
            )

    def clause(self) -> Clause:
        of, key, column = self._field()
        operator = self._operator(key)
        numeric = self._is_number(of, key)
        if operator not in (_NUMBERS if numeric else _TEXTS):
            takes = ", ".join(sorted(_NUMBERS if numeric else _TEXTS))
            raise FilterError(f"{key[:40]!r} is not compared by {operator}: {takes}", column)
        if operator.endswith("NULL"):
            return Clause(of, key, operator)
        values = self._list() if operator.endswith("IN") else (self._value(numeric),)
        return Clause(of, key, operator, values)

    def order(self) -> RunOrder:
        of, key, _ = self._field()
        descending = False
        if not self.at_end:
            token = self._next("ASC or DESC")
            if token.word not in {"ASC", "DESC"} or not self.at_end:
                raise FilterError(f"ASC or DESC is expected, not {token.text[:40]!r}", token.column)
            descending = token.word == "DESC"
        return RunOrder(of, key, descending)

    def _is_number(self, of: FieldOf, key: str) -> bool:
        return of is FieldOf.METRIC or (of is FieldOf.ATTRIBUTE and self._fields[key] == "number")

    def _field(self) -> tuple[FieldOf, str, int]:
        token = self._next("a field")
        if token.kind not in {"word", "back", "double"}:
            raise FilterError(f"a field is missing before {token.text[:40]!r}", token.column)
        prefix, dot, key = token.text.partition(".") if token.kind == "word" else ("", "", token.text)
        of = _PREFIXES.get(prefix.lower()) if dot else None
        if of is None:
            of, key = FieldOf.ATTRIBUTE, token.text
        elif not key and not self.at_end and self._tokens[self._at].column == token.end:
            key = self._next("a name").text
        if not key:
            raise FilterError(f"a name is missing after {token.text[:40]!r}", token.column)
        if of is FieldOf.ATTRIBUTE:
            key = _ALIASES.get(key.lower(), key.lower()) if key.lower() not in self._fields else key.lower()
            if key not in self._fields:
                known = ", ".join(self._fields)
                raise FilterError(f"there is no attribute {key[:40]!r}; there are {known}", token.column)
        return of, key, token.column

    def _operator(self, key: str) -> str:
        token = self._next(f"an operator after {key[:40]!r}")
        if token.kind == "operator":
            return token.text
        word = token.word
        if word == "NOT" and self._takes("IN"):
            return "NOT IN"
        if word == "IS":
            negated = self._takes("NOT")
            if self._takes("NULL"):
                return "IS NOT NULL" if negated else "IS NULL"
        if word in {"LIKE", "ILIKE", "IN"}:
            return word
        raise FilterError(f"an operator is missing after {key[:40]!r}", token.column)

    def _takes(self, word: str) -> bool:
        taken = not self.at_end and self._tokens[self._at].word == word
        self._at += taken
        return taken

    def _list(self) -> tuple[str | float, ...]:
        self._mark("(")
        values: list[str | float] = [self._value(numeric=False)]
        while (token := self._next("`)`")).text == "," and token.kind == "mark":
            values.append(self._value(numeric=False))
            if len(values) > MOST_VALUES:
                raise FilterError(f"a list has {MOST_VALUES} values at most", token.column)
        if token.text != ")":
            raise FilterError("')' is missing here", token.column)
        return tuple(values)

    def _value(self, numeric: bool) -> str | float:
        token = self._next("a value")
        if numeric:
            number = number_in(token.text) if token.kind == "word" else None
            if number is None:
                raise FilterError(f"a number is expected, not {token.text[:40]!r}", token.column)
            return number
        if token.kind not in {"single", "double"}:
            raise FilterError(f"a text in quotation marks is expected, not {token.text[:40]!r}", token.column)
        return token.text

    def _mark(self, mark: str) -> None:
        token = self._next(repr(mark))
        if token.kind != "mark" or token.text != mark:
            raise FilterError(f"{mark!r} is missing here", token.column)

    def _next(self, wanted: str) -> _Token:
        if self.at_end:
            raise FilterError(f"the filter ends where {wanted} is expected", self._end)
        self._at += 1
        return self._tokens[self._at - 1]


def _tokens(text: str) -> Sequence[_Token]:
    found, at = [], 0
    while at < len(text.rstrip()):
        token = _TOKEN.match(text, at)
        if token is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise FilterError(f"{text[at]!r} means nothing here, or is never closed", at + 1)
        kind = str(token.lastgroup)
        said = token[kind]
        if kind in {"single", "double"}:
            said = re.sub(r"\\(.)", r"\1", said, flags=re.DOTALL)
        start = token.start(kind) + (0 if kind not in {"single", "double", "back"} else -1)
        found.append(_Token(kind, said, start + 1, token.end() + 1))
        at = token.end()
    return found
