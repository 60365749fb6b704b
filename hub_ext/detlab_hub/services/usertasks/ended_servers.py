"""Servers that ended on their own: unless it is notified, the Hub keeps their names as stopped servers for ever."""

from __future__ import annotations

import logging

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import DetlabError, Unavailable
from detlab.schemas.wire import TrialState
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.usertasks.hub_client import HubServers, ServerOfHub
from detlab_hub.services.usertasks.usertasks import DRAWN, LIVE
from detlab_hub.store.tables import TaskRow

_log = logging.getLogger(__name__)
GRACE_SECONDS = 60.0
"""Seconds between a task's end and the notice to the Hub: a user may be reading the Hub's page of a failed start."""
WINDOW_SECONDS = 86400.0
"""Seconds after a task's end within which a restarted master notifies the Hub again."""
PER_SWEEP = 20
ENDED = tuple(state.value for state in TrialState if state.terminal)


class StoppedServers:
    """Has the Hub forget servers whose names were drawn here. A name that a user chose stays theirs to start again."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._forgotten: set[str] = set()
        """Tasks whose servers the Hub has forgotten, of those that are looked at."""

    async def sweep(self, hub: HubServers) -> None:
        """Have the Hub forget some of the servers whose tasks have ended; what it refuses is tried again."""
        now = self._context.clock()
        ended = await self._context.read(lambda s: _ended(s, now))
        self._forgotten &= set(ended)
        for task_id in [task_id for task_id in ended if task_id not in self._forgotten][:PER_SWEEP]:
            server = ended[task_id]
            try:
                await hub.stop(server.owner, server.name, remove=True)
            except Unavailable:
                return
            except DetlabError as error:
                _log.warning("the Hub keeps the stopped server %s: %s", server.name, error.message)
                continue
            self._forgotten.add(task_id)


def _ended(s: Session, now: float) -> dict[str, ServerOfHub]:
    """Task -> server, of those that ended lately and whose server does not run again; the oldest first."""
    query = (
        select(TaskRow.id, TaskRow.owner, TaskRow.server_name)
        .where(
            TaskRow.state.in_(ENDED),
            TaskRow.server_name.is_not(None),
            TaskRow.ended_at > now - WINDOW_SECONDS,
            TaskRow.ended_at <= now - GRACE_SECONDS,
        )
        .order_by(TaskRow.ended_at)
    )
    found = {
        task_id: ServerOfHub(owner, name or "")
        for task_id, owner, name in s.execute(query)
        if DRAWN.fullmatch(name or "")
    }
    if not found:
        return {}
    live = select(TaskRow.owner, TaskRow.server_name).where(TaskRow.state.in_(LIVE), TaskRow.server_name.is_not(None))
    running = {ServerOfHub(owner, name or "") for owner, name in s.execute(live)}
    return {task_id: server for task_id, server in found.items() if server not in running}
