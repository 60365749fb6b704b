"""The search for runs: clauses as SQL, over tracked runs and over trials, in one order.

A source says how a field is found in its rows; two of them are asked alike, and their first rows are merged.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Boolean, ColumnElement, Text, and_, case, cast, false, func, literal, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.functions import FunctionElement

from detlab.schemas.wire import TrialState
from detlab_hub.core.filters.fields import FilterTable, HyperparameterField
from detlab_hub.core.tracking import keys
from detlab_hub.core.tracking.search import Clause, FieldOf, RunOrder
from detlab_hub.store import values
from detlab_hub.store.queries.finding.expressions import FilterSource, hyperparameter_of
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.queries.tracking.runs import PARAM, TAG
from detlab_hub.store.tables import (
    ExperimentRow,
    MetricName,
    MetricSeries,
    TrackedRunRow,
    TrackedSeries,
    TrackedValue,
    TrialRow,
    clean_text,
)

_COMPARE: Mapping[str, Any] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
STATUS_OF: Mapping[str, str] = {
    TrialState.ACTIVE: "RUNNING",
    TrialState.PAUSED: "SCHEDULED",
    TrialState.COMPLETED: "FINISHED",
    TrialState.CANCELED: "KILLED",
    TrialState.ERROR: "FAILED",
}
"""State of a trial -> status of a run; RUNNING for all others."""


class TextLike(FunctionElement[bool]):
    """LIKE that minds the case on both databases; the pattern comes as LIKE has it and as GLOB has it."""

    type = Boolean()
    inherit_cache = True
    name = "text_like"


@compiles(TextLike, "sqlite")
def _like_on_sqlite(element: TextLike, compiler: Any, **kw: Any) -> str:
    column, _, pattern = element.clauses
    return f"({compiler.process(column, **kw)} GLOB {compiler.process(pattern, **kw)})"


@compiles(TextLike, "postgresql")
def _like_on_postgresql(element: TextLike, compiler: Any, **kw: Any) -> str:
    column, pattern, _ = element.clauses
    return f"({compiler.process(column, **kw)} LIKE {compiler.process(pattern, **kw)} ESCAPE '')"


def text_matches(column: Any, op: str, given: Sequence[Any]) -> ColumnElement[bool]:
    """Return the condition of a comparison of texts; one without a value fulfils only `IS NULL`."""
    if op.endswith("NULL"):
        return column.is_not(None) if "NOT" in op else column.is_(None)
    texts = [clean_text(str(one)) for one in given]
    match op:
        case "LIKE":
            glob = "".join(
                {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}.get(char, char) for char in texts[0]
            )
            found: Any = TextLike(column, literal(texts[0], Text()), literal(glob, Text()))
        case "ILIKE":
            found = func.lower(column).like(texts[0].lower())
        case "IN":
            found = column.in_(texts)
        case "NOT IN":
            found = column.not_in(texts)
        case _:
            found = _COMPARE[op](column, texts[0])
    return func.coalesce(found, false())


def number_matches(column: Any, op: str, value: float) -> ColumnElement[bool]:
    """Return the condition of a comparison of numbers."""
    return func.coalesce(_COMPARE[op](column, literal(value)), false())


class RunSource(Protocol):
    """Rows that are runs, and where their fields are."""

    @property
    def id(self) -> Any:
        """The run's id."""

    @property
    def started(self) -> Any:
        """When it started, in milliseconds."""

    @property
    def where(self) -> ColumnElement[bool]:
        """The condition on the rows that are searched."""

    @property
    def table(self) -> Any:
        """What is selected from."""

    def value(self, of: FieldOf, key: str) -> Any:
        """Return a field: a number for metrics and times, else a text; NULL: there is none."""

    def is_nan(self, key: str) -> ColumnElement[bool]:
        """Return the condition that the newest value of a metric is NaN."""


