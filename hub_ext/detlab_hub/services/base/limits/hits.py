"""How often each user reached each limit: counted in memory, written to the audit log once an hour. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

REPORT_PERIOD = 3600.0
"""Seconds in which the audit log gets at most one row for a user and limit."""
MOST = 5000
"""Users and limits that are remembered; beyond that, the ones hit longest ago are forgotten."""


@dataclass
class Hit:
    """How often a user met a limit since the master started."""

    count: int = 0
    last: float = 0.0
    unreported: int = 0
    """Hits that are not in the audit log yet."""
    reported_at: float | None = None


@dataclass
class Hits:
    """By user and limit."""

    _hits: OrderedDict[tuple[str, str], Hit] = field(default_factory=OrderedDict)

    def note(self, user: str, name: str, now: float, count: int = 1) -> None:
        """Count that a user met a limit."""
        hit = self._hits.setdefault((user, name), Hit())
        hit.count += count
        hit.unreported += count
        hit.last = now
        self._hits.move_to_end((user, name))
        if len(self._hits) > MOST:
            self._hits.popitem(last=False)

    def due(self, now: float) -> list[tuple[str, str, int]]:
        """Return (user, limit, how often) of the hits to be written to the audit log now."""
        found = []
        for (user, name), hit in self._hits.items():
            if hit.unreported and (hit.reported_at is None or not 0 <= now - hit.reported_at < REPORT_PERIOD):
                found.append((user, name, hit.unreported))
                hit.unreported, hit.reported_at = 0, now
        return found

    def of(self, name: str) -> dict[str, Hit]:
        """Return the hits of one limit, by user."""
        return {user: hit for (user, limit), hit in self._hits.items() if limit == name}
