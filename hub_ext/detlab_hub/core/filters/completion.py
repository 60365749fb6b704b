"""What may come next in a filter that is being written, at the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from detlab_hub.core.filters.fields import (
    COLUMNS,
    HYPERPARAMETERS,
    METRIC,
    STATES,
    VALIDATION,
    Field,
    FieldKind,
    FilterTable,
    MetricSummary,
    field_of,
)
from detlab_hub.core.filters.grammar import KEYWORDS, FilterError, Token, parse_field, quoted, tokens

_TAKEN = frozenset({*HYPERPARAMETERS, METRIC, *MetricSummary, *(name for table in COLUMNS.values() for name in table)})
_WORD_SAFE = "_-/%:@+*."


class Place(StrEnum):
    """What is expected at the cursor."""

    FIELD = "field"
    OPERATOR = "operator"
    VALUE = "value"
    LIST = "list"
    NULL = "null"
    CONNECTIVE = "connective"


@dataclass(frozen=True)
class AtCursor:
    """Where the cursor stands.

    Attributes:
        place: What is expected there.
        prefix: The part of it that is written already, without quotation marks.
        begin: Where that part begins, from 0: what is chosen replaces the text from here to the cursor.
        field: Whose operator or value is expected, as it was written.
    """

    place: Place
    prefix: str
    begin: int
    field: str = ""


def at(text: str, cursor: int) -> AtCursor:
    """Return what is expected at a cursor, of which the text before it decides; that text may have mistakes."""
    before = text[: max(0, cursor)]
    read, open_at = _read(before)
    prefix, begin = "", len(before)
    if open_at is not None:
        prefix, begin = before[open_at + 1 :], open_at
    elif read and read[-1].end - 1 == len(before) and read[-1].kind in {"word", "quoted"}:
        touching = read.pop()
        prefix, begin = touching.text, touching.column - 1
        while read and read[-1].end == touching.column and _joins(read[-1], touching):
            touching = read.pop()
            prefix, begin = before[touching.column - 1 :], touching.column - 1
    place, field = _walk(read)
    return AtCursor(place, prefix, begin, field)


def _joins(first: Token, second: Token) -> bool:
    return (first.kind == "word" and first.text.endswith(".")) or (
        first.kind == "quoted" and second.text.startswith(".")
    )


def _read(text: str) -> tuple[list[Token], int | None]:
    """Return the tokens of a text as far as it can be read, and where a quotation mark begins that is not closed."""
    try:
        return tokens(text), None
    except FilterError as error:
        place = error.column - 1
        if text[place : place + 1] in {'"', "'"}:
            return _read(text[:place])[0], place
        return _read(text[:place] + " " + text[place + 1 :])


def _walk(read: Sequence[Token]) -> tuple[Place, str]:
    """Go through the tokens as the grammar does, over mistakes."""
    place, field, listed = Place.FIELD, "", False
    for token in read:
        match place:
            case Place.FIELD:
                if token.kind == "quoted" or (token.kind == "word" and token.keyword != "not"):
                    field = quoted(token.text) if token.kind == "quoted" else token.text
                    place = Place.OPERATOR
            case Place.OPERATOR:
                place, field = _after_operator(token, field)
            case Place.LIST:
                listed, place = True, Place.VALUE
            case Place.VALUE | Place.NULL:
                place = Place.CONNECTIVE
            case Place.CONNECTIVE if listed and token.text == ",":
                place = Place.VALUE
            case Place.CONNECTIVE if token.keyword in {"and", "or"}:
                place, listed = Place.FIELD, False
            case Place.CONNECTIVE if token.text in {")", "]"}:
                listed = False
            case Place.CONNECTIVE:
                pass
    return place, field


def _after_operator(token: Token, field: str) -> tuple[Place, str]:
    if token.keyword == "in":
        return Place.LIST, field
    if token.keyword == "not":
        return Place.OPERATOR, field
    if token.says("is"):
        return Place.NULL, field
    if token.kind == "operator" or token.says("contains") or token.text == "~":
        return Place.VALUE, field
    joined = token.text.startswith(".") or field.endswith(".")
    return Place.OPERATOR, field + (quoted(token.text) if token.kind == "quoted" else token.text) if joined else field


def field_at(table: FilterTable, written: str) -> Field | None:
    """Return the field whose operator or value is expected; None: it is none."""
    try:
        return field_of(table, parse_field(written))
    except FilterError:
        return None


def operators_of(field: Field | None) -> list[str]:
    """Return the operators that a field may be compared with."""
    kind = FieldKind.ANY if field is None else field.kind
    match kind:
        case FieldKind.NUMBER | FieldKind.TIME | FieldKind.DURATION:
            found = ["=", "!=", "<", "<=", ">", ">="]
        case FieldKind.STATE | FieldKind.FLAG:
            found = ["=", "!=", "in"]
        case FieldKind.ANY:
            found = ["=", "!=", "<", "<=", ">", ">=", "in", "contains"]
        case _:
            found = ["=", "!=", "in", "contains"]
    return [*found, "is null", "is not null"]


def values_of(table: FilterTable, field: Field | None) -> list[str]:
    """Return values that a field may be compared with, as far as no database knows them."""
    match None if field is None else field.kind:
        case FieldKind.STATE:
            return list(STATES[table])
        case FieldKind.FLAG:
            return ["true", "false"]
        case FieldKind.USER:
            return ["me"]
        case FieldKind.TIME:
            return ["today", "-1h", "-1d", "-7d", "-30d"]
        case FieldKind.DURATION:
            return ["10m", "1h", "1d"]
        case _:
            return []


def written(name: str) -> str:
    """Return a value or a part of a name as it is written in a filter: quoted only where it has to be."""
    plain = name and all(char.isalnum() or char in _WORD_SAFE for char in name)
    return name if plain and name.lower() not in KEYWORDS else quoted(name)


def written_metric(group: str, name: str) -> str:
    """Return a metric as it is written in a filter: its group only if it is none of validation."""
    part = _own(name)
    return part if group == VALIDATION else f"{_own(group)}.{part}"


def _own(name: str) -> str:
    """Return a name as it is written where words of the language could be meant as well."""
    return quoted(name) if "." in name or name.lower() in _TAKEN else written(name)


def written_path(parts: Sequence[str]) -> str:
    """Return a hyperparameter as it is written in a filter."""
    return ".".join(["hparams", *(quoted(part) if "." in part else written(part) for part in parts)])
