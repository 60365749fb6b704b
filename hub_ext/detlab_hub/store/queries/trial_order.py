"""A page of trials in the order of a metric, and only those whose hyperparameters meet conditions.

The order comes from the summaries in `series`, one row for each trial and metric, so the cost does not depend on the
number of points and other metrics: about one index look-up for each trial. Reading hyperparameters costs more: usually
only those of the first few hundred trials in the order are read, which are enough for a page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import ColumnElement, Select, Text, and_, case, cast, func, literal, or_, select, true, type_coerce
from sqlalchemy.dialects.postgresql import ARRAY, DOUBLE_PRECISION, JSONB
from sqlalchemy.orm import Session, aliased

from detlab.errors import NotFound
from detlab_hub.store.tables import MetricName, MetricSeries, TrialRow, clean_text
from detlab_hub.store.tables.base import encode_json

ORDER = r"^-?[^.]{1,128}\..{1,512}$"
CONDITION = r"^[^<>=!\"\x00-\x1f\x7f]{1,512}(<=|>=|!=|<|>|=)[^\x00-\x1f\x7f]{0,512}$"
"""No hyperparameter that is written in YAML has control characters, and no database takes them all."""
AHEAD = 4
"""Conditions are first tried on this many times the requested trials: if every fourth fits, one statement is enough."""
_PARTS = re.compile(r'([^<>=!"]+)(<=|>=|!=|<|>|=)(.*)')


@dataclass(frozen=True)
class MetricOrder:
    """By the least value of a metric, ascending, or by its greatest, descending."""

    group: str
    name: str
    descending: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `validation.loss` or, for the greatest first, `-validation.accuracy`; the text must match `ORDER`.

        So a group whose name itself begins with `-` is available in descending order only: `--x.loss`.
        """
        group, _, name = text.removeprefix("-").partition(".")
        return cls(clean_text(group), clean_text(name), text.startswith("-"))


