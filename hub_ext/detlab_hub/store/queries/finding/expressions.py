"""Fields of filters as SQL expressions, the same on both databases.

What belongs to the hyperparameters and metrics of an experiment is that of its best trial, or of its first one while
none has a validation. A metric is a look-up in the summaries (`series`) for each row, and in its points only where the
best validation is not the last one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Numeric,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Session, aliased

from detlab_hub.core.filters.fields import (
    VALIDATION,
    ColumnField,
    Field,
    FilterTable,
    HyperparameterField,
    MetricField,
    MetricSummary,
)
from detlab_hub.core.filters.meaning import Number
from detlab_hub.store import values
from detlab_hub.store.queries.statements import chunks, text_holds
from detlab_hub.store.tables import (
    AllocationRow,
    ExperimentRow,
    MetricName,
    MetricPoint,
    MetricSeries,
    ProjectRow,
    TrialRow,
    WorkspaceRow,
    clean_text,
)
from detlab_hub.store.tables.base import encode_json

_NOT_JSON = r"\\u0000|\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]|[:,\[](NaN|-?Infinity)"
"""Texts that we store as JSON and that PostgreSQL does not take for it: its users' words do not stop a query."""


@dataclass(frozen=True)
class FilterSource:
    """What a query selects from, and what its expressions need to know.

    Attributes:
        table: What is filtered.
        trial: The rows of trials that hyperparameters and metrics are of.
        names: Ids of metric names that were looked up before.
        postgres: Which database it is.
        now: Seconds since the epoch.
        own_workspaces: Ids of workspaces that the asker has made, by `OWNER/KEY`.
    """

    table: FilterTable
    trial: Any
    names: Mapping[str, int]
    postgres: bool
    now: float
    own_workspaces: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> Any:
        """The id of a row."""
        return self.trial.id if self.table is FilterTable.TRIALS else ExperimentRow.id


def source_of(s: Session, table: FilterTable, fields: Sequence[Field], now: float, asker: str = "") -> FilterSource:
    """Return what a query selects from that names some fields."""
    wanted = {clean_text(name) for field in fields if isinstance(field, MetricField) for _, name in field.readings}
    names: dict[str, int] = {}
    for part in chunks(sorted(wanted)):
        found = s.execute(select(MetricName.name, MetricName.id).where(MetricName.name.in_(part)))
        names.update((name, name_id) for name, name_id in found)
    trial: Any = TrialRow if table is FilterTable.TRIALS else aliased(TrialRow)
    own: dict[str, int] = {}
    if any(isinstance(one, ColumnField) and one.name == "workspace" for one in fields):
        made = select(WorkspaceRow.path, WorkspaceRow.id).where(WorkspaceRow.owner == clean_text(asker))
        own.update((path, place_id) for path, place_id in s.execute(made))
    return FilterSource(table, trial, names, s.get_bind().dialect.name == "postgresql", now, own)


def selected(source: FilterSource, *columns: Any, of_trial: bool) -> Select[Any]:
    """Return the query for columns.

    Args:
        source: What it selects from.
        columns: What is selected.
        of_trial: Whether hyperparameters or metrics are needed: experiments are joined with a trial only then.
    """
    if source.table is FilterTable.TRIALS:
        return select(*columns).join(ExperimentRow, ExperimentRow.id == source.trial.experiment_id)
    query = select(*columns).select_from(ExperimentRow)
    if not of_trial:
        return query
    first = aliased(TrialRow)
    its_first = select(first.id).where(first.experiment_id == ExperimentRow.id, first.idx == 0)
    shown = func.coalesce(ExperimentRow.best_trial_id, its_first.correlate(ExperimentRow).scalar_subquery())
    return query.outerjoin(source.trial, source.trial.id == shown)


def needs_trial(fields: Sequence[Field]) -> bool:
    """Whether a query that names these fields needs a trial of each experiment."""
    return any(not isinstance(field, ColumnField) for field in fields)


# --- columns


