"""Routes of front ends: their initial state, the queue, and an experiment's timeline."""

from __future__ import annotations

from detlab.schemas.taskwire import OverviewView, QueueView, TimelineView
from detlab.schemas.wire import Wire
from detlab_hub.services.cluster.overview import Overview as OverviewService
from detlab_hub.services.experiments.timeline import Timeline as TimelineService
from detlab_hub.services.queue.queue import Queue as QueueService
from detlab_hub.services.views.pages import in_part
from detlab_hub.web.base import Guarded, PartQuery
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class OverviewQuery(Wire):
    """The owner of the work."""

    all: bool = False
    """Those of all users that the caller may see, not only the caller's own."""


@route("overview", relayed=True)
class Overview(Guarded):
    """The initial state of a panel."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: OverviewQuery) -> OverviewView:
        """Return experiments, tasks, queue and agents as of one cursor; follow the stream from there."""
        return await self.services[OverviewService].view(self.person, everybody=query.all)


@route("queue", relayed=True)
class Queue(Guarded):
    """The pending tasks."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: PartQuery) -> QueueView:
        """List pending tasks, in the scheduler's order; other users' tasks have no name."""
        return in_part(await self.services[QueueService].view(self.person), query.skip)


@route("experiments/{experiment_id}/timeline", relayed=True)
class Timeline(Guarded):
    """The course of an experiment."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int) -> TimelineView:
        """List what happened to an experiment, oldest first."""
        return await self.services[TimelineService].view(self.person, experiment_id)
