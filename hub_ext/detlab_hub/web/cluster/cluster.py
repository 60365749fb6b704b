"""Routes of the cluster itself: health, readiness, who am I, its view, drain, and the API's own description."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field, RootModel

from detlab.errors import Unavailable
from detlab.schemas.wire import ClusterView, PersonRequest, UserView, Wire
from detlab_hub.core.rights import Action
from detlab_hub.services.cluster.cluster import Cluster as ClusterService
from detlab_hub.services.cluster.health import Health as HealthService
from detlab_hub.services.cluster.overview import me
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import page, route
from detlab_hub.web.scopes import needs


class Health(Wire):
    """The master serves."""

    status: str = "ok"


class DrainRequest(PersonRequest):
    """How long tasks may take to save and leave."""

    timeout: float = Field(60.0, ge=0, le=86400)
    """Seconds."""


class OpenApiDocument(RootModel[dict[str, Any]]):
    """An OpenAPI 3.1 document."""


@page("health")
class HealthRoute(Guarded):
    """Liveness."""

    @needs("public", cross_site="open")
    async def get(self) -> Health:
        """Say whether the master serves: 503 when it cannot write."""
        if not self.services[ClusterService].healthy():
            raise Unavailable("the master cannot write now", hint="Its log says why.")
        return Health()


@page("ready")
class ReadyRoute(Guarded):
    """Readiness."""

    @needs("public", cross_site="open")
    async def get(self) -> Health:
        """Say whether the master reads and writes its database now: else 503. Nothing else is told."""
        if not await self.services[HealthService].ready():
            raise Unavailable("the master is not ready")
        return Health()


@route("me", relayed=True)
class Me(Guarded):
    """The caller."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> UserView:
        """Say who the token belongs to and what it may do."""
        return me(self.person)


@route("cluster", relayed=True)
class Cluster(Guarded):
    """The cluster."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> ClusterView:
        """Return a view of the cluster."""
        return await self.services[ClusterService].view(self.person)


@route("cluster/drain")
class Drain(Guarded):
    """Draining."""

    @needs("admin", cross_site="xsrf", action=Action.CLUSTER_DRAIN)
    async def post(self, body: DrainRequest) -> ClusterView:
        """Preempt all tasks (uncounted) and start nothing new until the master is restarted."""
        return await self.services[ClusterService].drain(self.person, body.timeout)


@route("openapi.json", relayed=True)
class OpenApi(Guarded):
    """The description of this API."""

    @needs("read", cross_site="link")
    async def get(self) -> OpenApiDocument:
        """Return this document."""
        # Made when it is first asked for: that takes a tenth of a second, which a start need not wait for.
        return OpenApiDocument(await asyncio.to_thread(self.settings["openapi"]))
