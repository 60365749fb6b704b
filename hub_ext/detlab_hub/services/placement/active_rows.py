"""The rows of pending and of placed allocations, as a scheduling pass reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState
from detlab_hub.backends.base import Node
from detlab_hub.core.lifecycle.allocation import PreemptReason
from detlab_hub.core.scheduling import AgentState
from detlab_hub.store.prepared import PreparedStatement, Seen
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AgentRow, AllocationRow, TrialRow

PLACED = (
    AllocationState.ASSIGNED,
    AllocationState.PULLING,
    AllocationState.STARTING,
    AllocationState.RUNNING,
    AllocationState.TERMINATING,
)
"""States in which an allocation owns its slots."""


class WaitingRow(NamedTuple):
    """The columns of a pending allocation that a pass needs, and no more: all are read each time, few are placed."""

    id: str
    trial_id: int | None
    task_id: str | None
    experiment_id: int | None
    owner: str
    slots_needed: int
    runtime: str
    constraints: dict[str, Any] | None
    millicpus: int
    memory: int
    max_time: float | None
    requested_at: float
    idx: int | None


class PlacedRow(NamedTuple):
    """The columns of a placed allocation that a pass needs."""

    id: str
    trial_id: int | None
    task_id: str | None
    experiment_id: int | None
    owner: str
    state: str
    agent_id: str | None
    slots: list[str]
    millicpus: int
    memory: int
    assigned_at: float | None
    started_at: float | None
    max_time: float | None
    preempt_at: float | None
    nodes: int
    requested_at: float
    idx: int | None


def _columns_of(row: type[WaitingRow | PlacedRow]) -> Select[Any]:
    columns = [getattr(AllocationRow, name) for name in row._fields if name != "idx"]
    return select(*columns, TrialRow.idx).outerjoin(TrialRow, TrialRow.id == AllocationRow.trial_id)


_PENDING = PreparedStatement(_columns_of(WaitingRow).where(AllocationRow.state == AllocationState.PENDING))
_TAKEN = PreparedStatement(_columns_of(PlacedRow).where(or_(*(AllocationRow.state == state for state in PLACED))))


def read_waiting(s: Session, before: Mapping[str, Seen[WaitingRow]]) -> dict[str, Seen[WaitingRow]]:
    """Read the pending allocations by id; an unchanged one is the same object as in `before`."""
    return _PENDING.again(s, {}, before, WaitingRow)


def read_placed(s: Session, before: Mapping[str, Seen[PlacedRow]]) -> dict[str, Seen[PlacedRow]]:
    """Read the placed allocations by id; an unchanged one is the same object as in `before`."""
    return _TAKEN.again(s, {}, before, PlacedRow)


def experiment_name(number: int | None) -> str:
    """Return an experiment's id as a job."""
    return f"experiment {number}"


def job_of(row: WaitingRow | PlacedRow) -> str:
    """Return the id of an allocation's job, as in reasons."""
    return row.task_id if row.task_id is not None else experiment_name(row.experiment_id)


def holder_of(row: AllocationRow | WaitingRow) -> int | str:
    """Return the holder of an allocation: a trial's id, or a user task's id."""
    return row.task_id if row.task_id is not None else row.trial_id or 0


def slots_for_tasks(s: Session, nodes: Sequence[Node]) -> dict[str, int]:
    """Return how many slots each node has for tasks: without those that others use, with those that tasks hold."""
    taken = {node.id: node.taken for node in nodes if node.taken}
    held = parts.held_on(s, taken, PLACED) if taken else {}
    shut = {name: len(slots - held.get(name, set())) for name, slots in taken.items()}
    return {node.id: node.slot_count - shut.get(node.id, 0) for node in nodes}


_CLOSED = PreparedStatement(
    select(AgentRow.id, AgentRow.enabled, AgentRow.drain, AgentRow.slots_off).where(
        or_(AgentRow.enabled.is_(False), AgentRow.slots_off != [])
    )
)
_PREEMPTED = PreparedStatement(
    select(AllocationRow.trial_id, func.count())
    .where(
        AllocationRow.trial_id.in_(
            select(AllocationRow.trial_id).where(
                or_(
                    and_(AllocationRow.state == AllocationState.PENDING, AllocationRow.run > 1),
                    *(AllocationRow.state == state for state in PLACED),
                ),
                AllocationRow.trial_id.is_not(None),
            )
        ),
        AllocationRow.preempt_reason == PreemptReason.PREEMPT.value,
        AllocationRow.preempt_at > bindparam("since"),
    )
    .group_by(AllocationRow.trial_id)
)


def closed_agents(s: Session) -> tuple[dict[str, AgentState], dict[str, list[str]]]:
    """Return what administrators closed: agents, and single slots by their agents."""
    rows = _CLOSED.all(s, {})
    agents = {
        name: AgentState.DRAINING if drain else AgentState.DISABLED for name, enabled, drain, _ in rows if not enabled
    }
    return agents, {name: off for name, _, _, off in rows if off}


def preempted_since(s: Session, since: float) -> list[Any]:
    """Return (trial, count) of preemptions since a time, of trials that have slots or wait for some again."""
    return _PREEMPTED.all(s, {"since": since})
