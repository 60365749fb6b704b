"""Names and series, looked up or created; each transaction looks each one up once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Table, bindparam, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import PreparedStatement, driver_of, fetch
from detlab_hub.store.queries.metrics import series_rows
from detlab_hub.store.queries.metrics.series_rows import SeriesLine
from detlab_hub.store.queries.statements import CHUNK, chunks, insert_or_ignore
from detlab_hub.store.tables import ExperimentMetric, MetricName, MetricSeries, TrialRow, clean_text

_MEMO = "detlab_hub.store.queries.metrics.lookup"
_EXPERIMENT_METRICS: Table = ExperimentMetric.__table__

_METRIC_NAMES: Table = MetricName.__table__
_NAMES = select(_METRIC_NAMES.c.id, _METRIC_NAMES.c.name).where(
    _METRIC_NAMES.c.name.in_(bindparam("names", expanding=True))
)
_ONE_NAME = PreparedStatement(select(_METRIC_NAMES.c.id).where(_METRIC_NAMES.c.name == bindparam("name")))
_NEW_NAMES = "INSERT INTO metric_names (name) SELECT unnest(%s::text[]) RETURNING name, id"
_SERIES: Table = MetricSeries.__table__
_ALL_SERIES = series_rows.SELECT.where(
    _SERIES.c.trial_id == bindparam("trial"), _SERIES.c.group_name == bindparam("group")
)
_ONE_SERIES = PreparedStatement(_ALL_SERIES.where(_SERIES.c.name_id == bindparam("name")))
_SERIES_BY_NAME = PreparedStatement(
    _ALL_SERIES.join(_METRIC_NAMES, _METRIC_NAMES.c.id == _SERIES.c.name_id).where(
        _METRIC_NAMES.c.name == bindparam("name")
    )
)
_SOME_SERIES = _ALL_SERIES.where(_SERIES.c.name_id.in_(bindparam("names", expanding=True)))


def name_ids(s: Session, names: Iterable[str]) -> dict[str, int]:
    """Return the id of each name, creating those that are new."""
    known = memo_of(s).names
    wanted = sorted({clean for name in names if (clean := clean_text(name)) not in known})
    if len(wanted) == 1 and (one := _ONE_NAME.scalar(s, {"name": wanted[0]})) is not None:
        known[wanted[0]] = one
        return known
    for part in chunks(wanted):
        known.update((row.name, row.id) for row in s.connection().execute(_NAMES, {"names": part}))
    fresh = [name for name in wanted if name not in known]
    if fresh and driver_of(s)[0].dialect.name == "postgresql":
        # A question and an answer for each of ten thousand names would hold up all other writes for seconds.
        known.update(fetch(s, _NEW_NAMES, (fresh,)))
    elif fresh:
        rows = [MetricName(name=name) for name in fresh]
        s.add_all(rows)
        s.flush()
        known.update((row.name, row.id) for row in rows)
    return known


def prefetch(s: Session, trial: TrialRow, group: str, name: str) -> None:
    """Look up the name and the series of one metric with one statement, for `name_ids` and `series_of`."""
    memo, clean = memo_of(s), clean_text(name)
    if s.info.get(_MEMO) is not memo or clean in memo.names:
        return  # nothing would remember it, or it is known
    for row in series_rows.made(_SERIES_BY_NAME.all(s, {"trial": trial.id, "group": group, "name": clean})):
        memo.names[clean] = row.name_id
        memo.series[trial.id, group, row.name_id] = row


def is_reported(s: Session, trial_id: int, group: str, name: str) -> bool:
    """Whether a trial has reported a metric in a group."""
    return bool(_SERIES_BY_NAME.all(s, {"trial": trial_id, "group": group, "name": clean_text(name)}))


@dataclass
class Memo:
    """A cache of one transaction's look-ups: a batch of a thousand small reports needs each of them once."""

    transaction: object
    trials: dict[int, TrialRow] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    series: dict[tuple[int, str, int], SeriesLine] = field(default_factory=dict)


def memo_of(s: Session) -> Memo:
    """Return the cache of the session's present transaction."""
    if s.in_nested_transaction():
        # A savepoint may be rolled back and take rows with it that the memo would go on to name; and where it is
        # kept, rows that were remembered before it are no longer what they were.
        forget(s)
        return Memo(s.get_transaction())
    memo = s.info.get(_MEMO)
    if not isinstance(memo, Memo) or memo.transaction is not s.get_transaction():
        memo = s.info[_MEMO] = Memo(s.get_transaction())
    return memo


def forget(s: Session) -> None:
    """Drop the cache of this transaction, because series or trials are about to be removed."""
    s.info.pop(_MEMO, None)


def series_of(s: Session, trial: TrialRow, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], SeriesLine]:
    """Return the series of each (group, name id) of a trial, creating those that are new."""
    known = memo_of(s).series
    found: dict[tuple[str, int], SeriesLine] = {}
    by_group: dict[str, list[int]] = {}
    for group, name_id in keys:
        row = known.get((trial.id, group, name_id))
        if row is None:
            by_group.setdefault(group, []).append(name_id)
        else:
            found[group, name_id] = row
    for group, wanted in by_group.items():
        # Beyond a chunk, one range of the index is cheaper than many look-ups in it.
        query = _SOME_SERIES if len(wanted) <= CHUNK else _ALL_SERIES
        asked = {"trial": trial.id, "group": group}
        if len(wanted) == 1:
            rows = series_rows.made(_ONE_SERIES.all(s, {**asked, "name": wanted[0]}))
        else:
            rows = series_rows.made(s.connection().execute(query, {**asked, "names": wanted}))
        found.update(((row.group_name, row.name_id), row) for row in rows)
    fresh = series_rows.add(s, trial.id, [key for key in keys if key not in found])
    if fresh:
        found.update(((row.group_name, row.name_id), row) for row in fresh)
        s.connection().execute(
            insert_or_ignore(s, _EXPERIMENT_METRICS),
            [
                {"experiment_id": trial.experiment_id, "group_name": row.group_name, "name_id": row.name_id}
                for row in fresh
            ],
        )
    known.update(((trial.id, *key), row) for key, row in found.items())
    return found
