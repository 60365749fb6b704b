"""What can be asked of trials and of experiments: their columns, hyperparameters and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeAlias

from detlab.schemas.wire import ExperimentState, TrialState
from detlab_hub.core.filters.grammar import FieldName, FilterError, NamePart

VALIDATION = "validation"
HYPERPARAMETERS = ("hp", "hparams")
METRIC = "metric"
RUNNING, ENDED = "RUNNING", "ENDED"
"""States for people: some attempt runs on its slots; it is over, whatever has become of it."""


class FilterTable(StrEnum):
    """What is filtered."""

    TRIALS = "trials"
    EXPERIMENTS = "experiments"


class ValueKind(StrEnum):
    """What the values of a field are, and so what it may be compared with."""

    NUMBER = "number"
    TEXT = "text"
    USER = "user"
    LABELS = "labels"
    STATE = "state"
    TIME = "time"
    DURATION = "duration"
    FLAG = "true or false"
    ANY = "number, text, or true or false"


class Summary(StrEnum):
    """Which value of a metric is meant."""

    BEST = "best"
    """That at the best validation of its trial: reported at this step, or last before it; without one the last."""
    LAST = "last"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True)
class ColumnField:
    """A field that each row of a table has."""

    name: str
    kind: ValueKind
    about: str = ""


@dataclass(frozen=True)
class HyperparameterField:
    """A hyperparameter, by its path."""

    path: tuple[str, ...]
    kind = ValueKind.ANY


@dataclass(frozen=True)
class MetricField:
    """A metric.

    Attributes:
        readings: What it may mean, as (group, name): the first that there is. `a.b` is the metric b of the group a, or
            a validation metric of that name.
        summary: Which of its values.
    """

    readings: tuple[tuple[str, str], ...]
    summary: Summary = Summary.BEST
    kind = ValueKind.NUMBER


Field: TypeAlias = ColumnField | HyperparameterField | MetricField


def _of(*fields: tuple[str, ValueKind, str]) -> dict[str, ColumnField]:
    return {name: ColumnField(name, kind, about) for name, kind, about in fields}


_SHARED = (
    ("state", ValueKind.STATE, "where it stands"),
    ("owner", ValueKind.USER, "who submitted it; `me` is who asks"),
    ("label", ValueKind.LABELS, "a label of the experiment"),
    ("name", ValueKind.TEXT, "name of the experiment"),
    ("description", ValueKind.TEXT, "description of the experiment"),
    ("workspace", ValueKind.TEXT, "name of its workspace"),
    ("project", ValueKind.TEXT, "name of its project"),
    ("searcher", ValueKind.TEXT, "name of the search method"),
    ("pool", ValueKind.TEXT, "resource pool"),
    ("archived", ValueKind.FLAG, "whether the experiment is archived"),
    ("created", ValueKind.TIME, "when it was submitted, or made by its search"),
    ("started", ValueKind.TIME, "when it first started"),
    ("ended", ValueKind.TIME, "when it ended"),
    ("duration", ValueKind.DURATION, "from its start to its end, or until now"),
    ("progress", ValueKind.NUMBER, "how much of it is done, from 0 to 1"),
    ("best", ValueKind.NUMBER, "best value of the searcher metric"),
)
COLUMNS: Mapping[FilterTable, Mapping[str, ColumnField]] = {
    FilterTable.TRIALS: _of(
        ("id", ValueKind.NUMBER, "number of the trial"),
        ("trial", ValueKind.NUMBER, "the same"),
        ("experiment", ValueKind.NUMBER, "number of the experiment"),
        *_SHARED,
        ("steps", ValueKind.NUMBER, "steps completed"),
        ("restarts", ValueKind.NUMBER, "how often it was restarted"),
        ("seed", ValueKind.NUMBER, "its random seed"),
    ),
    FilterTable.EXPERIMENTS: _of(
        ("id", ValueKind.NUMBER, "number of the experiment"),
        ("experiment", ValueKind.NUMBER, "the same"),
        *_SHARED,
        ("searcher_metric", ValueKind.TEXT, "name of the metric that its search goes by"),
        ("priority", ValueKind.NUMBER, "priority in the queue"),
        ("trials", ValueKind.NUMBER, "how many trials it has"),
    ),
}
STATES: Mapping[FilterTable, tuple[str, ...]] = {
    FilterTable.TRIALS: (*(state.value for state in TrialState), RUNNING, ENDED),
    FilterTable.EXPERIMENTS: (*(state.value for state in ExperimentState), RUNNING, ENDED),
}


def field_of(table: FilterTable, name: FieldName) -> Field:
    """Return what a name means in a table.

    Raises:
        FilterError: It can mean nothing.
    """
    parts = name.parts
    if any(not part.text for part in parts):
        raise FilterError(f"a part of the name {name.text[:40]!r} is empty; quote a name that has dots", name.column)
    first = parts[0]
    if len(parts) == 1:
        if not first.quoted and (column := COLUMNS[table].get(first.text.lower())) is not None:
            return column
        return MetricField(((VALIDATION, first.text),))
    if not first.quoted and first.text.lower() in HYPERPARAMETERS:
        if any('"' in part.text for part in parts):
            raise FilterError("no hyperparameter is found by a name with a double quotation mark", name.column)
        return HyperparameterField(tuple(part.text for part in parts[1:]))
    return _metric(parts[1:] if not first.quoted and first.text.lower() == METRIC else parts)


def _metric(parts: tuple[NamePart, ...]) -> MetricField:
    last, summary = parts[-1], Summary.BEST
    if len(parts) > 1 and not last.quoted and last.text.lower() in list(Summary):
        summary, parts = Summary(last.text.lower()), parts[:-1]
    whole = ".".join(part.text for part in parts)
    if len(parts) == 1:
        return MetricField(((VALIDATION, whole),), summary)
    grouped = parts[0].text, ".".join(part.text for part in parts[1:])
    return MetricField((grouped, (VALIDATION, whole)), summary)


def alike(table: FilterTable, name: str) -> str | None:
    """Return the column that a misspelt name may have meant."""
    found = get_close_matches(name.lower(), COLUMNS[table], n=1, cutoff=0.75)
    return found[0] if found else None
