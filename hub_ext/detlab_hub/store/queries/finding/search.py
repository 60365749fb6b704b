"""Rows that fulfil a filter, page by page in an order, and the values of the columns that are wanted of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, case, cast, collate, false, func, or_, select, true, type_coerce
from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab_hub.core.filters.fields import (
    ColumnField,
    Field,
    FieldKind,
    FilterTable,
    HyperparameterField,
    MetricField,
    MetricSummary,
)
from detlab_hub.core.filters.grammar import AllOf
from detlab_hub.core.filters.meaning import Meaning, Number, fields
from detlab_hub.core.rights import Person
from detlab_hub.store import values
from detlab_hub.store.queries.finding.conditions import condition_of
from detlab_hub.store.queries.finding.expressions import (
    FilterSource,
    column_of,
    hyperparameter_of,
    metric_is_nan,
    metric_of,
    needs_trial,
    selected,
    source_of,
)
from detlab_hub.store.queries.rights import ways_to_experiments
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.queries.trial_order import MetricOrder
from detlab_hub.store.tables import ExperimentRow


@dataclass(frozen=True)
class SortKey:
    """A field to sort by; rows without a value come last, whatever the direction."""

    field: Field
    descending: bool = False


@dataclass(frozen=True)
class WantedRows:
    """Which rows, in which order.

    Attributes:
        table: Of what.
        meaning: The filter; None: all.
        sort: In order of importance; then, and without any, the newest first.
        more: Further conditions, on experiments.
        oldest_first: What is equal otherwise comes in the order of its making, not the newest first.
    """

    table: FilterTable
    meaning: Meaning | None = None
    sort: Sequence[SortKey] = ()
    more: Sequence[ColumnElement[bool]] = ()
    oldest_first: bool = False


def of_experiment(experiment_id: int, meaning: Meaning | None, order: MetricOrder | None) -> WantedRows:
    """Return which trials of one experiment are wanted, in their order of creation or in that of a metric.

    Those that have not reported the metric, or only NaN, are left out, as `trial_order.ids` leaves them out.
    """
    here = [ExperimentRow.id == experiment_id]
    if order is None:
        return WantedRows(FilterTable.TRIALS, meaning, (), here, oldest_first=True)
    metric = MetricField(((order.group, order.name),), MetricSummary.MAX if order.descending else MetricSummary.MIN)
    has_value = Number(metric, ">=", -math.inf)
    both = has_value if meaning is None else AllOf((has_value, meaning))
    return WantedRows(FilterTable.TRIALS, both, (SortKey(metric, order.descending),), here, oldest_first=True)


def page(s: Session, viewer: Person, wanted: WantedRows, limit: int, after: int | None, now: float) -> list[int]:
    """Return the ids of the rows of a page that a viewer may see.

    Args:
        s: A session.
        viewer: Who asks.
        wanted: Which rows, in which order.
        limit: Most of them.
        after: The last row of the page before, by its id.
        now: Seconds since the epoch.

    Raises:
        NotFound: The viewer sees no row `after`.
    """
    named = [*fields(wanted.meaning), *(key.field for key in wanted.sort)]
    source = source_of(s, wanted.table, named, now, viewer.name)
    orders = [order for key in wanted.sort for order in _orders(source, key)]
    shown = ways_to_experiments(viewer)
    mine = or_(false(), *shown)
    query = selected(source, source.key, of_trial=needs_trial(named)).where(mine)
    query = query.where(*wanted.more, condition_of(source, wanted.meaning))
    if after is not None:
        own = [order.value.label(f"value_{at}") for at, order in enumerate(orders)]
        place = selected(source, source.key, *own, of_trial=needs_trial(named))
        last = s.execute(place.where(mine, source.key == after)).one_or_none()
        if last is None:
            raise NotFound(
                f"there is no {wanted.table.value.removesuffix('s')} {after} after which a page could begin",
                hint="It is the id of the last row of the page before (its `next`); leave it out for the first page.",
            )
        query = query.where(_beyond(source, orders, last[1:], after, oldest_first=wanted.oldest_first))
    few = wanted.meaning is not None and not any(way is true() for way in shown)
    key = _not_walked(source.key) if few else source.key
    by_id = key.asc() if wanted.oldest_first else key.desc()
    query = query.order_by(*(order.sql for order in orders), by_id).limit(limit)
    return list(s.scalars(query))


def _not_walked(key: Any) -> ColumnElement[Any]:
    """Return an id by which the rows of a few are sorted: else a database would walk through those of all users."""
    sum_: ColumnElement[Any] = key + 0
    return sum_


# --- order


@dataclass(frozen=True)
class _Order:
    value: ColumnElement[Any]
    descending: bool

    @property
    def sql(self) -> ColumnElement[Any]:
        return (self.value.desc() if self.descending else self.value.asc()).nulls_last()


def _orders(source: FilterSource, key: SortKey) -> list[_Order]:
    match key.field:
        case MetricField():
            value = metric_of(source, key.field)
            found = [] if value is None else [value]
        case HyperparameterField():
            scalar = hyperparameter_of(source, key.field)
            found = [scalar.number, _bytewise(source, _decodable(source, scalar.text))]
        case ColumnField():
            column = column_of(source, key.field)
            texts = key.field.kind in {FieldKind.TEXT, FieldKind.USER, FieldKind.STATE, FieldKind.LABELS}
            found = [_bytewise(source, column) if texts else column]
    return [_Order(value, key.descending) for value in found]


def _decodable(source: FilterSource, text: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a text of hyperparameters that can be read back: SQLite may make half a character of an escape."""
    if source.postgres:
        return text
    return case((func.instr(type_coerce(source.trial.hparams, Text), r"\ud") == 0, text), else_=None)


