"""The initial state of a front end: everything it shows at first, as of one cursor, in one read."""

from __future__ import annotations

from functools import partial
from typing import Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.taskwire import OverviewView
from detlab.schemas.wire import TrialState, UserView
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.access import administers
from detlab_hub.services.base.callers import ADMIN, READ, WRITE, Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.queue import queue
from detlab_hub.services.views import experiment_views, pages, task_views
from detlab_hub.store.queries import events, experiments
from detlab_hub.store.tables import ExperimentRow, TaskRow

EXPERIMENTS = 200
ENDED_TASKS = 50
QUEUE = 200
"""Most items of the queue, and of the caller's own in it; GET queue has more."""
PART_BYTES = pages.PAGE_BYTES // 2
"""Of the experiments, the tasks and the queue as JSON, each."""
_OVER = tuple(state.value for state in TrialState if state.terminal)


class Overview(Service):
    """The state of everything at one moment."""

    def __init__(self, context: ServiceContext, cluster: Cluster, agents: Agents) -> None:
        super().__init__(context)
        self._cluster = cluster
        self._agents = agents

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Cluster], services[Agents])

    async def view(self, caller: Caller, *, everybody: bool = False) -> OverviewView:
        """Return cluster, experiments, tasks, queue and agents as of one cursor, from which the stream continues.

        Args:
            caller: Who asks.
            everybody: Show everything that the caller may see instead of what they own (for administrators).
        """
        owner = None if everybody and administers(caller, ObjectKind.EXPERIMENT) else caller.name

        def read(s: Session) -> OverviewView:
            reasons = self._context.pending_reasons
            ids = experiments.page(s, EXPERIMENTS, owner=owner, archived="no")
            shown = partial(experiment_views.experiment_views, s, caller=caller, reasons=reasons)
            tasks = partial(task_views.task_views, s, reasons=reasons)
            return OverviewView(
                cursor=events.head(s),
                me=me(caller),
                cluster=self._cluster.read(s, caller),
                experiments=pages.of_rows(s, ExperimentRow, ids, EXPERIMENTS, shown, PART_BYTES)[0],
                tasks=pages.of_rows(s, TaskRow, (found := _tasks(s, owner)), len(found), tasks, PART_BYTES)[0],
                queue=pages.within(map(pages.brief, queue.items(s, caller, self._context, QUEUE)), PART_BYTES),
                agents=list(self._agents.views(s, caller)),
            )

        return await self._context.look(caller.name, read)


def me(caller: Caller) -> UserView:
    """Return the caller, with the scopes that are known here."""
    return UserView(name=caller.name, scopes=sorted(caller.scopes & {READ, WRITE, ADMIN}), admin=caller.admin)


def _tasks(s: Session, owner: str | None) -> list[str]:
    """Return all tasks that are not over, and the newest that are; newest first."""
    query = select(TaskRow.id, TaskRow.created_at)
    newest = query.order_by(TaskRow.created_at.desc(), TaskRow.id.desc())
    newest = newest if owner is None else newest.where(TaskRow.owner == owner)
    living = s.execute(newest.where(TaskRow.state.not_in(_OVER))).all()
    ended = s.execute(newest.where(TaskRow.state.in_(_OVER)).limit(ENDED_TASKS)).all()
    return [row.id for row in sorted([*living, *ended], key=lambda row: (-row.created_at, row.id))]
