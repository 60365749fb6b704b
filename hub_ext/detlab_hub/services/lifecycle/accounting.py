"""Slot time of allocations that end, added to their owner's sums in the same transaction.

Slots count from their assignment until the task has exited. A crash neither loses nor doubles anything: the sums
and the allocation's end are one commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from detlab_hub.core.scheduling import decayed_usage
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import usage
from detlab_hub.store.tables import AllocationRow

TRIAL = "trial"
"""Kind of what is no user task."""

HOUR = 3600.0
DAY = 86_400
"""Seconds of a day; UTC as computers count it has no other."""

_EPOCH = date(1970, 1, 1).toordinal()


def note(unit: UnitOfWork, row: AllocationRow) -> None:
    """Add what an allocation held. Call it once, in the unit of work in which it becomes TERMINATED."""
    if row.assigned_at is None or not row.slots:
        return
    ended = unit.now if row.ended_at is None else row.ended_at
    owner, kind = unit.holder(row).payer(unit, row)
    costs = row.price > 0.0 and row.experiment_id is not None
    project = unit.experiment(row.experiment_id or 0).project_id if costs else None
    for day, seconds in split_by_day(row.assigned_at, ended):
        cost = len(row.slots) * seconds / HOUR * row.price
        usage.add(unit.session, day.isoformat(), owner, kind, len(row.slots) * seconds, cost)
        if cost and project is not None:
            usage.add_project_cost(unit.session, project, month_of(day), cost)
    _fade(unit, row, owner, row.assigned_at, ended)


def _fade(unit: UnitOfWork, row: AllocationRow, owner: str, begin: float, end: float) -> None:
    """Add what it used to the owner's use that fades, where users have shares of its pool."""
    pool = unit.settings.pools.of(row.pool)
    if pool is None or not pool.by_users:
        return
    known, half_life = usage.faded_of(unit.session, pool.name, owner), pool.rules.half_life
    before = 0.0 if known is None else decayed_usage.faded(known.slot_seconds, unit.now - known.at, half_life)
    more = decayed_usage.span(len(row.slots), begin, end, unit.now, half_life)
    usage.put_faded(unit.session, pool.name, owner, before + more, unit.now)


def month_of(day: date) -> str:
    """Return the month of a day, YYYY-MM."""
    return day.isoformat()[:7]


def day_of(time: float) -> date:
    """Return the day (UTC) of a time in seconds since the epoch."""
    return date.fromordinal(_EPOCH + _number_of(time))


def _number_of(time: float) -> int:
    """Return the whole days since the epoch; `datetime` would round the last half microsecond into the next day."""
    return int(time // DAY)


def split_by_day(begin: float, end: float) -> Iterator[tuple[date, float]]:
    """Cut a span of time at midnight (UTC): (day, seconds), every part longer than nothing, in order.

    Args:
        begin: Seconds since the epoch.
        end: Seconds since the epoch; nothing comes out unless it is later than `begin`.
    """
    while begin < end:
        upto = min(end, float((_number_of(begin) + 1) * DAY))
        yield day_of(begin), upto - begin
        begin = upto
