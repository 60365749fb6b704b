"""The search for versions: conditions of `core.filters` as SQL, and the best by a metric.

Facts (labels, metadata, hyperparameters) and metrics are rows of indexed tables, so that a condition is a look-up. What
suits a query depends on how many versions fulfil it, which no statistics tell. So the best `WINDOW` versions are looked
at first: that suffices if many fulfil it. Else a part of the condition that few fulfil is searched for, or what few
versions several parts have in common, and these few are looked at and sorted. Else all are looked at in their order.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, false, intersect, not_, or_, select, true, union_all
from sqlalchemy.orm import Session, aliased

from detlab.schemas.script_names import normal
from detlab_hub.core.filters.grammar import AllOf, AnyOf, Compare, Condition, FilterError, Not, number_in
from detlab_hub.store.queries.statements import chunks, text_holds
from detlab_hub.store.tables import ModelFact, ModelRow, VersionLabelRow, VersionMetric, VersionRow, clean_text

WINDOW = 1_500
"""Versions that are looked at in the order of the metric."""
FEW = 2_000
"""Up to this many versions are found by a part of the condition, and then sorted."""
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
        FilterError: A field cannot be compared like this.
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
        case Compare(operator="!="):
            return not_(_compare(replace(condition, operator="=")))
        case Compare(operator="is null"):
            return not_(_compare(condition))
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
) -> list[int]:
    """Return the ids of versions that fulfil a condition, best first by a metric; without one, newest first.

    One more than `limit` if there are more.

    Args:
        s: A session.
        visible: The condition on models that the caller may see.
        condition: What they have to fulfil.
        metric: Those without it are left out; None: none is wanted.
        smaller_is_better: The order of the metric.
        limit: Most versions.
        after: How many to leave out at the head; without a metric, the id of the last version seen.

    Raises:
        FilterError: A field cannot be compared like this.
    """
    wanted = condition_of(condition)
    fitting = select(VersionRow.id).join(ModelRow, ModelRow.id == VersionRow.model_id).where(visible, wanted)
    ranked: Select[Any]
    skipped, key = 0, VersionRow.id
    if metric is None:
        ranked = select(VersionRow.id).order_by(VersionRow.id.desc())
        ranked = ranked if after is None else ranked.where(VersionRow.id < after)
    else:
        value, key, skipped = VersionMetric.value, VersionMetric.version_id, after or 0
        ranked = select(key).where(VersionMetric.name == clean_text(metric))
        ranked = ranked.order_by(value if smaller_is_better else value.desc(), key.desc())
    wanted_ids = limit + 1  # one more tells whether there are more
    ids = _in_window(s, ranked, fitting, skipped, wanted_ids)
    if ids is None and (few := _few(s, visible, condition)) is not None:
        kept = [one for part in chunks(few) for one in s.scalars(fitting.where(VersionRow.id.in_(part)))]
        ids = list(s.scalars(ranked.where(key.in_(kept)).limit(wanted_ids).offset(skipped)))
    if ids is None:
        whole = ranked if metric is None else ranked.join(VersionRow, VersionRow.id == key)
        whole = whole.join(ModelRow, ModelRow.id == VersionRow.model_id).where(visible, wanted)
        ids = list(s.scalars(whole.limit(wanted_ids).offset(skipped)))
    return ids


def _in_window(s: Session, ranked: Select[Any], fitting: Select[Any], skipped: int, limit: int) -> list[int] | None:
    """Return the best that fit if they are among the first `WINDOW`; None: they may not be."""
    window = list(s.scalars(ranked.limit(WINDOW)))
    found: list[int] = []
    for part in chunks(window):
        some = set(s.scalars(fitting.where(VersionRow.id.in_(part))))
        found += [one for one in part if one in some]
        if len(found) >= skipped + limit:
            return found[skipped : skipped + limit]
    return found[skipped:] if len(window) < WINDOW else None


def _few(s: Session, visible: ColumnElement[bool], condition: Condition | None) -> list[int] | None:
    """Return the versions that a part of the condition leaves, or several parts together, if these are few."""
    parts = condition.parts if isinstance(condition, AllOf) else () if condition is None else (condition,)
    sources = [some for part in parts if (some := _sources_of(part)) is not None]
    if str(visible) != str(or_(false(), true())):
        sources.append([select(VersionRow.id).join(ModelRow, ModelRow.id == VersionRow.model_id).where(visible)])
    for some in sources:
        found: set[int] = set()
        for source in some:
            found.update(s.scalars(source.limit(FEW + 1)))
            if len(found) > FEW:
                break
        if len(found) <= FEW:
            return sorted(found)
    if len(sources) < 2:
        return None
    each = [select(union_all(*some).subquery().columns[0]) for some in sources]
    common = list(s.scalars(intersect(*each).limit(FEW + 1)))
    return sorted(common) if len(common) <= FEW else None


def _sources_of(condition: Condition) -> list[Select[Any]] | None:
    """Return queries that together find all versions of a condition, and maybe more; None: there are none such."""
    match condition:
        case AnyOf(parts):
            each = [_sources_of(part) for part in parts]
            return None if None in each else [source for some in each if some is not None for source in some]
        case AllOf(parts):
            return next((found for part in parts if (found := _sources_of(part)) is not None), None)
        case Compare(operator="!=" | "is null") | Not():
            return None
        case Compare():
            return _sources(condition)


def _compare(one: Compare) -> ColumnElement[bool]:
    """Return what a comparison asks of a version; `is null`: that it has the field."""
    column = _column_of(one)
    if column is not None:
        return column
    if one.field.text == _MOVING:
        return VersionRow.id.in_(_holders(one))
    asked: list[ColumnElement[bool]] = []
    name, of_model, of_version, of_metric = _looked_up(one)
    if of_model:
        models = select(ModelFact.model_id).where(_fact(name, one), ModelFact.version_id.is_(None))
        asked.append(VersionRow.model_id.in_(models))
    if of_version:
        having = select(ModelFact.id).where(_fact(name, one, of_one=True), ModelFact.version_id == VersionRow.id)
        asked.append(having.correlate(VersionRow).exists())
    if of_metric and _measurable(one):
        measure = aliased(VersionMetric)
        measured = select(measure.value).where(_metric(one, measure, of_one=True), measure.version_id == VersionRow.id)
        asked.append(measured.correlate(VersionRow).exists())
    return or_(false(), *asked)


def _sources(one: Compare) -> list[Select[Any]]:
    """Return queries that together find the versions of a comparison."""
    joined = select(VersionRow.id).join(ModelRow, ModelRow.id == VersionRow.model_id)
    column = _column_of(one)
    if column is not None:
        return [joined.where(column)]
    if one.field.text == _MOVING:
        return [_holders(one)]
    name, of_model, of_version, of_metric = _looked_up(one)
    facts = _fact(name, one)
    found: list[Select[Any]] = []
    if of_version:
        found.append(select(ModelFact.version_id).where(facts, ModelFact.version_id.is_not(None)))
    if of_metric and _measurable(one):
        found.append(select(VersionMetric.version_id).where(_metric(one, VersionMetric)))
    if of_model:
        models = select(ModelFact.model_id).where(facts, ModelFact.version_id.is_(None))
        found.append(joined.where(VersionRow.model_id.in_(models)))
    return found


def _holders(one: Compare) -> Select[Any]:
    """Return the versions that have one of some labels now."""
    held = select(VersionLabelRow.version_id)
    match one.operator:
        case "is null":
            return held
        case "contains":
            return held.where(text_holds(VersionLabelRow.label, one.values[0].text))
        case _:
            return held.where(VersionLabelRow.label.in_([normal(value) for value in _texts(one)]))


def _column_of(one: Compare) -> ColumnElement[bool] | None:
    """Return the condition on a column of models or versions; None: the field is none of them.

    Raises:
        FilterError: The field cannot be compared like this.
    """
    field = one.field.text
    if field == _NUMBER:
        return _of_number(one)
    if field in {_LABEL, _MOVING, *_TEXTS} and one.operator not in {"=", "contains", "is null"}:
        raise FilterError(f"`{field}` is a text: use =, !=, in or contains", one.column)
    if field in _TEXTS:
        text = _TEXTS[field]
        if one.operator == "is null":
            return text.is_not(None)
        if one.operator == "contains":
            return and_(text.is_not(None), text_holds(text, one.values[0].text))
        # What has no such text does not have this one: without the first part it would be neither in nor out.
        values = _texts(one)
        return and_(text.is_not(None), text.in_([*values, *map(normal, values)]))
    return None


def _of_number(one: Compare) -> ColumnElement[bool]:
    if one.operator == "is null":
        return true()
    numbers = _numbers(one)
    if len(numbers) < len(one.values) or one.operator == "contains":
        raise FilterError("`version` is a number; labels are `version.label`", one.column)
    return _ordered(VersionRow.version, one) if one.operator != "=" else VersionRow.version.in_(numbers)


def _looked_up(one: Compare) -> tuple[str, bool, bool, bool]:
    """Return the name of a field, and whether it may be a fact of the model, one of the version, and a metric."""
    field = one.field.text
    if field == _LABEL:
        return field, True, False, False
    if field.startswith(("hp.", "hparams.")):
        return f"hp.{field.partition('.')[2]}", False, True, False
    if field.startswith("metric."):
        return field, False, False, True
    return field.removeprefix("metadata."), True, True, not field.startswith("metadata.")


def _metric(one: Compare, table: Any, *, of_one: bool = False) -> ColumnElement[bool]:
    """Return the condition on a row of metrics; see `_fact`."""
    value = table.value + 0.0 if of_one else table.value
    name = table.name == clean_text(one.field.text.removeprefix("metric."))
    if one.operator == "is null":
        return name
    return and_(name, value.in_(_numbers(one)) if one.operator == "=" else _ordered(value, one))


def _fact(name: str, one: Compare, *, of_one: bool = False) -> ColumnElement[bool]:
    """Return the condition on a row of facts.

    Args:
        name: Of the fact.
        one: What is asked of it.
        of_one: The version is given: then the index of numbers, over which SQLite would run for each, is no help.
    """
    named = ModelFact.name == clean_text(name)
    wanted: ColumnElement[bool] = true()
    if one.operator == "=":
        wanted = ModelFact.text.in_(_texts(one))
        numbers = _numbers(one)
        wanted = or_(wanted, ModelFact.number.in_(numbers)) if numbers else wanted
    elif one.operator == "contains":
        wanted = text_holds(ModelFact.text, one.values[0].text)
    elif one.operator != "is null":
        wanted = _ordered(ModelFact.number + 0.0 if of_one else ModelFact.number, one)
    return and_(named, wanted)


def _texts(one: Compare) -> list[str]:
    return [clean_text(value.text) for value in one.values]


def _numbers(one: Compare) -> list[float]:
    return [number for value in one.values if (number := number_in(value.text)) is not None]


def _measurable(one: Compare) -> bool:
    """Whether a metric, which is a number, can fulfil the comparison."""
    return one.operator == "is null" or (one.operator != "contains" and bool(_numbers(one)))


def _ordered(column: Any, one: Compare) -> ColumnElement[bool]:
    number = number_in(one.values[0].text)
    if number is None:
        said = one.values[0]
        raise FilterError(f"{one.operator} compares numbers, and {said.text[:40]!r} is none", said.column)
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[one.operator]
    found: ColumnElement[bool] = compare(column, number)
    return found