@dataclass(frozen=True)
class TrackedRunSource:
    """Runs from elsewhere, and children of trials."""

    names: Mapping[str, int]
    where: ColumnElement[bool]
    table = TrackedRunRow

    @property
    def id(self) -> Any:
        """The run's id."""
        return TrackedRunRow.id

    @property
    def started(self) -> Any:
        """When it started, in milliseconds."""
        return TrackedRunRow.started_ms

    def value(self, of: FieldOf, key: str) -> Any:
        """Return a field."""
        row = TrackedRunRow
        match of:
            case FieldOf.METRIC:
                return self._metric(key, _joined)
            case FieldOf.PARAM | FieldOf.TAG:
                return stored_value(row.id, PARAM if of is FieldOf.PARAM else TAG, key)
            case FieldOf.ATTRIBUTE:
                columns: dict[str, Any] = {
                    "run_id": row.id,
                    "run_name": row.name,
                    "status": row.status,
                    "user_id": case((row.said_user != "", row.said_user), else_=row.owner),
                    "start_time": row.started_ms,
                    "end_time": row.ended_ms,
                }
                return columns[key]
            case FieldOf.DATASET:
                return literal(None, Text())

    def is_nan(self, key: str) -> ColumnElement[bool]:
        """Return the condition that the newest value of a metric is NaN."""
        return func.coalesce(self._metric(key, lambda line: line.last_flag) == values.NAN, false())

    def _metric(self, key: str, made: Any) -> Any:
        line = aliased(TrackedSeries)
        query = select(made(line)).where(
            line.run_id == TrackedRunRow.id, line.name_id == self.names.get(clean_text(key), -1)
        )
        return query.correlate(TrackedRunRow).scalar_subquery()


@dataclass(frozen=True)
class TrialRunSource:
    """Trials of experiments."""

    names: Mapping[str, int]
    where: ColumnElement[bool]
    postgres: bool
    searched: str = ""
    """The metric of their search, if all are of one experiment."""
    table = TrialRow

    @property
    def id(self) -> Any:
        """The run's id."""
        if self.postgres:
            return func.lpad(func.to_hex(TrialRow.id), 32, "0")
        return func.printf("%032x", TrialRow.id)

    @property
    def started(self) -> Any:
        """When it started, in milliseconds."""
        return func.coalesce(TrialRow.started_at, TrialRow.created_at) * 1000

    def value(self, of: FieldOf, key: str) -> Any:
        """Return a field."""
        match of:
            case FieldOf.METRIC:
                return func.coalesce(*self._metrics(key, _joined))
            case FieldOf.PARAM:
                return func.coalesce(stored_value(self._logged, PARAM, key), *self._hyperparameter(key))
            case FieldOf.TAG:
                return stored_value(self._logged, TAG, key)
            case FieldOf.ATTRIBUTE:
                return self._attribute(key)
            case FieldOf.DATASET:
                return literal(None, Text())

    def _attribute(self, key: str) -> Any:
        match key:
            case "run_id":
                return self.id
            case "run_name":
                own = select(TrackedRunRow.name).where(TrackedRunRow.trial_id == TrialRow.id, TrackedRunRow.is_trial)
                return func.coalesce(
                    own.correlate(TrialRow).scalar_subquery(), literal("trial ", Text()) + cast(TrialRow.id, Text)
                )
            case "status":
                return case(*((TrialRow.state == state, said) for state, said in STATUS_OF.items()), else_="RUNNING")
            case "user_id":
                owner = select(ExperimentRow.owner).where(ExperimentRow.id == TrialRow.experiment_id)
                return owner.correlate(TrialRow).scalar_subquery()
            case "start_time":
                return self.started
            case _:
                return TrialRow.ended_at * 1000

    @property
    def _logged(self) -> Any:
        query = select(TrackedRunRow.id).where(TrackedRunRow.trial_id == TrialRow.id, TrackedRunRow.is_trial)
        return query.correlate(TrialRow).scalar_subquery()

    def _hyperparameter(self, key: str) -> list[Any]:
        if '"' in key:
            return []
        source = FilterSource(FilterTable.TRIALS, TrialRow, {}, self.postgres, 0.0)
        found = hyperparameter_of(source, HyperparameterField(tuple(key.split("."))))
        return [found.text, cast(found.number, Text)]

    def is_nan(self, key: str) -> ColumnElement[bool]:
        """Return the condition that the newest value of a metric is NaN."""
        flags = self._metrics(key, lambda line: line.last_flag)
        return func.coalesce(func.coalesce(*flags) == values.NAN, false())

    def _metrics(self, key: str, made: Any) -> list[Any]:
        found: list[Any] = [literal(None)]
        for group, name in keys.places(key, self.searched):
            line = aliased(MetricSeries)
            query = select(made(line)).where(
                line.trial_id == TrialRow.id,
                line.group_name == clean_text(group),
                line.name_id == self.names.get(clean_text(name), -1),
            )
            found.insert(len(found) - 1, query.correlate(TrialRow).scalar_subquery())
        return found