@dataclass(frozen=True)
class HyperparameterComparison:
    """One hyperparameter compared with a value."""

    path: tuple[str, ...]
    operator: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `lr<=0.01`, `optimizer.name=adam`; the text must match `CONDITION`.

        Raises:
            ValueError: It does not.
        """
        match = _PARTS.fullmatch(text) if re.search(CONDITION, text) else None
        if match is None:
            raise ValueError(f"{text!r} is not a condition: write NAME<VALUE, with one of < <= > >= = !=")
        name, operator, value = match.groups()
        return cls(tuple(name.strip().split(".")), operator, value.strip())


def ids(
    s: Session,
    experiment_id: int,
    limit: int,
    *,
    order: MetricOrder | None = None,
    conditions: Sequence[HyperparameterComparison] = (),
    after: int | None = None,
) -> list[int]:
    """Return the ids of trials of an experiment.

    Args:
        s: A session.
        experiment_id: The experiment.
        limit: Most trials.
        order: None: in creation order. Trials that have not reported the metric, or only NaN, are left out.
        conditions: All must hold. A number is compared with numbers, everything else as text; `!=` holds also for
            those that have no such value.
        after: Id of the last trial of the page before.

    Raises:
        NotFound: `after` is not a trial of this experiment, even if it exists: the number of one's own trials beyond
            another user's would reveal what that one reported.
    """
    place = None if after is None else _index(s, experiment_id, after)
    if order is None:
        plain = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id)
        plain = plain.where(*(_holds(s, TrialRow.hparams, one) for one in conditions)).order_by(TrialRow.idx)
        plain = plain.limit(limit)
        return list(s.scalars(plain if place is None else plain.where(TrialRow.idx > place)))
    name_id = s.scalar(select(MetricName.id).where(MetricName.name == order.name))
    column = MetricSeries.max if order.descending else MetricSeries.min
    here = and_(MetricSeries.group_name == order.group, MetricSeries.name_id == name_id, column.is_not(None))
    query = select(TrialRow.id, column.label("place")).join(
        MetricSeries, and_(MetricSeries.trial_id == TrialRow.id, here)
    )
    query = query.where(TrialRow.experiment_id == experiment_id)
    query = query.order_by(column.desc() if order.descending else column, TrialRow.id)
    if after is not None:
        last = s.scalar(select(column).where(MetricSeries.trial_id == after, here))
        beyond = column < last if order.descending else column > last
        query = query.where(or_(beyond, and_(column == last, TrialRow.id > after)))
    if conditions and len(found := _whole(s, query.limit(AHEAD * limit), limit, order, conditions)) >= limit:
        return found
    query = query.where(*(_holds(s, TrialRow.hparams, one) for one in conditions))
    return _whole(s, query.limit(limit), limit, order)


def values(s: Session, experiment_id: int, order: MetricOrder, limit: int) -> list[tuple[dict[str, Any], float]]:
    """Return the hyperparameters of trials, in order, each with the value by which it is ordered; without NaN."""
    column = MetricSeries.max if order.descending else MetricSeries.min
    query = select(TrialRow.hparams, column).join(MetricSeries, MetricSeries.trial_id == TrialRow.id)
    query = query.join(MetricName, MetricName.id == MetricSeries.name_id).where(MetricName.name == order.name)
    query = query.where(
        TrialRow.experiment_id == experiment_id, MetricSeries.group_name == order.group, column.is_not(None)
    )
    query = query.order_by(column.desc() if order.descending else column, TrialRow.id).limit(limit)
    return [(hparams, value) for hparams, value in s.execute(query) if value is not None]


def _whole(
    s: Session,
    first: Select[*tuple[Any, ...]],
    limit: int,
    order: MetricOrder,
    conditions: Sequence[HyperparameterComparison] = (),
) -> list[int]:
    """Return those trials in the order that meet the conditions.

    Only keys are sorted before: sorting thousands of whole rows for a hundred takes longer than everything else.
    """
    keys = first.subquery()
    if s.get_bind().dialect.name == "postgresql":
        # One by one: as a plain join it would read the hyperparameters of all trials. OFFSET keeps it from that.
        trial = aliased(TrialRow, select(TrialRow).where(TrialRow.id == keys.c.id).offset(0).lateral())
        query = select(trial.id).select_from(keys).join(trial, true())
    else:
        trial = aliased(TrialRow)
        query = select(trial.id).select_from(keys).join(trial, trial.id == keys.c.id)
    query = query.where(*(_holds(s, trial.hparams, one) for one in conditions))
    query = query.order_by(keys.c.place.desc() if order.descending else keys.c.place, keys.c.id)
    return list(s.scalars(query.limit(limit)))


def _index(s: Session, experiment_id: int, trial_id: int) -> int:
    index = s.scalar(select(TrialRow.idx).where(TrialRow.id == trial_id, TrialRow.experiment_id == experiment_id))
    if index is None:
        raise NotFound(
            f"experiment {experiment_id} has no trial {trial_id} after which a page could begin",
            hint="`after` is the id of the last trial of the page before (its `next`); leave it out for the first page",
        )
    return index


def _holds(s: Session, hparams: Any, condition: HyperparameterComparison) -> ColumnElement[bool]:
    kind, text, number = _extracted(s, hparams, condition.path)
    try:
        wanted = float(condition.value)
    except ValueError:
        wanted = math.nan
    if math.isfinite(wanted):
        return _compared(number, condition.operator, wanted)
    if condition.value in {"true", "false"}:
        return _compared(kind, condition.operator, condition.value)
    return _compared(text, condition.operator, condition.value)


def _extracted(
    s: Session, hparams: Any, path: Sequence[str]
) -> tuple[ColumnElement[str], ColumnElement[str], ColumnElement[float]]:
    """Return the type of a hyperparameter (`true` and `false` are types), its text, and its number or NULL."""
    stored: ColumnElement[Any] = type_coerce(hparams, Text)
    if s.get_bind().dialect.name == "postgresql":
        value = cast(stored, JSONB).op("#>")(cast(list(path), ARRAY(Text)))
        text: Any = value.op("#>>")(cast([], ARRAY(Text)))
        plain = func.jsonb_typeof(value)
        kind: Any = case((plain == "boolean", text), else_=plain)
        return kind, text, case((plain == "number", cast(value, DOUBLE_PRECISION)), else_=None)
    place = literal("$" + "".join(f".{encode_json(part)}" for part in path))  # a backslash, escaped as it is stored
    kind = func.json_type(stored, place)
    found: Any = func.json_extract(stored, place)
    return kind, cast(found, Text), case((kind.in_(["integer", "real"]), found), else_=None)


def _compared(left: ColumnElement[Any], operator: str, right: float | str) -> ColumnElement[bool]:
    match operator:
        case "=":
            return left == right
        case "!=":
            return or_(left.is_(None), left != right)  # what has no such value does not have this one
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right