def column_of(source: FilterSource, field: ColumnField) -> ColumnElement[Any]:  # noqa: C901 - a case for each column
    """Return the expression of a column; `label` and `archived` have none that is a plain value."""
    trials = source.table is FilterTable.TRIALS
    row: Any = source.trial if trials else ExperimentRow
    match field.name:
        case "id":
            return type_coerce(row.id, row.id.type)
        case "trial":
            return type_coerce(source.trial.id, source.trial.id.type)
        case "experiment":
            return type_coerce(ExperimentRow.id, ExperimentRow.id.type)
        case "state" | "progress" | "seed" | "restarts" | "priority" as name:
            return _plain(getattr(row, name))
        case "owner" | "name" | "description" as name:
            return _plain(getattr(ExperimentRow, name))
        case "searcher":
            return _plain(ExperimentRow.searcher_name)
        case "searcher_metric":
            return _plain(ExperimentRow.metric)
        case "pool":
            return _plain(ExperimentRow.resource_pool)
        case "workspace":
            place = select(WorkspaceRow.name).where(WorkspaceRow.id == ExperimentRow.workspace_id)
            return place.correlate(ExperimentRow).scalar_subquery()
        case "project":
            place = select(ProjectRow.name).where(ProjectRow.id == ExperimentRow.project_id)
            return place.correlate(ExperimentRow).scalar_subquery()
        case "created" | "started" | "ended" as name:
            return _plain(getattr(row, f"{name}_at"))
        case "duration":
            return _duration(row, source.now)
        case "best":
            return _plain(row.best_validation if trials else ExperimentRow.best_value)
        case "steps":
            return _plain(row.steps_completed)
        case "trials":
            one = aliased(TrialRow)
            count = select(func.count()).select_from(one).where(one.experiment_id == ExperimentRow.id)
            return count.correlate(ExperimentRow).scalar_subquery()
        case "label":
            return _plain(ExperimentRow.labels)
        case "archived":
            return ExperimentRow.archived_at.is_not(None)
        case name:
            raise AssertionError(name)


def workspace_reference() -> ColumnElement[Any]:
    """Return `OWNER/NAME` of the workspace of an experiment, by which it is told from others of its name."""
    place = select(WorkspaceRow.owner + "/" + WorkspaceRow.name).where(WorkspaceRow.id == ExperimentRow.workspace_id)
    return place.correlate(ExperimentRow).scalar_subquery()


def _plain(attribute: Any) -> ColumnElement[Any]:
    found: ColumnElement[Any] = attribute.expression if hasattr(attribute, "expression") else attribute
    return found


def _duration(row: Any, now: float) -> ColumnElement[Any]:
    if row is ExperimentRow:
        end = func.coalesce(row.ended_at, row.paused_at, literal(now))
        found: ColumnElement[Any] = end - row.started_at - row.paused_seconds
        return found
    # As experiments do, trials leave out their pauses: what their attempts ran; of those evaluated by hand, all of it.
    attempt = aliased(AllocationRow)
    ran = select(func.sum(func.coalesce(attempt.ended_at, literal(now)) - attempt.started_at)).where(
        attempt.trial_id == row.id, attempt.started_at.is_not(None)
    )
    whole: ColumnElement[Any] = func.coalesce(row.ended_at, literal(now)) - row.started_at
    return func.coalesce(ran.correlate(row).scalar_subquery(), whole)


def runs(source: FilterSource) -> ColumnElement[bool]:
    """Return the condition that some attempt runs on its slots, or that somebody evaluates a trial by hand."""
    attempt, trial = aliased(AllocationRow), aliased(TrialRow)
    here = select(attempt.id).where(attempt.state == "RUNNING")
    by_hand = [trial.state == "ACTIVE", trial.asked_at.is_not(None)]
    if source.table is FilterTable.TRIALS:
        mine = here.where(attempt.trial_id == source.trial.id).correlate(source.trial)
        return or_(and_(source.trial.state == "ACTIVE", source.trial.asked_at.is_not(None)), mine.exists())
    mine = here.where(attempt.experiment_id == ExperimentRow.id).correlate(ExperimentRow)
    asked = select(trial.id).where(trial.experiment_id == ExperimentRow.id, *by_hand).correlate(ExperimentRow)
    return or_(mine.exists(), asked.exists())


def has_label(label: str) -> ColumnElement[bool]:
    """Return the condition that an experiment has a label.

    Labels are a JSON list as `Json` writes it: a quotation mark that a comma or the bracket precedes opens an item,
    since those inside of items have a backslash before them.
    """
    item = encode_json(clean_text(label))
    stored = type_coerce(ExperimentRow.labels, Text)
    return or_(
        func.substr(stored, 1, len(item) + 1) == literal(f"[{item}", Text()),
        func.replace(stored, literal(f",{item}", Text()), literal("", Text())) != stored,
    )


