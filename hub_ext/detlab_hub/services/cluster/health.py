"""The health of the service, part by part, for administrators."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab.schemas.taskwire import HealthItem, HealthView
from detlab.schemas.wire import AllocationState
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.store.tables import AgentRow, AllocationRow

_log = logging.getLogger(__name__)
PATIENCE = 5.0
"""Seconds that a part has to answer."""
READY_SECONDS = 2.0
"""For so long an answer of whether it is ready counts: anybody may ask, and each look is a transaction."""
GIB = 1024**3
LEAST_DISK = GIB
"""With less room than this the state folder is in danger: the database stops when the disk is full."""

AskHub = Callable[[], Awaitable[str]]
"""Returns what the Hub says of itself; raises if it does not answer."""


class Health(Service):
    """Checks of every part of the service.

    Args:
        context: What the services share.
        loops: Name -> whether it runs and does its work, of the master's loops.
    """

    def __init__(self, context: ServiceContext, loops: Callable[[], Mapping[str, bool]]) -> None:
        super().__init__(context)
        self._loops = loops
        self._ready: tuple[float, asyncio.Task[bool]] | None = None

    async def ready(self) -> bool:
        """Whether requests can be served now: it reads and writes its database, and holds its lease."""
        now = time.monotonic()
        if self._ready is None or (self._ready[1].done() and now - self._ready[0] >= READY_SECONDS):
            self._ready = now, asyncio.create_task(self._look(), name="readiness")
        return await asyncio.shield(self._ready[1])

    async def _look(self) -> bool:
        if self._context.stopped or not self._context.store.healthy:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                await self._context.write(lambda unit: None)
                await self._context.read(lambda s: s.get(AgentRow, ""))  # any row: whether it answers
        except Exception as error:  # whatever it is, nothing can be served: that is the answer
            _log.warning("not ready: %s", error or type(error).__name__)
            return False
        return not self._context.stopped

    async def view(self, caller: Caller, ask_hub: AskHub) -> HealthView:
        """Return every part of the service and whether it is healthy; an unhealthy part raises nothing.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        check_administers(caller, ObjectKind.SITE, "read the service's health")
        found = await asyncio.gather(
            self._database(),
            self._hub(ask_hub),
            self._agents(),
            self._queue(),
            asyncio.to_thread(_disk, self._context.settings.state_dir),
        )
        items = [*found, self._lease(), self._loop_item()]
        return HealthView(
            ok=all(item.ok for item in items),
            version=self._context.settings.version,
            started_at=self._context.started_at,
            items=items,
        )

    async def _database(self) -> HealthItem:
        """Run a write transaction of its own: it takes the lock and checks the lease, and changes nothing."""
        store = self._context.store
        if store.broken_because is not None:
            return HealthItem(name="database", ok=False, detail=store.broken_because)
        began = time.monotonic()
        try:
            await asyncio.wait_for(self._context.write(lambda unit: None), PATIENCE)
        except (DetlabError, TimeoutError) as error:
            return HealthItem(name="database", ok=False, detail=f"{store.url}: {error or 'no write in time'}")
        taken = 1000 * (time.monotonic() - began)
        return HealthItem(name="database", ok=True, detail=f"{store.url}: can write ({taken:.0f} ms)")

    async def _hub(self, ask: AskHub) -> HealthItem:
        try:
            said = await asyncio.wait_for(ask(), PATIENCE)
        except Exception as error:  # whatever a client of HTTP raises: it is the answer
            return HealthItem(name="hub", ok=False, detail=f"does not answer: {error or type(error).__name__}"[:300])
        return HealthItem(name="hub", ok=True, detail=said)

    async def _agents(self) -> HealthItem:
        now = self._context.clock()

        def read(s: Session) -> list[tuple[str, bool]]:
            return [(row.id, row.enabled) for row in s.execute(select(AgentRow.id, AgentRow.enabled))]

        agents = await self._context.read(read)
        states = Counter(self._context.backend.state_of(agent_id, now) for agent_id, _ in agents)
        said = [f"{states[state]} {state}" for state in ("connected", "suspect", "lost") if states[state]]
        disabled = sum(not enabled for _, enabled in agents)
        said += [f"{disabled} disabled"] if disabled else []
        return HealthItem(
            name="agents", ok=states["suspect"] + states["lost"] == 0, detail=", ".join(said) or "none is enrolled"
        )

    async def _queue(self) -> HealthItem:
        now = self._context.clock()
        count, oldest = await self._context.read(count_waiting)
        longest = "" if oldest is None else f", the first for {max(0.0, now - oldest):.0f} s"
        halted = f"; {self._context.halted}" if self._context.halted else ""
        return HealthItem(name="queue", ok=not halted, detail=f"{count} waiting{longest}{halted}")

    def _lease(self) -> HealthItem:
        store = self._context.store
        return HealthItem(name="lease", ok=store.healthy, detail=f"epoch {store.epoch}, held by {store.holder}")

    def _loop_item(self) -> HealthItem:
        loops = self._loops()
        dead = sorted(name for name, well in loops.items() if not well)
        ok = bool(loops) and not dead and not self._context.stopped
        detail = f"{len(loops) - len(dead)} of {len(loops)} run"
        return HealthItem(
            name="loops", ok=ok, detail=detail + (f"; ended or failing: {', '.join(dead)}" if dead else "")
        )


def count_waiting(s: Session) -> tuple[int, float | None]:
    """Return how many trials and tasks wait for slots, and since when the first of them does."""
    query = select(func.count(), func.min(AllocationRow.requested_at))
    count, oldest = s.execute(query.where(AllocationRow.state == AllocationState.PENDING)).one()
    return int(count), oldest


def _disk(folder: Path) -> HealthItem:
    try:
        room = shutil.disk_usage(folder)
    except OSError as error:
        return HealthItem(name="disk", ok=False, detail=f"{folder}: {error.strerror}")
    detail = f"{folder}: {room.free / GIB:.1f} of {room.total / GIB:.1f} GiB free"
    return HealthItem(name="disk", ok=room.free >= LEAST_DISK, detail=detail)
