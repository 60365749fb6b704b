"""The master's own log, for administrators: its newest lines, and its level."""

from __future__ import annotations

import logging

from detlab.schemas.wire.cluster.master import LogLevel, MasterLogPage
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.cluster.log_lines import RECENT


class MasterLog(Service):
    """What the master has written since it started."""

    async def page(
        self, caller: Caller, *, after: int | None, limit: int, level: LogLevel, search: str = ""
    ) -> MasterLogPage:
        """Return lines, oldest first.

        Args:
            caller: Who asks.
            after: Only those with larger ids; None: the newest ones.
            limit: How many at most.
            level: Only those of this level, and above.
            search: Only those with this text, whatever its case.

        Raises:
            Forbidden: The caller is no administrator.
        """
        check_administers(caller, ObjectKind.SITE, "read the master's log")
        least = logging.getLevelNamesMapping()[level.upper()]
        return RECENT.page(after=after, limit=limit, least=least, search=search)

    async def set_level(self, caller: Caller, level: LogLevel) -> None:
        """Write only lines of a level and above, until the next start.

        Raises:
            Forbidden: The caller is no administrator.
        """
        check_administers(caller, ObjectKind.SITE, "change settings of the master")
        await self._context.write(
            lambda unit: audit.note(unit, caller, "master.configure", "master", f"log_level {level}")
        )
        logging.getLogger().setLevel(level.upper())


def level_now() -> str:
    """Return the level of the log."""
    return logging.getLevelName(logging.getLogger().getEffectiveLevel()).lower()
