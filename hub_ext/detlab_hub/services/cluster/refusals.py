"""Refused access, for the audit log: who was refused what, how often, and from which address.

Every refusal is counted in memory and written by a loop of the master, so that a refusal costs no transaction. The
first one at an object is written within a second; those that follow within a minute are one more row with their number.
Rows of one user are rationed: beyond that, one row an hour gives their number. So refused callers cannot fill the
database.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from detlab_hub.services.base import audit
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.limits.bucket import Buckets
from detlab_hub.services.base.unit_of_work import UnitOfWork

ACTION = "access.refused"
WINDOW = 60.0
"""Seconds within which the refusals of one user at one object, after the first, become one row."""
ROWS_AT_ONCE = 30
ROWS_PER_HOUR = 30
"""Rows of one user: the size of a burst, and the number per hour in the long run."""
SUMMARY_PERIOD = 3600.0
MOST_OPEN = 2000
"""Refusals that wait to be written; of more only the number is kept."""
TEXT_CHARS = 200


@dataclass(frozen=True)
class RefusedCall:
    """A refusal: its caller and its object."""

    actor: str
    """A user, `task 12.1`, `agent node-1`, or `task token` where the token is not known."""
    verb: str
    route: str
    """The template, such as `experiments/{experiment_id}`."""
    path: str
    """The address without its query."""
    reason: str
    """The error code that the caller got."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of refusals that are counted together."""
        return self.actor, self.verb, self.path


@dataclass
class _Open:
    """Refusals that are counted together."""

    refused: RefusedCall
    since: float
    address: str
    count: int = 0
    """Refusals that are not written yet."""
    written: bool = False


@dataclass
class _LeftOut:
    """Refusals of one user beyond the ration of rows."""

    since: float
    count: int = 0
    last: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the audit log."""

    actor: str
    subject: str
    detail: str


@dataclass
class Tally:
    """Counts refusals, and says what is to be written. Pure."""

    _open: OrderedDict[tuple[str, str, str], _Open] = field(default_factory=OrderedDict)
    _left_out: dict[str, _LeftOut] = field(default_factory=dict)
    _rations: Buckets[str] = field(default_factory=lambda: Buckets(ROWS_PER_HOUR / 3600, ROWS_AT_ONCE))

    def note(self, refused: RefusedCall, address: str, now: float) -> None:
        """Count a refusal."""
        found = self._open.get(refused.key)
        if found is None:
            if len(self._open) >= MOST_OPEN:
                self._leave_out(refused, 1, now)
                return
            found = self._open[refused.key] = _Open(refused, now, address)
        found.count += 1

    def due(self, now: float, *, closing: bool = False) -> list[Row]:
        """Return what is to be written now, and forget it: first refusals, windows that are over, summaries.

        Args:
            now: Seconds since the epoch.
            closing: The master stops: all that was counted.
        """
        rows: list[Row] = []
        for key, one in list(self._open.items()):
            over = closing or not 0 <= now - one.since < WINDOW
            if one.count and (over or not one.written):
                rows += self._row(one, now)
                one.written, one.count = True, 0
            if over:
                del self._open[key]
        for actor, left in list(self._left_out.items()):
            if closing or not 0 <= now - left.since < SUMMARY_PERIOD:
                rows.append(Row(actor, "several", f"{left.count:,} more refusals, the last: {left.last}"))
                del self._left_out[actor]
        return rows

    def _row(self, one: _Open, now: float) -> list[Row]:
        refused = one.refused
        if self._rations.take(refused.actor, now):
            self._leave_out(refused, one.count, now)
            return []
        times = "" if one.count == 1 else f"{one.count:,} times; "
        detail = f"{times}{refused.reason}; route {refused.route}; from {one.address}"
        return [Row(refused.actor, f"{refused.verb} {refused.path}", detail)]

    def _leave_out(self, refused: RefusedCall, count: int, now: float) -> None:
        if refused.actor not in self._left_out and len(self._left_out) >= MOST_OPEN:
            return
        left = self._left_out.setdefault(refused.actor, _LeftOut(now))
        left.count += count
        left.last = f"{refused.verb} {refused.path}"


class Refusals(Service):
    """Takes refusals of the web layer and writes them into the audit log."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._tally = Tally()
        self._unwritten: list[Row] = []

    def note(self, *, actor: str, verb: str, route: str, path: str, reason: str, address: str) -> None:
        """Count a refusal; it is written soon."""
        refused = RefusedCall(actor[:TEXT_CHARS], verb, route, path[:TEXT_CHARS], reason)
        self._tally.note(refused, address, self._context.clock())

    async def write_refusals(self, *, closing: bool = False) -> None:
        """Write what is due; what could not be written is tried again the next time.

        Raises:
            Unavailable: The database is busy or broken.
        """
        rows = [*self._unwritten, *self._tally.due(self._context.clock(), closing=closing)][:MOST_OPEN]
        if not rows:
            return
        self._unwritten = rows

        def append(unit: UnitOfWork) -> None:
            for row in rows:
                audit.note(unit, row.actor, ACTION, row.subject, row.detail)

        await self._context.write(append)
        self._unwritten = []
