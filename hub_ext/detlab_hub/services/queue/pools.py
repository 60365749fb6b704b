"""The views of resource pools: how each is scheduled, and how full it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict

from sqlalchemy.orm import Session

from detlab.schemas.poolwire import BatchSystemView, PoolList, PoolView
from detlab.schemas.wire import Partition
from detlab_hub.backends.base import BatchSystem, Node
from detlab_hub.core.scheduling import PoolConfig, Pools, Scheduler
from detlab_hub.services.base.context import Service
from detlab_hub.services.placement.active_rows import PLACED, slots_for_tasks
from detlab_hub.store.queries import pools


class PoolViews(Service):
    """Use cases of pools. They hold numbers only, so that all users may read them (I9)."""

    async def list(self) -> PoolList:
        """List all pools that the operator configured, and the default one, in the operator's order."""
        return await self._context.read(self._read)

    def _read(self, s: Session) -> PoolList:
        configured = self._context.settings.pools
        nodes = self._context.backend.nodes(self._context.clock())
        used, running = Counter[str](), Counter[str]()
        for one in pools.held(s, PLACED):
            used[one.pool or ""] += len(one.slots)
            running[one.pool or ""] += 1
        waiting = {queued.pool: queued for queued in pools.queued(s)}
        closed, offered = pools.closed(s), slots_for_tasks(s, nodes)
        found = []
        for name, pool in configured.by_name.items():
            queued = waiting.get(name, pools.Queued(name, 0, 0))
            here = [node for node in nodes if node.pool == name]
            facts = {
                "takes": _takes(configured, name),
                "slots_total": sum(offered[node.id] for node in here),
                "slots_used": used[name],
                "tasks_running": running[name],
                "tasks_waiting": queued.tasks,
                "slots_waiting": queued.slots,
            }
            found.append(_view(pool, here, closed).model_copy(update=facts))
        return PoolList(items=found)


def _takes(configured: Pools, name: str) -> list[str]:
    """Return which tasks without a pool in their config go to this one."""
    of = {"slots": configured.compute, "no_slots": configured.zero_slot}
    return [what for what, pool in of.items() if pool == name]


def _view(pool: PoolConfig, nodes: list[Node], closed: Collection[str]) -> PoolView:
    """Make the view of a pool from its configuration and agents."""
    rules = pool.rules
    takes_away = {Scheduler.PRIORITY: rules.preemption, Scheduler.FAIR_SHARE: True, Scheduler.ROUND_ROBIN: False}
    heard = [node for node in nodes if not node.suspect]
    of_users = {"usage_half_life": rules.half_life, "min_run": pool.min_run, "evict_after": pool.evict_after}
    return PoolView(
        **(of_users if pool.by_users else {}),
        share_by=rules.share_by.value,
        price=pool.price,
        name=pool.name,
        description=pool.description,
        scheduler=rules.scheduler.value,
        preemption=takes_away[rules.scheduler],
        fitting=rules.fitting.value,
        heterogeneous=rules.heterogeneous,
        priority=pool.priority,
        patience=pool.patience,
        slots_per_device=pool.slots_per_device,
        enforces=sorted(frozenset[str]().union(*(node.enforces for node in heard))),
        elastic=pool.provider is not None,
        agents=len(heard),
        agents_away=len(nodes) - len(heard),
        agents_closed=sum(node.id in closed for node in heard),
        batch=next((_batch(node.queue) for node in nodes if node.queue is not None), None),
    )


def _batch(queue: BatchSystem) -> BatchSystemView:
    return BatchSystemView(
        name=queue.name,
        slots=queue.slots,
        slots_per_node=queue.slots_per_node,
        partitions=[Partition.model_validate(asdict(one)) for one in queue.partitions],
    )
