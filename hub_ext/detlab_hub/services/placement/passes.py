"""Placing: a scheduling pass over each pool with pending tasks, and its decision as allocations.

A preemption is stored before the task is notified: a restarted master finds it there, and chooses no other victim in
its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from sqlalchemy.orm import Session

from detlab.schemas.runtimes import chosen
from detlab.schemas.wire import ForecastView
from detlab_hub.backends.base import Node
from detlab_hub.core.lifecycle.allocation import Assigned, PreemptReason
from detlab_hub.core.scheduling import Job, PlacementDecision, SchedulerTask, Snapshot, divide, hand_over, schedule
from detlab_hub.core.scheduling.fit.slot_choice import pick
from detlab_hub.core.scheduling.gc_pause import without_collection
from detlab_hub.services.base.pending import NONE_HELD_BACK, PendingReasons, Saving
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.lifecycle.transitions import ask_to_leave
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.services.placement.after_checkpoint import DelayedPreemption
from detlab_hub.services.placement.remembered import PreviousPassTasks
from detlab_hub.services.placement.snapshots import ClusterSnapshot, Refusals, read_cluster, snapshots
from detlab_hub.store.session import insert_row
from detlab_hub.store.tables import AgentRow, AllocationRow, PartRow

__all__ = ["PLACED", "WaitVerdict", "forecast", "place"]
Seat = tuple[str, list[str]]
"""An agent, and the slots of it that one node of an allocation has."""
Queues = Mapping[str, str]
"""Pools in which a backend places, and the id to which their allocations are handed over; see `Backend.queues`."""


class WaitVerdict(NamedTuple):
    """Why each allocation without a place waits: for people, and the code of the closed set ("" for a drain)."""

    texts: PendingReasons
    codes: dict[str, str]
    saving: Saving = NONE_HELD_BACK
    """Victims whose preemption is delayed until a checkpoint."""


def _in_order(cluster: ClusterSnapshot, texts: Mapping[str, str], codes: Mapping[str, str]) -> WaitVerdict:
    """Return the pending reasons in the order of the queue, from which positions are read."""
    queue = [(holder.pool, row.id) for holder, rows in cluster.queue() for row in rows if row.id in texts]
    pools = {name: pool for pool, name in queue}
    return WaitVerdict(
        PendingReasons({name: texts[name] for name in pools}, pools), {name: codes[name] for name in pools}
    )


def forecast(
    s: Session,
    nodes: Sequence[Node],
    refusals: Refusals,
    now: float,
    settings: Settings,
    task: SchedulerTask,
    job: Job,
    pool: str,
    queues: Queues,
) -> ForecastView:
    """Return what the next pass would do with one more task.

    Args:
        s: A session.
        nodes: As for `snapshots`.
        refusals: As for `snapshots`.
        now: The time, in seconds since the epoch.
        settings: The master's settings.
        task: What is requested.
        job: Its job.
        pool: The name of an existing pool.
        queues: The pools that a backend places, see `Backend.queues`.
    """
    snapshot = snapshots(s, [*nodes, *_stand_ins(s, queues)], refusals, now, settings)[pool]
    jobs = {**snapshot.jobs, job.id: job}
    decision = _decide(replace(snapshot, jobs=jobs, tasks=(*snapshot.tasks, task)), queues.get(pool))
    if task.id in decision.allocate:
        return ForecastView(pool=pool, agent_id=", ".join(sorted(decision.allocate[task.id])))
    reason = decision.waiting[task.id]
    return ForecastView(pool=pool, reason=reason.code.value, detail=reason.detail)


def _stand_ins(s: Session, queues: Queues) -> list[Node]:
    """Return a node without slots for each queue: what was handed over to it counts as held in its pool.

    Whom it serves is as it has said last, also while it is away.
    """
    known = {to: s.get(AgentRow, to) for to in queues.values()}
    return [
        Node(id=to, slots=(), pool=pool, serves_user=None if (row := known[to]) is None else row.serves_user)
        for pool, to in queues.items()
    ]


def _decide(snapshot: Snapshot, queue: str | None) -> PlacementDecision:
    """Choose nodes for what can start now; or only what goes to a queue, for a backend that places itself."""
    return schedule(snapshot) if queue is None else hand_over(snapshot, queue)


@without_collection()
def place(
    unit: UnitOfWork,
    nodes: Sequence[Node],
    refusals: Refusals,
    known: PreviousPassTasks,
    before: Saving,
    queues: Queues,
    *,
    halted: str,
) -> WaitVerdict:
    """Assign what can start now, and ask preemption victims to leave; return why everything else waits.

    Args:
        unit: The transaction.
        nodes: The connected nodes.
        refusals: As for `snapshots`.
        known: The cache of tasks, the same in every pass.
        before: The victims that the previous pass held back.
        queues: The pools that a backend places, see `Backend.queues`.
        halted: Why nothing starts; empty: it does.
    """
    cluster = read_cluster(
        unit.session, [*nodes, *_stand_ins(unit.session, queues)], refusals, unit.now, unit.settings, known
    )
    if cluster is None:
        return WaitVerdict(PendingReasons(), {})
    texts: dict[str, str] = {}
    codes: dict[str, str] = {}
    if halted:
        texts = dict.fromkeys((row.id for row in cluster.pending), halted)
        return _in_order(cluster, texts, dict.fromkeys(texts, ""))
    pools, delayed = unit.settings.pools, DelayedPreemption(unit, before)
    wanted = {cluster.holder(row).pool for row in cluster.pending}
    for name, pool in pools.by_name.items():
        if name not in wanted:
            continue
        snapshot = delayed.as_leaving(cluster.snapshot(pool))
        decision = _decide(snapshot, queues.get(name))
        later = delayed.hold_back(decision)
        _carry_out(unit, cluster, name, snapshot, decision, delayed.saving, handed=name in queues)
        texts.update((waiting, reason.detail) for waiting, reason in decision.waiting.items())
        texts.update((waiting, f"{texts[waiting]}, after a checkpoint that is near") for waiting in later)
        codes.update((waiting, reason.code.value) for waiting, reason in decision.waiting.items())
    for row in cluster.pending if any(pools.of(name) is None for name in wanted) else ():
        lost = cluster.holder(row).pool
        if pools.of(lost) is None:
            texts[row.id] = f"there is no pool {lost!r} any more; move it to another one, or submit it again"
            codes[row.id] = "no_agent"
    return _in_order(cluster, texts, codes)._replace(saving=delayed.saving)


def _carry_out(
    unit: UnitOfWork,
    cluster: ClusterSnapshot,
    pool: str,
    snapshot: Snapshot,
    decision: PlacementDecision,
    saving: Saving,
    *,
    handed: bool,
) -> None:
    """Write a pass's decision as rows, and messages after the commit; delayed preemptions are not sent yet."""
    free = _free_slots(cluster, {agent for placement in decision.allocate.values() for agent in placement})
    tasks = {task.id: task for task in snapshot.tasks}
    runtimes = {node.id: node.runtimes for node in cluster.nodes if node.id in free}
    price = unit.settings.pools.by_name[pool].price
    for allocation_id, placement in decision.allocate.items():
        row = unit.session.get_one(AllocationRow, allocation_id)
        seats: list[Seat] = []
        for agent_id, count in sorted(placement.items(), key=lambda one: (-one[1], one[0])):
            if handed:
                seats += _handed(unit, row, cluster, agent_id, tasks[allocation_id])
                continue
            picked = pick(free[agent_id], count)
            seats.append((agent_id, picked))
            free[agent_id] = [slot for slot in free[agent_id] if slot not in picked]
        _seat(unit, row, seats)
        row.runtime = chosen(row.runtime, runtimes.get(row.agent_id or "", ()))
        row.pool, row.price = pool, price
        apply_allocation(unit, row, Assigned())
        cluster.held.append((pool, tasks[allocation_id].job, row.owner, sum(placement.values())))
    for allocation_id in decision.release:
        if allocation_id not in saving:
            row = unit.session.get_one(AllocationRow, allocation_id)
            ask_to_leave(unit, unit.experiment(row.experiment_id or 0), row, PreemptReason.PREEMPT)


