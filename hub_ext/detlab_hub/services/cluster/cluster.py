"""The cluster as a whole: its view, and its drain."""

from __future__ import annotations

import logging

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import ClusterView, ExperimentState
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.cluster import message
from detlab_hub.services.placement.active_rows import PLACED, slots_for_tasks
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.tables import AllocationRow, ExperimentRow

_log = logging.getLogger(__name__)


class Cluster(Service):
    """Use cases of the cluster."""

    def healthy(self) -> bool:
        """Whether the master can write and its loops run."""
        return self._context.store.healthy and not self._context.stopped

    async def view(self, caller: Caller) -> ClusterView:
        """Return a view of the cluster; experiments are counted as far as the caller may read them."""
        return await self._context.read(lambda s: self.read(s, caller))

    def read(self, s: Session, caller: Caller) -> ClusterView:
        """Return what `view` does, within a read that is in progress."""
        context = self._context
        nodes = context.backend.nodes(context.clock())
        slots = s.scalars(select(AllocationRow.slots).where(AllocationRow.state.in_(PLACED))).all()
        active = select(func.count()).select_from(ExperimentRow)
        active = active.where(
            ExperimentRow.state.in_(
                [state for state in ExperimentState if not state.terminal and state is not ExperimentState.DELETING]
            )
        )
        active = active.where(visible(ObjectKind.JOB, person(caller), owner=ExperimentRow.owner))
        return ClusterView(
            cluster_id=context.settings.cluster_id,
            version=context.settings.version,
            url=context.settings.public_url or context.settings.service_url,
            started_at=context.started_at,
            agents=sum(not node.suspect for node in nodes),
            slots_total=sum(slots_for_tasks(s, nodes).values()),
            slots_used=sum(len(used) for used in slots),
            tasks_running=len(slots),
            experiments_active=s.scalar(active) or 0,
            draining=context.draining,
            is_copy=context.settings.is_copy,
            message=message.now(s, context.clock()),
        )

    async def drain(self, caller: Caller, timeout: float) -> ClusterView:
        """Ask every task to leave within `timeout` seconds, and start nothing new until a restart.

        Nothing is counted against a trial; all run again after the restart. Returns at once: the cluster is
        drained when `tasks_running` is 0.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        check_administers(caller, ObjectKind.CLUSTER, "drain the cluster")
        self._context.draining = True
        self._context.scheduler_kick.set()
        _log.warning("draining, ordered by %s: tasks have %.0f s", caller.name, timeout)

        def drain(unit: UnitOfWork) -> None:
            audit.note(unit, caller, "cluster.drain", "cluster", f"{timeout:.0f} s to leave")
            drain_all(unit, timeout)

        await self._context.write(drain)
        return await self.view(caller)


def drain_all(unit: UnitOfWork, timeout: float) -> None:
    """Preempt everything that has a place, with one deadline."""
    placed = unit.session.scalars(select(AllocationRow).where(AllocationRow.state.in_(PLACED))).all()
    for row in placed:
        unit.holder(row).cluster_drains(unit, row, timeout)
