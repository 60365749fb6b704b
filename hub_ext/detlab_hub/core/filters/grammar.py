"""The grammar of filters: `accuracy > 0.9 and (label = paper or not hparams.lr > 1e-3)`.

    filter     := and_part ("or" and_part)*
    and_part   := factor ("and" factor)*
    factor     := "not" factor | "(" filter ")" | FIELD operator
    operator   := ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") VALUE
                | ["not"] "in" "(" VALUE ("," VALUE)* ")"
                | (["not"] "contains" | "~" | "!~") VALUE
                | "is" ["not"] "null"

A FIELD is a word or quoted, and so is each part of one: `validation."my metric".last`. A VALUE is a word or quoted.
What a field is, and what may be compared with it, each table says for itself (`fields`, `meaning`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
MOST_CHARS = 4000
MOST_PARTS = 50
"""Comparisons of one filter."""
MOST_DEPTH = 20
MOST_VALUES = 200
"""Values of one `in`."""
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "contains", "is null"]
OPERATORS: dict[str, Operator] = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
KEYWORDS = frozenset({"and", "or", "not", "in"})
"""What is no field and no value unless it is quoted. `contains`, `is` and `null` are words elsewhere."""
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<operator><=|>=|!=|!~|==|=|<|>)
      | (?P<mark>[()\[\],])
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>[^\s()\[\],=!<>"'`]+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_SHOWN = 40
_AFTER = "=, !=, <, <=, >, >=, in, contains or is null"


class FilterError(ValueError):
    """A filter that cannot be read, or that its table cannot answer.

    Attributes:
        column: Where, from 1.
        message: What is wrong there.
    """

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.message, self.column = message, column


@dataclass(frozen=True)
class NamePart:
    """A part of a field's name, between dots."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class FieldName:
    """The name of a field, as it was written."""

    parts: tuple[NamePart, ...]
    column: int = 0

    @property
    def text(self) -> str:
        """The whole name."""
        return ".".join(part.text for part in self.parts)


@dataclass(frozen=True)
class ValueText:
    """A value, as it was written."""

    text: str
    quoted: bool = False
    column: int = 0


@dataclass(frozen=True)
class Compare:
    """`field operator values`; with several values, `=` means any of them and `!=` none."""

    field: FieldName
    operator: Operator
    values: tuple[ValueText, ...] = ()

    @property
    def column(self) -> int:
        """Where its field stands."""
        return self.field.column


@dataclass(frozen=True)
class Not(Generic[T]):
    """What is not so."""

    part: T


@dataclass(frozen=True)
class AllOf(Generic[T]):
    """What is all so."""

    parts: tuple[T, ...]


@dataclass(frozen=True)
class AnyOf(Generic[T]):
    """What is so in any of them."""

    parts: tuple[T, ...]


Condition: TypeAlias = "Compare | Not[Condition] | AllOf[Condition] | AnyOf[Condition]"