def _handed(unit: UnitOfWork, row: AllocationRow, cluster: ClusterSnapshot, to: str, task: SchedulerTask) -> list[Seat]:
    """Return the nodes of a task that a batch system places; of their slots only the number is known."""
    counts = [task.slots]
    queue = next((node.queue for node in cluster.nodes if node.id == to and node.queue is not None), None)
    if queue is not None and queue.gangs and not task.single_node:
        holder = unit.task(row.task_id or "") if row.experiment_id is None else unit.experiment(row.experiment_id)
        asked = holder.config.get("slurm") or {}
        counts = divide(task.slots, asked.get("slots_per_node"), queue.slots_per_node)
    names = (f"any{number}" for number in range(task.slots))
    return [(to, list(islice(names, count))) for count in counts]


def _seat(unit: UnitOfWork, row: AllocationRow, seats: Sequence[Seat]) -> None:
    """Write down where an allocation runs: the slots of each node, the chief's first. A gang has all or none."""
    row.agent_id, row.nodes = seats[0][0], len(seats)
    if row.nodes > 1:
        row.slots = [f"{agent_id}/{slot}" for agent_id, slots in seats for slot in slots]
    else:
        row.slots = seats[0][1]
    for rank, (agent_id, slots) in enumerate(seats):
        insert_row(unit.session, PartRow(allocation_id=row.id, rank=rank, agent_id=agent_id, slots=slots))


def _free_slots(cluster: ClusterSnapshot, agents: Collection[str]) -> dict[str, list[str]]:
    """Return the free slots of some agents."""
    used: defaultdict[str, set[str]] = defaultdict(set)
    for row in cluster.placed:
        for agent_id, slots in cluster.slots_of(row).items():
            if agent_id in agents:
                used[agent_id].update(slots)
    nodes = (node for node in cluster.nodes if node.id in agents)
    return {node.id: [slot for slot in node.slots if slot not in used[node.id]] for node in nodes}
