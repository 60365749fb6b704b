"""A cache of the holders of running tasks' tokens: each report and each poll of a task carries one.

The cache grants no write: every write checks the attempt in its own transaction (`fencing`, I3). So an entry may be
stale until the end of its attempt is known here. Ends are known with the commit; a change of the database by another
master is not, for which entries expire after a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from detlab_hub.services.base.callers import TaskCaller

LASTS = 10.0
"""Seconds: less than a lease, within which a master learns that another one has taken over."""
MOST = 20_000


class _Known(NamedTuple):
    caller: TaskCaller
    until: float


@dataclass
class KnownTasks:
    """Holders of tokens by the tokens' digests. Of the event loop only.

    Attributes:
        ends: How many attempts have ended; one that ended while its token was looked up is not remembered.
    """

    ends: int = 0
    _known: dict[str, _Known] = field(default_factory=dict)
    _digests: dict[str, set[str]] = field(default_factory=dict)

    def get(self, digest: str, now: float) -> TaskCaller | None:
        """Return the holder of a token; None if it has to be read from the database."""
        found = self._known.get(digest)
        return found.caller if found is not None and now < found.until else None

    def keep(self, digest: str, caller: TaskCaller, expires_at: float | None, now: float, ends: int) -> None:
        """Remember the holder of a token.

        Args:
            digest: The token's digest.
            caller: Who holds it.
            expires_at: When the token expires, in seconds since the epoch; None: never.
            now: When it was looked up.
            ends: The value of `ends` before that.
        """
        if ends != self.ends:
            return
        if len(self._known) >= MOST:
            self._known.clear()
            self._digests.clear()
        until = now + LASTS if expires_at is None else min(now + LASTS, expires_at)
        self._known[digest] = _Known(caller, until)
        self._digests.setdefault(caller.allocation_id, set()).add(digest)

    def forget(self, allocation_ids: Iterable[str]) -> None:
        """Forget the tokens of attempts that have ended."""
        for allocation_id in allocation_ids:
            self.ends += 1
            for digest in self._digests.pop(allocation_id, ()):
                self._known.pop(digest, None)