def number_in(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def parse(text: str) -> Condition | None:
    """Parse a filter; an empty one is None, which every row fulfils.

    Raises:
        FilterError: It cannot be read; it says at which column.
    """
    if len(text) > MOST_CHARS:
        raise FilterError(f"the filter has {len(text):,} characters; {MOST_CHARS:,} is the most", MOST_CHARS + 1)
    return _Parser(tokens(text), len(text.rstrip()) + 1).whole()


def parse_field(text: str) -> FieldName:
    """Parse the name of a field alone, as columns and sort keys are named.

    Raises:
        FilterError: It is none.
    """
    if len(text) > MOST_CHARS:
        raise FilterError(f"the name has {len(text):,} characters; {MOST_CHARS:,} is the most", MOST_CHARS + 1)
    return _Parser(tokens(text), len(text.rstrip()) + 1).field_alone()


def pointed(text: str, column: int) -> str:
    """Return the part of a filter around a column, with a caret below it: two lines."""
    start = max(0, column - 60)
    shown = "".join(char if char.isprintable() else " " for char in text[start : start + 100])
    return f"  {shown}\n  {' ' * (column - 1 - start)}^"


def quoted(text: str) -> str:
    """Return a text as a quoted value or part of a field's name."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True)
class Token:
    """A word, a quoted text, an operator or a mark, with the columns of its first character and after its last."""

    kind: Literal["operator", "mark", "word", "quoted"]
    text: str
    column: int
    end: int

    @property
    def keyword(self) -> str:
        """The keyword that it is, or an empty text."""
        return self.text.lower() if self.kind == "word" and self.text.lower() in KEYWORDS else ""

    def says(self, word: str) -> bool:
        """Whether it is this word, in any case."""
        return self.kind == "word" and self.text.lower() == word


def tokens(text: str) -> list[Token]:
    """Split a filter.

    Raises:
        FilterError: There is a character that means nothing, or a quotation mark that is never closed.
    """
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            what = "this quotation mark is never closed" if text[at] in "\"'" else f"{text[at]!r} means nothing here"
            raise FilterError(what, at + 1)
        kind = str(token.lastgroup)
        column = token.start(kind) + 1
        if kind in {"double", "single"}:
            said = re.sub(r"\\(.)", r"\1", token[kind], flags=re.DOTALL)
            found.append(Token("quoted", said, column - 1, token.end() + 1))
        else:
            found.append(Token(kind, token[kind], column, token.end() + 1))  # type: ignore[arg-type]  # names of groups
        at = token.end()
    return found


class _Parser:
    """Goes through the tokens once."""

    def __init__(self, read: Sequence[Token], end: int) -> None:
        self._tokens, self._end = list(read), end
        self._at = 0
        self._compared = 0

    def whole(self) -> Condition | None:
        if not self._tokens:
            return None
        found = self._any(0)
        if (left := self._peek()) is not None:
            raise FilterError(f"`and` or `or` is missing before {left.text[:_SHOWN]!r}", left.column)
        return found

    def field_alone(self) -> FieldName:
        found = self._field(alone=True)
        if (left := self._peek()) is not None:
            raise FilterError(f"the name of a field ends before {left.text[:_SHOWN]!r}; quote it", left.column)
        return found

    def _any(self, depth: int) -> Condition:
        if depth > MOST_DEPTH:
            raise FilterError(f"there are more than {MOST_DEPTH} levels of parentheses", self._column())
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
                raise FilterError("there are too many `not`", self._column())
            return Not(self._factor(depth + 1))
        if self._takes_mark("("):
            found = self._any(depth + 1)
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> Condition:
        field = self._field()
        self._compared += 1
        if self._compared > MOST_PARTS:
            raise FilterError(f"there are more than {MOST_PARTS} comparisons", field.column)
        shown = field.text[:_SHOWN]
        negated = self._takes_keyword("not")
        if self._takes_keyword("in"):
            return Compare(field, "!=" if negated else "=", self._list())
        operator = self._next(f"an operator after {shown!r}: {_AFTER}")
        if operator.says("contains"):
            return _maybe_not(Compare(field, "contains", (self._value("after contains"),)), negated)
        if operator.says("is") and not negated:
            return self._null(field)
        if operator.kind == "word" and operator.text.startswith("~") and not negated:
            return self._like(field, operator)
        if negated or operator.kind != "operator":
            raise FilterError(f"an operator is missing after {shown!r}: {_AFTER}", operator.column)
        value = self._value(f"after {operator.text}")
        if operator.text == "!~":
            return Not(Compare(field, "contains", (value,)))
        return Compare(field, OPERATORS[operator.text], (value,))

    def _null(self, field: FieldName) -> Condition:
        negated = self._takes_keyword("not")
        null = self._next("`null` after is")
        if not null.says("null"):
            raise FilterError("`null` is missing after is: `is null` or `is not null`", null.column)
        return _maybe_not(Compare(field, "is null"), negated)

    def _like(self, field: FieldName, operator: Token) -> Condition:
        """Read what follows `~`, from which no space need part it."""
        if len(operator.text) > 1:
            return Compare(field, "contains", (ValueText(operator.text[1:], column=operator.column + 1),))
        return Compare(field, "contains", (self._value("after ~"),))

    # --- fields and values

    def _field(self, *, alone: bool = False) -> FieldName:
        first = self._next("a field, such as label or hp.lr")
        if first.kind not in {"word", "quoted"} or first.keyword or not first.text:
            raise FilterError(f"a field is missing before {first.text[:_SHOWN]!r}", first.column)
        parts, last = [first], first
        while (token := self._peek()) is not None and _continues(last, token):
            self._at += 1
            parts.append(token)
            last = token
        if last.kind == "word" and not alone and "~" in last.text[1:] and not self._operator_follows():
            parts[-1] = self._split(last)
        return FieldName(tuple(_name_parts(parts)), first.column)

    def _operator_follows(self) -> bool:
        token = self._peek()
        if token is None:
            return False
        return token.kind == "operator" or (
            token.kind == "word" and token.text.lower() in {"in", "not", "is", "contains"}
        )

    def _split(self, word: Token) -> Token:
        """Take `name~text` apart: a name may have a tilde in it, but only before another operator."""
        cut = word.text.index("~", 1)
        column = word.column + cut
        self._tokens.insert(self._at, Token("word", word.text[cut:], column, word.end))
        return Token("word", word.text[:cut], word.column, column)

    def _list(self) -> tuple[ValueText, ...]:
        opened = self._next("a list after `in`: (a, b)")
        if opened.text not in {"(", "["} or opened.kind != "mark":
            raise FilterError("a list is missing after `in`: (a, b)", opened.column)
        values = [self._value("in the list")]
        while self._takes_mark(","):
            values.append(self._value("in the list"))
            if len(values) > MOST_VALUES:
                raise FilterError(f"a list has {MOST_VALUES} values at most", opened.column)
        self._expect(")" if opened.text == "(" else "]")
        return tuple(values)

    def _value(self, where: str) -> ValueText:
        value = self._next(f"a value {where}")
        if value.kind not in {"word", "quoted"} or value.keyword:
            raise FilterError(f"a value is missing {where}; quote it if it is {value.text[:_SHOWN]!r}", value.column)
        return ValueText(value.text, value.kind == "quoted", value.column)

    # --- tokens

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _column(self) -> int:
        token = self._peek()
        return self._end if token is None else token.column

    def _next(self, wanted: str) -> Token:
        token = self._peek()
        if token is None:
            raise FilterError(f"the filter ends where {wanted} is expected", self._end)
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
            raise FilterError(f"{mark!r} is missing here", self._column())


def _maybe_not(condition: Condition, negated: bool) -> Condition:
    return Not(condition) if negated else condition


def _continues(last: Token, token: Token) -> bool:
    """Whether a token is the next part of the same name: quoted after a dot, or a dot after what is quoted."""
    if token.column != last.end:
        return False
    if token.kind == "quoted":
        return last.kind == "word" and last.text.endswith(".")
    return token.kind == "word" and last.kind == "quoted" and token.text.startswith(".")


def _name_parts(read: Sequence[Token]) -> list[NamePart]:
    """Return the parts of a name: quoted ones whole, words at their dots."""
    found: list[NamePart] = []
    for number, token in enumerate(read):
        if token.kind == "quoted":
            found.append(NamePart(token.text, quoted=True))
            continue
        if number and token.text == ".":
            continue
        text = token.text[1:] if number else token.text
        if number < len(read) - 1:
            text = text.removesuffix(".")
        found.extend(NamePart(part) for part in text.split("."))
    return found
