"""Filters, sort keys and columns of a request, read; errors say where, with a caret."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from detlab.errors import ConfigError, Problem
from detlab.schemas.wire.finding import FoundColumn
from detlab.schemas.wire.saved_views import MOST_COLUMNS, MOST_SORT_KEYS
from detlab_hub.core.filters.fields import Field, FieldKind, FilterTable, field_of
from detlab_hub.core.filters.grammar import FilterError, parse_field, pointed
from detlab_hub.core.filters.meaning import Asker, Meaning, read
from detlab_hub.store.queries.finding.search import SortKey
from detlab_hub.store.tables import clean_text

T = TypeVar("T")
SECONDS = 10.0
"""A filter that takes longer is given up."""
TOO_SLOW = "Narrow it down: by owner, experiment, or a time such as created > -30d."


@dataclass(frozen=True)
class ReadRequest:
    """What was asked for.

    Attributes:
        table: Of what.
        meaning: The filter; None: there is none.
        sort: In order of importance.
        fields: Of the columns.
        columns: Their names and kinds.
    """

    table: FilterTable
    meaning: Meaning | None
    sort: list[SortKey]
    fields: list[Field]
    columns: list[FoundColumn]


def read_request(
    table: FilterTable, text: str, sort: Sequence[str], columns: Sequence[str], asker: Asker
) -> ReadRequest:
    """Read what was asked for.

    Raises:
        ConfigError: Something of it cannot be read: each mistake, with its place.
    """
    problems: list[tuple[Problem, str]] = []
    meaning = _read("filter", text, partial(read, text, table, asker), problems)
    _check_number("sort", sort, MOST_SORT_KEYS, problems)
    _check_number("column", columns, MOST_COLUMNS, problems)
    keys = [_read(f"sort.{at}", one, partial(_key, table, one), problems) for at, one in enumerate(sort)]
    fields = [_read(f"column.{at}", one, partial(_field, table, one), problems) for at, one in enumerate(columns)]
    if problems:
        shown = "\n".join(text for _, text in problems[:MOST_SORT_KEYS])
        raise ConfigError([problem for problem, _ in problems], shown)
    known = [field for field in fields if field is not None]
    named = [FoundColumn(name=clean_text(name), kind=_kind(field)) for name, field in zip(columns, known, strict=True)]
    return ReadRequest(table, meaning, [key for key in keys if key is not None], known, named)


def _kind(field: Field) -> str:
    return "any" if field.kind is FieldKind.ANY else field.kind.value


def _field(table: FilterTable, text: str) -> Field:
    return field_of(table, parse_field(text))


def _key(table: FilterTable, text: str) -> SortKey:
    descending = text.startswith("-")
    return SortKey(_field(table, text.removeprefix("-")), descending)


def _check_number(what: str, given: Sequence[str], most: int, problems: list[tuple[Problem, str]]) -> None:
    if len(given) > most:
        message = f"{len(given)} of them are given; {most} is the most"
        problems.append((Problem(what, message), f"{what}: {message}"))


def _read(what: str, text: str, make: Callable[[], T], problems: list[tuple[Problem, str]]) -> T | None:
    try:
        return make()
    except FilterError as error:
        problem = Problem(what, f"column {error.column}: {error.message}")
        name = "the filter" if what == "filter" else f"the name of {what}"
        said = f"{name} cannot be read at column {error.column}: {error.message}"
        problems.append((problem, f"{said}\n{pointed(text, error.column)}"))
        return None
