"""The route of resource pools."""

from __future__ import annotations

from detlab.schemas.poolwire import PoolList
from detlab_hub.services.queue.pools import PoolViews
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("pools", relayed=True)
class Pools(Guarded):
    """Resource pools."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> PoolList:
        """List the pools: how each is scheduled, its agents, its slots, and its pending tasks."""
        return await self.services[PoolViews].list()