def label_holds(source: FilterSource, text: str) -> ColumnElement[bool]:
    """Return the condition that a label of an experiment holds a text."""
    stored = _readable(source, type_coerce(ExperimentRow.labels, Text), "[]")
    each: Any = func.jsonb_array_elements_text(cast(stored, JSONB)) if source.postgres else func.json_each(stored)
    label = each.column_valued("one_label") if source.postgres else each.table_valued("value").c.value
    return select(literal(1)).where(text_holds(label, text)).exists()


def _readable(source: FilterSource, stored: ColumnElement[Any], empty: str) -> ColumnElement[Any]:
    """Return stored JSON, and something empty instead of what the database does not take for JSON."""
    nothing = literal(empty, Text())
    if not source.postgres:
        return case((func.json_valid(stored) == 1, stored), else_=nothing)
    # Most texts have nothing of that kind, and the regular expression takes longer than all else.
    plain = and_(*(func.strpos(stored, literal(part, Text())) == 0 for part in ("\\u", "NaN", "Infinity")))
    return case((plain, stored), (stored.op("~")(literal(_NOT_JSON, Text())), nothing), else_=stored)


# --- hyperparameters


@dataclass(frozen=True)
class Scalar:
    """A hyperparameter: its JSON type, and its value as a text and as a number, NULL where it is of another type."""

    kind: ColumnElement[str]
    text: ColumnElement[str]
    number: ColumnElement[Any]

    def is_truth(self, value: bool) -> ColumnElement[bool]:
        """Return the condition that it is true, or false."""
        return func.coalesce(self.kind == ("true" if value else "false"), False)

    @property
    def is_there(self) -> ColumnElement[bool]:
        """The condition that there is one; null is none."""
        return func.coalesce(self.kind != "null", False)


def hyperparameter_of(source: FilterSource, field: HyperparameterField) -> Scalar:
    """Return the expressions of a hyperparameter."""
    stored: ColumnElement[Any] = type_coerce(source.trial.hparams, Text)
    readable = _readable(source, stored, "{}")
    value: Any
    path = [clean_text(part) for part in field.path]
    if source.postgres:
        value = cast(readable, JSONB).op("#>", return_type=JSONB())(cast(path, ARRAY(Text)))
        # Found once for all that is made of it: OFFSET keeps the parts of the query apart.
        found = select(value.label("value")).correlate(source.trial).offset(0).lateral().c.value

        def of(made: Any) -> ColumnElement[Any]:
            return select(made).correlate(source.trial).scalar_subquery()

        plain: Any = func.jsonb_typeof(found)
        said: Any = found.op("#>>")(cast([], ARRAY(Text)))
        return Scalar(
            of(case((plain == "boolean", said), else_=plain)),
            of(case((plain == "string", said), else_=None)),
            of(case((plain == "number", cast(said, Numeric)), else_=None)),
        )
    place = literal("$" + "".join(f".{encode_json(part)}" for part in path), Text())
    kind: Any = func.json_type(readable, place)
    value = func.json_extract(readable, place)
    return Scalar(
        kind, case((kind == "text", value), else_=None), case((kind.in_(["integer", "real"]), value), else_=None)
    )


def number_value(source: FilterSource, field: Field, value: float) -> ColumnElement[Any]:
    """Return a number as it is compared with a field: hyperparameters have exact decimal numbers on PostgreSQL."""
    if source.postgres and isinstance(field, HyperparameterField):
        return cast(literal(repr(value), Text()), Numeric)
    return literal(value)


# --- metrics


def metric_of(source: FilterSource, field: MetricField, bound: Number | None = None) -> ColumnElement[Any] | None:
    """Return the value of a metric, NULL for NaN, the first reading that a trial has; None: nobody has reported one.

    Args:
        source: What the query selects from.
        field: The metric.
        bound: What it is compared with: where the summary shows that no value fulfils it, it may be NULL.
    """
    readings = _readings(source, field)
    one = bound if len(readings) == 1 else None
    found = [_summary(source, group, name_id, field.summary, one) for group, name_id in readings]
    if not found:
        return None
    value = found[0] if len(found) == 1 else func.coalesce(*found)
    return _or_best(source, field, value)


def _hopeless(line: Any, bound: Number) -> ColumnElement[bool]:
    """Return the condition that no value of a series fulfils a comparison, by its least and its greatest."""
    match bound.operator:
        case ">":
            found: ColumnElement[bool] = line.max <= bound.value
        case ">=":
            found = line.max < bound.value
        case "<":
            found = line.min >= bound.value
        case "<=":
            found = line.min > bound.value
        case "=":
            found = or_(line.min > bound.value, line.max < bound.value)
    return found


