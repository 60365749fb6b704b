"""What a filter means, as a condition in SQL that is true or false for each row, never NULL."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, and_, false, func, not_, or_, true, type_coerce
from sqlalchemy.types import Text

from detlab_hub.core.filters.fields import ColumnField, Field, FieldKind, HyperparameterField, MetricField
from detlab_hub.core.filters.grammar import AllOf, AnyOf, Not
from detlab_hub.core.filters.meaning import HasValue, IsNaN, Meaning, Number, NumberIn, Runs, TextIn, TextWith, Truth
from detlab_hub.store.queries.finding.expressions import (
    FilterSource,
    column_of,
    has_label,
    hyperparameter_of,
    label_holds,
    metric_is_nan,
    metric_is_there,
    metric_of,
    number_value,
    runs,
    workspace_reference,
)
from detlab_hub.store.queries.statements import text_holds
from detlab_hub.store.queries.workspaces import key_of
from detlab_hub.store.tables import ExperimentRow, clean_text

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def condition_of(source: FilterSource, meaning: Meaning | None) -> ColumnElement[bool]:  # noqa: C901 - a case for each
    """Return the condition on the rows that fulfil a filter."""
    match meaning:
        case None:
            return true()
        case AllOf(parts):
            return and_(*(condition_of(source, part) for part in parts))
        case AnyOf(parts):
            return or_(*(condition_of(source, part) for part in parts))
        case Not(part):
            return not_(condition_of(source, part))
        case Number():
            return _number(source, meaning)
        case NumberIn(field, values):
            left = _left(source, field)
            return false() if left is None else _sure(left.in_([number_value(source, field, one) for one in values]))
        case IsNaN(field):
            return _or_false(metric_is_nan(source, field))
        case TextIn(field, texts):
            return _text_in(source, field, texts)
        case TextWith(field, text):
            return _text_with(source, field, text)
        case Truth(field, value):
            return _truth(source, field, value)
        case Runs():
            return runs(source)
        case HasValue(field):
            return _present(source, field)


def _or_false(found: ColumnElement[bool] | None) -> ColumnElement[bool]:
    return false() if found is None else found


def _sure(found: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return a comparison that is false where one side is NULL: what has no value does not fulfil it."""
    sure: ColumnElement[bool] = func.coalesce(found, false())
    return sure


def _number(source: FilterSource, one: Number) -> ColumnElement[bool]:
    left = _left(source, one.field, one)
    if left is None:
        return false()
    return _sure(_COMPARE[one.operator](left, number_value(source, one.field, one.value)))


def _left(source: FilterSource, field: Field, bound: Number | None = None) -> ColumnElement[Any] | None:
    """Return the number that a field is; None: it is of no row."""
    match field:
        case MetricField():
            return metric_of(source, field, bound)
        case HyperparameterField():
            return hyperparameter_of(source, field).number
        case ColumnField():
            return column_of(source, field)


def _text_in(source: FilterSource, field: Field, texts: tuple[str, ...]) -> ColumnElement[bool]:
    wanted = [clean_text(text) for text in texts]
    match field:
        case ColumnField(kind=FieldKind.LABELS):
            return or_(*(has_label(label) for label in wanted))
        case ColumnField(name="workspace"):
            return _sure(_in_workspace(source, column_of(source, field), wanted))
        case ColumnField():
            return _sure(column_of(source, field).in_(wanted))
        case HyperparameterField():
            return _sure(hyperparameter_of(source, field).text.in_(wanted))
        case MetricField():
            return false()


def _in_workspace(source: FilterSource, name: ColumnElement[Any], wanted: list[str]) -> ColumnElement[bool]:
    """Return that a workspace is meant by some texts: as in commands a name alone is the asker's own one.

    Of who has made none of that name it is all of that name that they may see.
    """
    keys = {path.partition("/")[2]: place_id for path, place_id in source.own_workspaces.items()}
    mine = [keys[key_of(text)] for text in wanted if key_of(text) in keys]
    others = [text for text in wanted if key_of(text) not in keys]
    ways = [ExperimentRow.workspace_id.in_(mine)] if mine else []
    ways += [name.in_(others)] if others else []
    return or_(*ways, workspace_reference().in_([text for text in wanted if "/" in text]))


def _text_with(source: FilterSource, field: Field, text: str) -> ColumnElement[bool]:
    match field:
        case ColumnField(kind=FieldKind.LABELS):
            return label_holds(source, text)
        case ColumnField():
            return _sure(text_holds(column_of(source, field), text))
        case HyperparameterField():
            return _sure(text_holds(hyperparameter_of(source, field).text, text))
        case MetricField():
            return false()


def _truth(source: FilterSource, field: Field, value: bool) -> ColumnElement[bool]:
    match field:
        case ColumnField():
            column = column_of(source, field)
            return column if value else not_(column)
        case HyperparameterField():
            return hyperparameter_of(source, field).is_truth(value)
        case MetricField():
            return false()


def _present(source: FilterSource, field: Field) -> ColumnElement[bool]:
    match field:
        case ColumnField(kind=FieldKind.LABELS):
            return type_coerce(ExperimentRow.labels, Text) != "[]"
        case ColumnField():
            return column_of(source, field).is_not(None)
        case HyperparameterField():
            return hyperparameter_of(source, field).is_there
        case MetricField():
            return _or_false(metric_is_there(source, field))
