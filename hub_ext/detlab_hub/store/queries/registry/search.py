"""The search for versions: conditions of `core.registry.where` as SQL, and the best by a metric.

Facts (labels, metadata, hyperparameters) and metrics are rows of indexed tables, so that a condition is a look-up. Two
plans exist. A condition that few versions fulfil is evaluated first, and those few are sorted; else versions are read
in the order of the metric's index until there are enough. Which is right is not guessed from statistics: the first is
tried, up to a bound.
"""

from __future__ import annotations

import operator
from typing import Any

from sqlalchemy import ColumnElement, and_, false, not_, or_, select, true
from sqlalchemy.orm import Session

from detlab_hub.core.registry.where import AllOf, AnyOf, Compare, Condition, Not, QueryError, number_in
from detlab_hub.store.tables import ModelFact, ModelRow, VersionLabelRow, VersionMetric, VersionRow, clean_text

FEW = 2_000
"""Up to this many versions are found first, and then sorted."""
_TEXTS = {
    "name": ModelRow.name,
    "model": ModelRow.name,
    "owner": ModelRow.owner,
    "semver": VersionRow.semver,
    "format": VersionRow.format,
    "checkpoint": VersionRow.checkpoint_uuid,
}
_LABEL, _MOVING, _NUMBER = "label", "version.label", "version"


def condition_of(condition: Condition | None) -> ColumnElement[bool]:
    """Return a query's condition on `VersionRow` joined with `ModelRow`.

    Raises:
        QueryError: A field cannot be compared like this.
    """
    match condition:
        case None:
            return true()
        case AllOf(parts):
            return and_(*map(condition_of, parts))
        case AnyOf(parts):
            return or_(*map(condition_of, parts))
        case Not(part):
            return not_(condition_of(part))
        case Compare():
            return _compare(condition)


def best(
    s: Session,
    visible: ColumnElement[bool],
    condition: Condition | None,
    metric: str | None,
    *,
    smaller_is_better: bool,
    limit: int,
    after: int | None = None,
) -> list[VersionRow]:
    """Return versions that fulfil a condition, best first by a metric; without one, newest first.

    Args:
        s: A session.
        visible: The condition on models that the caller may see.
        condition: What they have to fulfil.
        metric: Those without it are left out; None: none is wanted.
        smaller_is_better: The order of the metric.
        limit: Most versions.
        after: How many to leave out at the head; without a metric, the id of the last version seen.

    Raises:
        QueryError: A field cannot be compared like this.
    """
    wanted = condition_of(condition)
    base = select(VersionRow.id).join(ModelRow, ModelRow.id == VersionRow.model_id).where(visible, wanted)
    if metric is None:
        rows = select(VersionRow).where(VersionRow.id.in_(base)).order_by(VersionRow.id.desc()).limit(limit)
        return list(s.scalars(rows if after is None else rows.where(VersionRow.id < after)))
    value = VersionMetric.value
    order = (value if smaller_is_better else value.desc(), VersionMetric.version_id.desc())
    of_metric = select(VersionMetric.version_id).where(VersionMetric.name == clean_text(metric))
    few = None if condition is None and _is_all(visible) else list(s.scalars(base.limit(FEW + 1)))
    if few is not None and len(few) <= FEW:
        query = of_metric.where(VersionMetric.version_id.in_(few))
    else:
        query = of_metric.join(VersionRow, VersionRow.id == VersionMetric.version_id)
        query = query.join(ModelRow, ModelRow.id == VersionRow.model_id).where(visible, wanted)
    ids = list(s.scalars(query.order_by(*order).limit(limit).offset(after or 0)))
    found = {row.id: row for row in s.scalars(select(VersionRow).where(VersionRow.id.in_(ids)))}
    return [found[one] for one in ids if one in found]


def _is_all(visible: ColumnElement[bool]) -> bool:
    return str(visible) == str(or_(false(), true()))


def _compare(one: Compare) -> ColumnElement[bool]:
    """Return what a comparison asks; `!=` holds also for what has no such value."""
    if one.operator == "!=":
        return not_(_compare(Compare(one.field, "=", one.values, one.column)))
    field = one.field
    if field == _NUMBER:
        numbers = [number for value in one.values if (number := number_in(value)) is not None]
        if len(numbers) < len(one.values):
            raise QueryError("`version` is a number; labels are `version.label`", one.column)
        return _ordered(VersionRow.version, one) if one.operator != "=" else VersionRow.version.in_(numbers)
    if field in {_LABEL, _MOVING, *_TEXTS} and one.operator != "=":
        raise QueryError(f"`{field}` is a text: use =, != or in", one.column)
    if field == _MOVING:
        held = select(VersionLabelRow.version_id).where(VersionLabelRow.label.in_(map(clean_text, one.values)))
        return VersionRow.id.in_(held)
    if field in _TEXTS:
        return _TEXTS[field].in_([clean_text(value) for value in one.values])
    if field.startswith("metric."):
        return _metric(field.removeprefix("metric."), one)
    if field == _LABEL or field.startswith(("hp.", "metadata.")):
        return _fact(field.removeprefix("metadata."), one)
    return or_(_fact(field, one), _metric(field, one))


def _metric(name: str, one: Compare) -> ColumnElement[bool]:
    numbers = [number for value in one.values if (number := number_in(value)) is not None]
    if not numbers:
        return false()
    value = VersionMetric.value
    wanted: ColumnElement[bool] = value.in_(numbers) if one.operator == "=" else _ordered(value, one)
    return VersionRow.id.in_(select(VersionMetric.version_id).where(VersionMetric.name == clean_text(name), wanted))


def _fact(name: str, one: Compare) -> ColumnElement[bool]:
    if one.operator == "=":
        numbers = [number for value in one.values if (number := number_in(value)) is not None]
        wanted: ColumnElement[bool] = ModelFact.text.in_([clean_text(value) for value in one.values])
        wanted = or_(wanted, ModelFact.number.in_(numbers)) if numbers else wanted
    else:
        wanted = _ordered(ModelFact.number, one)
    facts = and_(ModelFact.name == clean_text(name), wanted)
    of_model = VersionRow.model_id.in_(select(ModelFact.model_id).where(facts, ModelFact.version_id.is_(None)))
    if name == _LABEL:
        return of_model
    of_version = VersionRow.id.in_(select(ModelFact.version_id).where(facts, ModelFact.version_id.is_not(None)))
    return of_version if name.startswith("hp.") else or_(of_model, of_version)


def _ordered(column: Any, one: Compare) -> ColumnElement[bool]:
    number = one.number
    if number is None:
        raise QueryError(f"{one.operator} compares numbers", one.column)
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[one.operator]
    found: ColumnElement[bool] = compare(column, number)
    return found
