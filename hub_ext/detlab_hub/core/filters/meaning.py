"""What a filter means in a table: its comparisons with typed fields and values, ready to be made SQL of.

A comparison with what a row does not have is false, and `!=` and `not` are the plain opposite: so `label != paper`
holds for what has no label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias
from unicodedata import normalize

from detlab_hub.core.filters.fields import (
    ENDED,
    STATES,
    ColumnField,
    Field,
    FieldKind,
    FilterTable,
    MetricField,
    alike,
    field_of,
)
from detlab_hub.core.filters.grammar import AllOf, AnyOf, Compare, Condition, FilterError, Not, ValueText, parse

Ordering: TypeAlias = Literal["=", "<", "<=", ">", ">="]
DAY = 86_400.0
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY, "w": 7 * DAY}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?[smhdw])+")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SHOWN = 40
_SAID = {
    "failed": "ERROR",
    "failing": "STOPPING_ERROR",
    "finishing": "STOPPING_COMPLETED",
    "canceling": "STOPPING_CANCELED",
    "being killed": "STOPPING_KILLED",
}
"""States in the words of the pages, where these are others."""
_ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETED")


@dataclass(frozen=True)
class Number:
    """A field that is a number compared with one, which may be infinite."""

    field: Field
    operator: Ordering
    value: float


@dataclass(frozen=True)
class NumberIn:
    """A field that is one of some numbers."""

    field: Field
    values: tuple[float, ...]


@dataclass(frozen=True)
class IsNaN:
    """A metric whose value is NaN."""

    field: MetricField


@dataclass(frozen=True)
class TextIn:
    """A field that is one of some texts; of labels: that has one of them."""

    field: Field
    texts: tuple[str, ...]


@dataclass(frozen=True)
class TextWith:
    """A field that is a text which holds another one, whatever the case of ASCII letters."""

    field: Field
    text: str


@dataclass(frozen=True)
class Truth:
    """A field that is true, or one that is false."""

    field: Field
    value: bool


@dataclass(frozen=True)
class Runs:
    """That some attempt runs on its slots."""


@dataclass(frozen=True)
class HasValue:
    """A field that has a value; NaN is one."""

    field: Field


Leaf: TypeAlias = Number | NumberIn | IsNaN | TextIn | TextWith | Truth | Runs | HasValue
Meaning: TypeAlias = "Leaf | Not[Meaning] | AllOf[Meaning] | AnyOf[Meaning]"


@dataclass(frozen=True)
class Asker:
    """Who filters, and when.

    Attributes:
        user: Whom `me` means.
        now: Seconds since the epoch, from which ages count.
    """

    user: str
    now: float


def read(text: str, table: FilterTable, asker: Asker) -> Meaning | None:
    """Return what a filter means; None for an empty one.

    Raises:
        FilterError: It cannot be read, or compares what cannot be compared.
    """
    condition = parse(text)
    return None if condition is None else _meaning(condition, table, asker)


def leaves(meaning: Meaning | None) -> Iterator[Leaf]:
    """Return all comparisons of a filter."""
    match meaning:
        case None:
            return
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from leaves(part)
        case Not(part):
            yield from leaves(part)
        case _:
            yield meaning


def fields(meaning: Meaning | None) -> list[Field]:
    """Return the fields that a filter names."""
    return [leaf.field for leaf in leaves(meaning) if not isinstance(leaf, Runs)]


def _meaning(condition: Condition, table: FilterTable, asker: Asker) -> Meaning:
    match condition:
        case AllOf(parts):
            return AllOf(tuple(_meaning(part, table, asker) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_meaning(part, table, asker) for part in parts))
        case Not(part):
            return Not(_meaning(part, table, asker))
        case Compare(operator="!=", field=field, values=values):
            return Not(_compare(Compare(field, "=", values), table, asker))
        case Compare():
            return _compare(condition, table, asker)


def _compare(one: Compare, table: FilterTable, asker: Asker) -> Meaning:
    field = field_of(table, one.field)
    if one.operator == "is null":
        return Not(HasValue(field))
    if one.operator == "contains":
        return _contains(one, field, table)
    each = [_with_value(one, value, field, table, asker) for value in one.values]
    return each[0] if len(each) == 1 else _any_of(field, each)


def _any_of(field: Field, each: Sequence[Meaning]) -> Meaning:
    """Return that one of some is so: what is equal to any of many numbers or texts is asked once."""
    flat = [leaf for one in each for leaf in (one.parts if isinstance(one, AnyOf) else (one,))]
    numbers = [one.value for one in flat if isinstance(one, Number) and one.operator == "="]
    texts = [text for one in flat if isinstance(one, TextIn) for text in one.texts]
    equal = [one for one in flat if isinstance(one, TextIn) or (isinstance(one, Number) and one.operator == "=")]
    found: list[Meaning] = [one for one in flat if one not in equal]
    found += [NumberIn(field, tuple(numbers))] if numbers else []
    found += [TextIn(field, tuple(dict.fromkeys(texts)))] if texts else []
    return found[0] if len(found) == 1 else AnyOf(tuple(found))


def _contains(one: Compare, field: Field, table: FilterTable) -> Meaning:
    if field.kind in {FieldKind.TEXT, FieldKind.USER, FieldKind.LABELS, FieldKind.ANY}:
        parts = tuple(TextWith(field, text) for text in _forms(one.values[0].text))
        return parts[0] if len(parts) == 1 else AnyOf(parts)
    raise FilterError(f"{_named(one, field)}: contains is for texts{_meant(one, field, table)}", one.column)


def _with_value(one: Compare, value: ValueText, field: Field, table: FilterTable, asker: Asker) -> Meaning:
    """Return the comparison with one value."""
    operator, kind = one.operator, field.kind
    if operator != "=" and kind in {FieldKind.TEXT, FieldKind.USER, FieldKind.LABELS, FieldKind.STATE, FieldKind.FLAG}:
        raise FilterError(f"`{one.field.text}` is a {_WORDS[kind]}: use =, !=, in{_ALSO.get(kind, '')}", one.column)
    match kind:
        case FieldKind.NUMBER:
            return _number(one, value, field, table)
        case FieldKind.ANY:
            return _any(one, value, field)
        case FieldKind.TIME:
            return _time(one, value, field, asker)
        case FieldKind.DURATION:
            return Number(field, _ordering(one), _duration(value))
        case FieldKind.STATE:
            return _state(value, field, table)
        case FieldKind.FLAG:
            return Truth(field, _flag(one, value))
        case FieldKind.USER if value.text == "me" and not value.quoted:
            return TextIn(field, (asker.user,))
        case _:
            return TextIn(field, _forms(value.text))


def _forms(text: str) -> tuple[str, ...]:
    """Return a text in the forms of Unicode in which keyboards and programs write it: nobody sees the difference."""
    return tuple(dict.fromkeys((text, normalize("NFC", text), normalize("NFD", text))))


_WORDS = {FieldKind.FLAG: "yes or no", FieldKind.LABELS: "text"}
_WORDS |= {kind: kind.value for kind in (FieldKind.TEXT, FieldKind.STATE)} | {FieldKind.USER: "text"}
_ALSO = dict.fromkeys((FieldKind.TEXT, FieldKind.USER, FieldKind.LABELS), " or contains")


def _ordering(one: Compare) -> Ordering:
    if one.operator in {"=", "<", "<=", ">", ">="}:
        return one.operator
    raise AssertionError(one.operator)


def _named(one: Compare, field: Field) -> str:
    """Say what a field is that was compared with something else."""
    shown = one.field.text[:_SHOWN]
    if isinstance(field, MetricField):
        return f"{shown!r} is no field, and a metric is a number"
    return f"`{shown}` is a {field.kind.value}"


def _meant(one: Compare, field: Field, table: FilterTable) -> str:
    """Ask whether another field was meant."""
    other = alike(table, one.field.text) if isinstance(field, MetricField) else None
    return f"; did you mean `{other}`?" if other else ""


def _number(one: Compare, value: ValueText, field: Field, table: FilterTable) -> Meaning:
    number = _float(value)
    if number is None:
        what = f"{one.operator} compares numbers, and {value.text[:_SHOWN]!r} is none"
        message = f"{_named(one, field)}; {what}{_meant(one, field, table)}"
        raise FilterError(message, value.column)
    if math.isnan(number):
        if one.operator != "=" or not isinstance(field, MetricField):
            raise FilterError("nan is neither less nor greater than a number: use = or !=, with a metric", value.column)
        return IsNaN(field)
    return Number(field, _ordering(one), number)


def _any(one: Compare, value: ValueText, field: Field) -> Meaning:
    """Return the comparison of a hyperparameter, which may be of any kind: a quoted value is a text."""
    number = None if value.quoted else _float(value)
    if one.operator != "=":
        if number is None or math.isnan(number):
            message = f"{one.operator} compares numbers, and {value.text[:_SHOWN]!r} is none"
            raise FilterError(message, value.column)
        return Number(field, _ordering(one), number)
    text = TextIn(field, _forms(value.text))
    if not value.quoted and value.text.lower() in {"true", "false"}:
        return AnyOf((Truth(field, value.text.lower() == "true"), text))
    return text if number is None or math.isnan(number) else AnyOf((Number(field, "=", number), text))


def _float(value: ValueText) -> float | None:
    """Return the number that a value is, NaN and infinities too.

    Raises:
        FilterError: It is beyond every number.
    """
    try:
        number = float(value.text)
    except ValueError:
        return None
    if math.isinf(number) and value.text.strip().lstrip("+-").lower() not in {"inf", "infinity"}:
        raise FilterError(f"{value.text[:_SHOWN]!r} is beyond what a number can be; inf is infinity", value.column)
    return number


def _state(value: ValueText, field: Field, table: FilterTable) -> Meaning:
    state = _SAID.get(value.text.lower(), value.text.upper())
    if state not in STATES[table]:
        names = ", ".join(STATES[table])
        raise FilterError(f"{value.text[:_SHOWN]!r} is no state; they are {names}", value.column)
    if state == "RUNNING":
        return Runs()
    return TextIn(field, _ENDED if state == ENDED else (state,))


def _flag(one: Compare, value: ValueText) -> bool:
    if value.text.lower() in {"true", "yes"}:
        return True
    if value.text.lower() in {"false", "no"}:
        return False
    raise FilterError(f"`{one.field.text}` is true or false, not {value.text[:_SHOWN]!r}", value.column)


# --- times


def _duration(value: ValueText) -> float:
    seconds = _seconds(value.text)
    if seconds is None:
        raise FilterError(
            f"{value.text[:_SHOWN]!r} is no duration: write 90s, 15m, 1h30m, 2d or 1w; a plain number is seconds",
            value.column,
        )
    return seconds


def _seconds(text: str) -> float | None:
    text = text.lower()
    if _DURATION.fullmatch(text):
        return sum(float(number) * SECONDS[unit] for number, unit in _SPAN.findall(text))
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _time(one: Compare, value: ValueText, field: Field, asker: Asker) -> Meaning:
    """Return the comparison with a moment, or with a whole day: after it, in it, before it."""
    begin, end = _moment(value, asker.now)
    match one.operator:
        case "=" if end > begin:
            return AllOf((Number(field, ">=", begin), Number(field, "<", end)))
        case "<=" if end > begin:
            return Number(field, "<", end)
        case ">" if end > begin:
            return Number(field, ">=", end)
        case _:
            return Number(field, _ordering(one), begin)


def _moment(value: ValueText, now: float) -> tuple[float, float]:
    """Return the begin and the end of a time: of a day, or of a moment, for which both are the same."""
    text = value.text.strip()
    word = text.lower()
    if word == "now":
        return now, now
    if word in {"today", "yesterday"}:
        begin = now - now % DAY - (DAY if word == "yesterday" else 0.0)
        return begin, begin + DAY
    age = word.removeprefix("now")
    if age[:1] == "-" and _DURATION.fullmatch(age[1:]):
        moment = now - (_seconds(age[1:]) or 0.0)
        return moment, moment
    if _DATE.match(text):
        try:
            read = datetime.fromisoformat(text)
        except ValueError as error:
            raise FilterError(f"{text[:_SHOWN]!r} is no date: {error}", value.column) from error
        zoned = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
        begin = (zoned - _EPOCH).total_seconds()
        return begin, begin + (DAY if len(text) == len("2026-11-29") else 0.0)
    seconds = None if age != word or _DURATION.fullmatch(word) else _seconds(text)
    if seconds is None:
        raise FilterError(
            f"{value.text[:_SHOWN]!r} is no time: write 2026-11-29, '2026-11-29 18:00', today, or an age such as -7d",
            value.column,
        )
    return seconds, seconds


_EPOCH = datetime.fromtimestamp(0, UTC)


def is_about_archived(meaning: Meaning | None) -> bool:
    """Whether a filter says itself which archived experiments it wants."""
    return any(isinstance(field, ColumnField) and field.name == "archived" for field in fields(meaning))
