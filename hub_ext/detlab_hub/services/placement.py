"""Placing: from the rows and the connected agents to a snapshot, from the plan to assigned allocations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState
from detlab_hub.backends.base import Node
from detlab_hub.core.lifecycle.allocation import Assigned
from detlab_hub.core.scheduling import AgentView, Request, Snapshot, schedule
from detlab_hub.services.lives import apply_allocation
from detlab_hub.services.turn import Turn
from detlab_hub.store.prepared import Prepared
from detlab_hub.store.tables import AgentRow, AllocationRow, TrialRow

PLACED = (
    AllocationState.ASSIGNED,
    AllocationState.PULLING,
    AllocationState.STARTING,
    AllocationState.RUNNING,
    AllocationState.TERMINATING,
)
"""States in which an allocation owns its slots."""


class Waiting(NamedTuple):
    """Of an allocation that waits what the plan asks for, and no more: all are looked at each time, few get a place."""

    id: str
    trial_id: int | None
    task_id: str | None
    experiment_id: int | None
    owner: str
    slots_needed: int
    priority: int
    runtime: str
    idx: int | None


_PENDING = Prepared(
    select(
        AllocationRow.id,
        AllocationRow.trial_id,
        AllocationRow.task_id,
        AllocationRow.experiment_id,
        AllocationRow.owner,
        AllocationRow.slots_needed,
        AllocationRow.priority,
        AllocationRow.runtime,
        TrialRow.idx,
    )
    .outerjoin(TrialRow, TrialRow.id == AllocationRow.trial_id)
    .where(AllocationRow.state == AllocationState.PENDING)
)
_TAKEN = Prepared(
    select(AllocationRow.agent_id, AllocationRow.slots, AllocationRow.experiment_id).where(
        or_(*(AllocationRow.state == state for state in PLACED))
    )
)
_DISABLED = Prepared(select(AgentRow.id).where(AgentRow.enabled.is_(False)))


def place(
    turn: Turn, nodes: Sequence[Node], refusals: dict[tuple[int | str, str], float], *, draining: bool
) -> dict[str, str]:
    """Assign what can start now; return why everything else waits, by allocation."""
    pending = [Waiting(*row) for row in _PENDING.all(turn.session, {})]
    if not pending:
        return {}
    if draining:
        return {row.id: "the cluster is draining: nothing new starts until it is restarted" for row in pending}
    excluded: defaultdict[int | str, set[str]] = defaultdict(set)
    for (holder, agent_id), until in refusals.items():
        if until > turn.now:
            excluded[holder].add(agent_id)
    requests = tuple(_request(turn, row, frozenset(excluded.get(holder_of(row), ()))) for row in pending)
    agents, running = agent_views(turn.session, nodes)
    plan = schedule(Snapshot(agents=agents, pending=requests, running=running))
    for assignment in plan.assignments:
        row = turn.session.get_one(AllocationRow, assignment.allocation_id)
        row.agent_id, row.slots = assignment.agent_id, list(assignment.slots)
        apply_allocation(turn, row, Assigned())
    return {allocation_id: reason.text for allocation_id, reason in plan.reasons.items()}


def holder_of(row: AllocationRow | Waiting) -> int | str:
    """What an allocation runs: a trial's number, or a user task's id."""
    return row.task_id if row.task_id is not None else row.trial_id or 0


def _request(turn: Turn, row: Waiting, excluded: frozenset[str]) -> Request:
    if row.experiment_id is None:
        submitted_at, max_slots = turn.task(row.task_id or "").created_at, None
    else:
        experiment = turn.experiment(row.experiment_id)
        submitted_at = experiment.created_at
        max_slots = (experiment.config.get("resources") or {}).get("max_slots")
    return Request(
        allocation_id=row.id,
        experiment_id=row.experiment_id,
        user=row.owner,
        slots=row.slots_needed,
        priority=row.priority,
        submitted_at=submitted_at,
        order=row.idx or 0,
        max_slots=max_slots,
        excluded_agents=excluded,
        runtime=row.runtime,
    )


def agent_views(s: Session, nodes: Sequence[Node]) -> tuple[tuple[AgentView, ...], tuple[tuple[int | None, int], ...]]:
    """The agents with what they run, and (experiment, slots) of everything that has a place."""
    used: defaultdict[str, set[str]] = defaultdict(set)
    zero_slot: defaultdict[str, int] = defaultdict(int)
    running: list[tuple[int | None, int]] = []
    for agent_id, slots, experiment_id in _TAKEN.all(s, {}):
        used[agent_id or ""].update(slots)
        zero_slot[agent_id or ""] += not slots
        running.append((experiment_id, len(slots)))
    disabled = {row.id for row in _DISABLED.all(s, {})}
    agents = tuple(
        AgentView(
            id=node.id,
            slots=node.slots,
            used=frozenset(used[node.id]),
            serves_user=node.serves_user,
            accepting=node.id not in disabled,
            suspect=node.suspect,
            runtimes=frozenset(node.runtimes),
            zero_slot_tasks=zero_slot[node.id],
        )
        for node in nodes
    )
    return agents, tuple(running)
