"""Routes of the Hub's spawner, by its own token, and of tasks' reports of their use."""

from __future__ import annotations

from detlab.schemas.taskwire import ActivityReply, ActivityReport, SpawnOffers, SpawnRequest, SpawnView
from detlab.schemas.wire import Wire
from detlab_hub.core.rights import Action
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.spawns import Spawns as SpawnsService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.streaming import StreamHandler
from detlab_hub.web.tasks.tasks import TaskRoute


@route("spawns")
class Spawns(Guarded):
    """All of them."""

    @needs("hub", cross_site="token", action=Action.SPAWN_START, status=201)
    async def post(self, body: SpawnRequest) -> SpawnView:
        """Ask for a server of the Hub; the same key returns the task that was made first."""
        return await self.services[SpawnsService].post(self.hub, body)


class OffersQuery(Wire):
    """Whose form it is."""

    owner: str


@route("spawns/offers")
class Offers(Guarded):
    """The choices of a form."""

    @needs("hub", cross_site="token")
    async def get(self, query: OffersQuery) -> SpawnOffers:
        """Say which runtimes no agent has now that is there for this user."""
        return await self.services[SpawnsService].offers(self.hub, query.owner)


@route("spawns/{task_id}")
class Spawn(Guarded):
    """One of them."""

    @needs("hub", cross_site="token")
    async def get(self, task_id: str) -> SpawnView:
        """Return how a spawn stands."""
        return await self.services[SpawnsService].get(self.hub, task_id)

    @needs("hub", cross_site="token", action=Action.SPAWN_END)
    async def delete(self, task_id: str) -> SpawnView:
        """End a server, or withdraw one that waits."""
        return await self.services[SpawnsService].delete(self.hub, task_id)


@route("spawns/{task_id}/claim")
class Claim(Guarded):
    """Taking one over."""

    @needs("hub", cross_site="token", action=Action.SPAWN_CLAIM)
    async def post(self, task_id: str) -> SpawnView:
        """Say that the Hub has the server's address: the stream is no lease any more."""
        return await self.services[SpawnsService].claim(self.hub, task_id)


@route("spawns/{task_id}/stream")
class SpawnStream(StreamHandler):
    """One of them, live."""

    @needs("hub", cross_site="token", streams=SpawnView)
    async def get(self, task_id: str) -> None:
        """Follow a spawn until it has ended; an unclaimed one without a follower is abandoned."""
        await self.stream(self.services[SpawnsService].follow(self.hub, task_id))


@route("task/activity")
class Activity(TaskRoute):
    """When a task was last used."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT)
    async def post(self, body: ActivityReport) -> ActivityReply:
        """Say when the task was last used; the answer says when it is ended for idleness."""
        return await self.services[Servers].idle.report(self.task, body)