def _joined(line: Any) -> Any:
    """Return the newest value of a series as a number, which may be infinite; NULL for NaN."""
    return case(
        (line.last_flag == values.FINITE, line.last),
        (line.last_flag == values.POSINF, math.inf),
        (line.last_flag == values.NEGINF, -math.inf),
    )


def stored_value(run_id: Any, kind: str, key: str) -> Any:
    """Return a parameter or a tag of a run."""
    one = aliased(TrackedValue)
    query = select(one.value).where(one.run_id == run_id, one.kind == kind, one.key == clean_text(key))
    return query.correlate(TrackedRunRow, TrialRow).scalar_subquery()


def name_ids(s: Session, clauses: Sequence[Clause | RunOrder]) -> dict[str, int]:
    """Return the ids of the names of metrics that are asked for; one that nobody has logged has none."""
    wanted: set[str] = set()
    for one in clauses:
        if one.of is FieldOf.METRIC:
            wanted |= {clean_text(name) for _, name in keys.places(one.key, "")} | {clean_text(one.key)}
    found: dict[str, int] = {}
    for part in chunks(sorted(wanted)):
        rows = s.execute(select(MetricName.name, MetricName.id).where(MetricName.name.in_(part)))
        found.update((name, key) for name, key in rows)
    return found


def condition_of(source: RunSource, clauses: Sequence[Clause]) -> ColumnElement[bool]:
    """Return the condition on rows that fulfil all clauses."""
    return and_(source.where, *(_one(source, clause) for clause in clauses))


def _one(source: RunSource, clause: Clause) -> ColumnElement[bool]:
    left = source.value(clause.of, clause.key)
    if clause.of is FieldOf.METRIC or isinstance(next(iter(clause.values), ""), float):
        found = number_matches(left, clause.operator, float(clause.values[0]))
        return or_(found, source.is_nan(clause.key)) if _is_not(clause) else found
    return text_matches(left, clause.operator, clause.values)


def _is_not(clause: Clause) -> bool:
    return clause.of is FieldOf.METRIC and clause.operator == "!="


def ids(
    s: Session,
    sources: Collection[RunSource],
    clauses: Sequence[Clause],
    order: Sequence[RunOrder],
    *,
    skip: int,
    limit: int,
) -> list[str]:
    """Return ids of runs in an order, and one more than `limit` if there are more.

    Rows without a value of the order come last whatever its direction, those with NaN before them; then the newest
    come first.
    """
    found: list[tuple[Any, ...]] = []
    for source in sources:
        columns, by = [], []
        for one in order:
            value = source.value(one.of, one.key)
            nan = source.is_nan(one.key) if one.of is FieldOf.METRIC else false()
            place = case((nan, 1), (value.is_(None), 2), else_=0)
            columns += [place, value]
            by += [place, value.desc() if one.descending else value]
        query = select(source.id, source.started, *columns).select_from(source.table)
        query = query.where(condition_of(source, clauses)).order_by(*by, source.started.desc(), source.id)
        found += [tuple(row) for row in s.execute(query.limit(skip + limit + 1))]
    if len(sources) > 1:
        _sort(found, order)
    return [str(row[0]) for row in found[skip : skip + limit + 1]]


def _sort(found: list[tuple[Any, ...]], order: Sequence[RunOrder]) -> None:
    """Sort rows as their queries did: by the last key first, as the sort keeps what it finds."""
    found.sort(key=lambda row: row[0])
    found.sort(key=lambda row: row[1], reverse=True)
    for number in reversed(range(len(order))):
        column = 2 + 2 * number
        empty: Any = 0.0 if order[number].of is FieldOf.METRIC else None

        def key(row: tuple[Any, ...], column: int = column, empty: Any = empty) -> Any:
            value = row[column + 1]
            return (value is not None, value if value is not None else (empty or 0))

        there = [row for row in found if row[column] == 0]
        there.sort(key=key, reverse=order[number].descending)
        found[:] = there + [row for row in found if row[column] == 1] + [row for row in found if row[column] == 2]