def _or_best(source: FilterSource, field: MetricField, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the best validation where it is asked for, which a trial has in its row: it is what most filters name."""
    own = [clean_text(name) for group, name in field.readings[:1] if group == VALIDATION]
    if field.summary is not MetricSummary.BEST or not own:
        return value
    known = and_(ExperimentRow.metric == own[0], source.trial.best_validation.is_not(None))
    return case((known, source.trial.best_validation), else_=value)


def metric_is_there(source: FilterSource, field: MetricField) -> ColumnElement[bool] | None:
    """Return the condition that a trial has reported a metric; None: nobody has."""
    found = [_series(source, group, name_id, aliased(MetricSeries)) for group, name_id in _readings(source, field)]
    return or_(*(query.exists() for query in found)) if found else None


def metric_is_nan(source: FilterSource, field: MetricField) -> ColumnElement[bool] | None:
    """Return the condition that the value of a metric is NaN; None: nobody has reported one."""
    found = []
    for group, name_id in _readings(source, field):
        line = aliased(MetricSeries)
        query = _series(source, group, name_id, line)
        found.append(query.where(_is_nan(source, line, field.summary)).exists())
    return or_(*found) if found else None


def _readings(source: FilterSource, field: MetricField) -> list[tuple[str, int]]:
    known = [(clean_text(group), source.names.get(clean_text(name))) for group, name in field.readings]
    return list(dict.fromkeys((group, name_id) for group, name_id in known if name_id is not None))


def _series(source: FilterSource, group: str, name_id: int, line: Any, *columns: Any) -> Select[Any]:
    query = select(*(columns or (line.id,))).where(
        line.trial_id == source.trial.id, line.group_name == group, line.name_id == name_id
    )
    return query.correlate(source.trial)


def _summary(
    source: FilterSource, group: str, name_id: int, summary: MetricSummary, bound: Number | None
) -> ColumnElement[Any]:
    line = aliased(MetricSeries)
    match summary:
        case MetricSummary.MIN:
            value: Any = line.min
        case MetricSummary.MAX:
            value = line.max
        case MetricSummary.LAST:
            value = _joined(line.last, line.last_flag)
        case MetricSummary.BEST:
            value = _at_best(source, line, bound)
    # A subquery that gives a value, and not a join: it is looked up for the rows that come as far as here.
    return _series(source, group, name_id, line, value).scalar_subquery()


def _joined(value: Any, flag: Any) -> ColumnElement[Any]:
    """Return a stored value with its flag as a number, which may be infinite; NULL for NaN."""
    return case((flag == values.FINITE, value), (flag == values.POSINF, math.inf), (flag == values.NEGINF, -math.inf))


def _at_best(source: FilterSource, line: Any, bound: Number | None) -> ColumnElement[Any]:
    point = aliased(MetricPoint)
    before = _before_best(source, line, point, _joined(point.value, point.flag))
    in_summary: list[tuple[Any, Any]] = [(_is_last(source, line), _joined(line.last, line.last_flag))]
    if bound is not None:
        in_summary.append((_hopeless(line, bound), None))
    return case(*in_summary, else_=before)


def _is_last(source: FilterSource, line: Any) -> ColumnElement[bool]:
    best = source.trial.best_step
    return or_(best.is_(None), line.last_step <= best)


def _before_best(source: FilterSource, line: Any, point: Any, column: Any) -> ColumnElement[Any]:
    """Return a column of the last point up to the best validation."""
    query = select(column).where(point.series_id == line.id, point.step <= source.trial.best_step)
    query = query.order_by(point.step.desc()).limit(1)
    return query.correlate(line, source.trial).scalar_subquery()


def _is_nan(source: FilterSource, line: Any, summary: MetricSummary) -> ColumnElement[bool]:
    match summary:
        case MetricSummary.MIN | MetricSummary.MAX:
            none: ColumnElement[bool] = line.min.is_(None)
            return none
        case MetricSummary.LAST:
            found: ColumnElement[bool] = line.last_flag == values.NAN
            return found
        case MetricSummary.BEST:
            point = aliased(MetricPoint)
            before = _before_best(source, line, point, point.flag)
            flag = case((_is_last(source, line), line.last_flag), else_=before)
            return func.coalesce(flag == values.NAN, False)
