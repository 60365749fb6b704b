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


class FieldKind(StrEnum):
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


class MetricSummary(StrEnum):
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
    kind: FieldKind
    about: str = ""


@dataclass(frozen=True)
class HyperparameterField:
    """A hyperparameter, by its path."""

    path: tuple[str, ...]
    kind = FieldKind.ANY


@dataclass(frozen=True)
class MetricField:
    """A metric.

    Attributes:
        readings: What it may mean, as (group, name): the first that there is. `a.b` is the metric b of the group a, or
            a validation metric of that name.
        summary: Which of its values.
    """

    readings: tuple[tuple[str, str], ...]
    summary: MetricSummary = MetricSummary.BEST
    kind = FieldKind.NUMBER


Field: TypeAlias = ColumnField | HyperparameterField | MetricField


def _of(*fields: tuple[str, FieldKind, str]) -> dict[str, ColumnField]:
    return {name: ColumnField(name, kind, about) for name, kind, about in fields}


_SHARED = (
    ("state", FieldKind.STATE, "where it stands"),
    ("owner", FieldKind.USER, "who submitted it; `me` is who asks"),
    ("label", FieldKind.LABELS, "a label of the experiment"),
    ("name", FieldKind.TEXT, "name of the experiment"),
    ("description", FieldKind.TEXT, "description of the experiment"),
    (
        "workspace",
        FieldKind.TEXT,
        "its workspace: OWNER/NAME, or a name alone, which is yours if you have made one of that name",
    ),
    ("project", FieldKind.TEXT, "name of its project"),
    ("searcher", FieldKind.TEXT, "name of the search method"),
    ("pool", FieldKind.TEXT, "resource pool"),
    ("archived", FieldKind.FLAG, "whether the experiment is archived"),
    ("created", FieldKind.TIME, "when it was submitted, or made by its search"),
    ("started", FieldKind.TIME, "when it first started"),
    ("ended", FieldKind.TIME, "when it ended"),
    (
        "duration",
        FieldKind.DURATION,
        "from its start to its end, or until now, without pauses; of a trial also without the queue",
    ),
    ("progress", FieldKind.NUMBER, "how much of it is done, from 0 to 1"),
    ("best", FieldKind.NUMBER, "best value of the searcher metric"),
)
COLUMNS: Mapping[FilterTable, Mapping[str, ColumnField]] = {
    FilterTable.TRIALS: _of(
        ("id", FieldKind.NUMBER, "its number"),
        ("trial", FieldKind.NUMBER, "number of the trial"),
        ("experiment", FieldKind.NUMBER, "number of the experiment"),
        *_SHARED,
        ("steps", FieldKind.NUMBER, "steps completed"),
        ("restarts", FieldKind.NUMBER, "how often it was restarted"),
        ("seed", FieldKind.NUMBER, "its random seed"),
    ),
    FilterTable.EXPERIMENTS: _of(
        ("id", FieldKind.NUMBER, "its number"),
        ("experiment", FieldKind.NUMBER, "number of the experiment"),
        *_SHARED,
        ("searcher_metric", FieldKind.TEXT, "name of the metric that its search goes by"),
        ("priority", FieldKind.NUMBER, "priority in the queue"),
        ("trials", FieldKind.NUMBER, "how many trials it has"),
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
    last, summary = parts[-1], MetricSummary.BEST
    if len(parts) > 1 and not last.quoted and last.text.lower() in list(MetricSummary):
        summary, parts = MetricSummary(last.text.lower()), parts[:-1]
    whole = ".".join(part.text for part in parts)
    if len(parts) == 1:
        return MetricField(((VALIDATION, whole),), summary)
    grouped = parts[0].text, ".".join(part.text for part in parts[1:])
    return MetricField((grouped, (VALIDATION, whole)), summary)


def alike(table: FilterTable, name: str) -> str | None:
    """Return the column that a misspelt name may have meant."""
    found = get_close_matches(name.lower(), COLUMNS[table], n=1, cutoff=0.75)
    return found[0] if found else None
