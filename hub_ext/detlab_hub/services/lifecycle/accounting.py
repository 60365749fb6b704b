"""Slot time of allocations that end, added to their owner's sums in the same transaction.

Slots count from their assignment until the task has exited. A crash neither loses nor doubles anything: the sums
and the allocation's end are one commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import usage
from detlab_hub.store.tables import AllocationRow

TRIAL = "trial"
"""Kind of what is no user task."""

DAY = 86_400
"""Seconds of a day; UTC as computers count it has no other."""

_EPOCH = date(1970, 1, 1).toordinal()


def note(unit: UnitOfWork, row: AllocationRow) -> None:
    """Add what an allocation held. Call it once, in the unit of work in which it becomes TERMINATED."""
    if row.assigned_at is None or not row.slots:
        return
    ended = unit.now if row.ended_at is None else row.ended_at
    owner, kind = unit.holder(row).payer(unit, row)
    for day, seconds in split_by_day(row.assigned_at, ended):
        usage.add(unit.session, day.isoformat(), owner, kind, len(row.slots) * seconds)


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
