"""The event log: ids grow for ever and are the cursor of the stream.

A cursor `c` means "all up to c was read". It can be resumed as long as `floor(s) <= c`; what was trimmed beyond it
is lost and the reader must take a new snapshot. There is one writer, so ids become visible in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, cast

from sqlalchemy import Select, Table, and_, bindparam, delete, false, func, insert, or_, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import Event
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.appending import append_rows
from detlab_hub.store.tables import EventRow, Meta
from detlab_hub.store.tables.base import encode_bulk

MOVED = "moved"
"""In the data of an event about an experiment, a trial or a task: how its state changed, as {"from", "to"}."""
_FLOOR = "events_floor"
_EVENTS: Table = EventRow.__table__
_COLUMNS = ("kind", "time", "experiment_id", "trial_id", "task_id", "data")
_APPEND_ONE = PreparedStatement(insert(_EVENTS).returning(_EVENTS.c.id), _COLUMNS)
_BOUNDS = PreparedStatement(
    select(
        select(Meta.value).where(Meta.key == _FLOOR).scalar_subquery().label("floor"),
        select(func.max(EventRow.id)).scalar_subquery().label("head"),
    )
)
TRIM_BATCH = 20_000
MOST_KEPT = 10
"""At most this many times the usual number of events are kept for consumers that are behind."""
FEW = 9
"""Up to this many kinds and followed experiments have a statement that is compiled once."""


def append(
    s: Session,
    kind: str,
    time: float,
    experiment_id: int | None,
    trial_id: int | None,
    data: dict[str, Any],
    *,
    task_id: str | None = None,
) -> int:
    """Append one event and return its id."""
    # Past the ORM: a flush per event would write every changed row of the transaction a thousand times.
    row = new(kind, time, experiment_id, trial_id, data, task_id=task_id)
    return int(_APPEND_ONE.scalar(s, row))


def new(
    kind: str,
    time: float,
    experiment_id: int | None,
    trial_id: int | None,
    data: dict[str, Any],
    *,
    task_id: str | None = None,
) -> dict[str, Any]:
    """Return an event for `append_all`."""
    return {
        "kind": kind,
        "time": time,
        "experiment_id": experiment_id,
        "trial_id": trial_id,
        "task_id": task_id,
        "data": data,
    }


def append_all(s: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Append events in their order, with one statement."""
    if rows:
        found = [(*(row[name] for name in _COLUMNS[:-1]), encode_bulk(row["data"])) for row in rows]
        append_rows(s, _EVENTS.name, _COLUMNS, found)


def after(
    s: Session,
    cursor: int,
    limit: int = 1000,
    experiment_id: int | None = None,
    *,
    kinds: Collection[str] | None = None,
    followed: Collection[int] = (),
) -> list[Event]:
    """Return the events beyond a cursor, in order, of all experiments or of one, of all kinds or of some.

    Metrics of the experiments in `followed` are included, too, regardless of `kinds`.
    """
    return [
        Event.model_construct(
            id=row.id,
            kind=cast(Any, row.kind),
            time=row.time,
            experiment_id=row.experiment_id,
            trial_id=row.trial_id,
            task_id=row.task_id,
            data=row.data,
        )
        for row in _rows_after(s, cursor, limit, experiment_id, kinds, followed)
    ]


def _rows_after(
    s: Session,
    cursor: int,
    limit: int,
    experiment_id: int | None,
    kinds: Collection[str] | None,
    followed: Collection[int],
) -> Iterable[Any]:
    given: dict[str, Any] = {"cursor": cursor, "most": limit}
    if experiment_id is None and kinds is not None and len(kinds) + len(followed) <= FEW:
        given.update((f"kind{place}", kind) for place, kind in enumerate(kinds))
        given.update((f"followed{place}", one) for place, one in enumerate(followed))
        return _after_few(len(kinds), len(followed)).all(s, given)
    given.update(experiment=experiment_id, kinds=sorted(kinds or ()), followed=sorted(followed))
    query = _after(experiment_id is not None, kinds is not None, bool(kinds is not None and followed))
    return s.connection().execute(query, given)


@cache
def _after_few(kinds: int, followed: int) -> PreparedStatement:
    """Make the statement for few kinds and followed experiments, each of which has a parameter: what tails request."""
    row = _EVENTS.c
    some = [row.kind == bindparam(f"kind{place}") for place in range(kinds)]
    theirs = [row.experiment_id == bindparam(f"followed{place}") for place in range(followed)]
    wanted = or_(false(), *some, and_(row.kind == "metrics", or_(false(), *theirs)))
    return PreparedStatement(
        select(*row).where(row.id > bindparam("cursor"), wanted).order_by(row.id).limit(bindparam("most"))
    )


@cache
def _after(one: bool, some_kinds: bool, followed: bool) -> Select[Any]:
    """Make the statement of `after`, once of each kind: streams run it all the time, and making it takes longer.

    It selects columns, not rows of the ORM, since nothing is changed here.
    """
    query = select(*_EVENTS.c).where(_EVENTS.c.id > bindparam("cursor")).order_by(_EVENTS.c.id)
    if one:
        query = query.where(_EVENTS.c.experiment_id == bindparam("experiment"))
    if some_kinds:
        some = _EVENTS.c.kind.in_(bindparam("kinds", expanding=True))
        theirs = _EVENTS.c.experiment_id.in_(bindparam("followed", expanding=True))
        query = query.where(or_(some, and_(_EVENTS.c.kind == "metrics", theirs)) if followed else some)
    return query.limit(bindparam("most"))


def experiments_beyond(s: Session, cursor: int, experiment_ids: Collection[int]) -> set[int]:
    """Return which of some experiments have an event of their own, of kind `experiment`, beyond a cursor."""
    row = _EVENTS.c
    query = select(row.experiment_id).distinct().where(row.id > cursor, row.kind == "experiment")
    return set(s.connection().execute(query.where(row.experiment_id.in_(experiment_ids))).scalars())


def bounds(s: Session) -> tuple[int, int]:
    """Return `floor` and `head`, by one statement."""
    lowest, highest = _BOUNDS.first(s, {})
    oldest = int(lowest or 0)
    return oldest, max(int(highest or 0), oldest)


def head(s: Session) -> int:
    """Return the id of the newest event; the cursor of a snapshot taken in the same read. 0 if there never was one."""
    return max(int(s.scalar(select(func.max(EventRow.id))) or 0), floor(s))


def floor(s: Session) -> int:
    """Return the oldest cursor that can still be resumed: the id of the newest event that was trimmed, or 0."""
    return int(s.scalar(select(Meta.value).where(Meta.key == _FLOOR)) or 0)


def trim(s: Session, keep: int, limit: int = TRIM_BATCH, *, needed: int | None = None) -> int:
    """Remove all but about the newest `keep` events, at most `limit` in one call; return how many were removed.

    Args:
        s: The session.
        keep: Number of events that stay.
        limit: Most events to remove in this call.
        needed: Events beyond this id stay, too, up to ten times `keep`: a consumer has not processed them yet.
    """
    oldest = s.scalar(select(func.min(EventRow.id)))
    if oldest is None:
        return 0
    newest = head(s)
    upto = min(newest - keep, oldest + limit - 1)
    if needed is not None:
        upto = min(upto, max(needed, newest - MOST_KEPT * keep))
    if upto < oldest:
        return 0
    removed = int(getattr(s.execute(delete(EventRow).where(EventRow.id <= upto)), "rowcount", 0))
    s.merge(Meta(key=_FLOOR, value=str(upto)))
    s.flush()
    return removed