def _bytewise(source: FilterSource, text: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a text that is sorted by its characters' numbers on both databases."""
    if not source.postgres:
        return text
    return collate(cast(text, Text), "C")


def _beyond(
    source: FilterSource, orders: Sequence[_Order], last: Sequence[Any], after: int, *, oldest_first: bool
) -> ColumnElement[bool]:
    """Return the condition on what comes after a row in the order: those without a value come last."""
    ways: list[ColumnElement[bool]] = []
    same: list[ColumnElement[bool]] = []
    for order, value in zip(orders, last, strict=True):
        if value is None:
            same.append(order.value.is_(None))
            continue
        further = order.value < value if order.descending else order.value > value
        ways.append(and_(*same, or_(further, order.value.is_(None))))
        same.append(order.value == value)
    ways.append(and_(*same, source.key > after if oldest_first else source.key < after))
    return or_(false(), *ways)


# --- columns


def columns_of(
    s: Session, table: FilterTable, keys: Sequence[int], wanted: Sequence[Field], now: float
) -> dict[int, list[Any]]:
    """Return the values of fields, by the row's id: None where it has none, NaN and infinities as they are.

    The rows must be those of a page, which is the caller's to see.
    """
    source = source_of(s, table, wanted, now)
    columns: list[ColumnElement[Any]] = [source.trial.hparams] if any(map(_is_hyperparameter, wanted)) else []
    readers = []
    for field in wanted:
        mine = _values(source, field)
        begin = 0 if _is_hyperparameter(field) else len(columns)  # these are read once, however many are wanted
        readers.append((field, begin, begin + (1 if _is_hyperparameter(field) else len(mine))))
        columns += mine
    found: dict[int, list[Any]] = {}
    named = [column.label(f"value_{at}") for at, column in enumerate(columns)]  # the key may be among them again
    for part in chunks(keys):
        query = selected(source, source.key, *named, of_trial=needs_trial(wanted)).where(source.key.in_(part))
        for key, *row in s.execute(query):
            found[key] = [_read(field, row[begin:end]) for field, begin, end in readers]
    return found


@dataclass(frozen=True)
class TrialParent:
    """What a table of trials says of their experiment; its config may be a megabyte, and is not read."""

    name: str
    owner: str
    labels: list[str]
    metric: str


def parents_of(s: Session, experiment_ids: Collection[int]) -> dict[int, TrialParent]:
    """Return experiments as tables of trials show them, by their ids."""
    found: dict[int, TrialParent] = {}
    columns = ExperimentRow.id, ExperimentRow.name, ExperimentRow.owner, ExperimentRow.labels, ExperimentRow.metric
    for part in chunks(sorted(experiment_ids)):
        for key, name, owner, labels, metric in s.execute(select(*columns).where(ExperimentRow.id.in_(part))):
            found[key] = TrialParent(name, owner, labels, metric)
    return found


def _is_hyperparameter(field: Field) -> bool:
    return isinstance(field, HyperparameterField)


def _values(source: FilterSource, field: Field) -> list[ColumnElement[Any]]:
    match field:
        case MetricField():
            value, nan = metric_of(source, field), metric_is_nan(source, field)
            return [] if value is None or nan is None else [value, nan]
        case HyperparameterField():
            return []
        case ColumnField():
            return [column_of(source, field)]


def _read(field: Field, row: Sequence[Any]) -> Any:
    match field:
        case MetricField():
            if not row:
                return None
            return values.join(None, values.NAN) if row[0] is None and row[1] else row[0]
        case HyperparameterField():
            return _at(row[0], field.path)
        case ColumnField(kind=FieldKind.FLAG):
            return bool(row[0])
        case ColumnField():
            return row[0]


def _at(hparams: Any, path: Sequence[str]) -> Any:
    """Return a hyperparameter by its path."""
    for part in path:
        if not isinstance(hparams, dict):
            return None
        hparams = hparams.get(part)
    return hparams
