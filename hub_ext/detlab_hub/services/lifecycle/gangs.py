"""The state of an allocation from what each agent reports of its part.

Every function takes the allocation's row and the reporting agent. Each node has a part, an allocation on one node is a
gang of one, and the row moves when the parts have: it runs when all do, a part that fails or is lost has the others
killed, and it has ended when all parts have. The agent of a batch system has the parts of all nodes, as one job: what
it reports is true of each.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from detlab.errors import Conflict
from detlab.schemas.wire import TaskExited
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.core.lifecycle import gang
from detlab_hub.core.lifecycle.allocation import EndKind
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.lifecycle.rows import allocation_of
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AllocationRow, PartRow

_log = logging.getLogger(__name__)


def holds(unit: UnitOfWork, row: AllocationRow, agent_id: str) -> bool:
    """Whether an agent has a part of the allocation that has not ended."""
    return any(part.end is None for part in parts.on(unit.session, row, agent_id))


def slots_on(unit: UnitOfWork, row: AllocationRow, agent_id: str) -> Sequence[str]:
    """Return the slots that the allocation has on an agent."""
    return [slot for part in parts.on(unit.session, row, agent_id) for slot in part.slots]


def has_begun(unit: UnitOfWork, row: AllocationRow, agent_id: str) -> bool:
    """Whether an agent has reported that the allocation's task runs, or the task must not start there any more."""
    if row.state not in allocations.NOT_BEGUN:
        return True
    mine = parts.on(unit.session, row, agent_id)
    return bool(mine) and all(part.started for part in mine)


def started(unit: UnitOfWork, row: AllocationRow, agent_id: str) -> None:
    """Handle an agent's report that the allocation's task runs on it."""
    for part in parts.on(unit.session, row, agent_id):
        _part_started(unit, row, part)


def reported(unit: UnitOfWork, row: AllocationRow, node: int) -> PartRow | None:
    """Handle a report of the task itself, whether or not its agent has reported its start.

    Returns:
        The part of that node, None for the chief's.

    Raises:
        Conflict: The allocation has no such node: records of others must not be counted as its own.
    """
    if node == 0 and row.state not in allocations.NOT_BEGUN:
        return None  # as nearly all reports: no part moves by it
    part = unit.session.get(PartRow, (row.id, node))
    if part is None:
        raise Conflict(f"attempt {row.run} has {row.nodes} nodes, and no node {node}")
    _part_started(unit, row, part)
    return part if node else None


def _part_started(unit: UnitOfWork, row: AllocationRow, part: PartRow) -> None:
    if part.started or row.state not in allocations.NOT_BEGUN:
        return
    part.started = True
    _begin_when_all_have(unit, row, parts.of_allocation(unit.session, row))


def _begin_when_all_have(unit: UnitOfWork, row: AllocationRow, everywhere: Sequence[PartRow]) -> None:
    """Mark the allocation as running once each part has started; an ended part counts as started, reported or not."""
    if all(one.started or one.end is not None for one in everywhere):
        apply_allocation(unit, row, allocations.AllocationStarted())


def exited(unit: UnitOfWork, row: AllocationRow, agent_id: str, told: TaskExited) -> None:
    """Handle the exit of the allocation's part on an agent."""
    _parts_ended(unit, row, agent_id, allocations.kind_of_exit(allocation_of(row), told.exit_code), told)


def refused(unit: UnitOfWork, row: AllocationRow, agent_id: str, told: TaskExited) -> None:
    """Handle an agent's refusal to start its part."""
    _parts_ended(unit, row, agent_id, EndKind.REFUSED, told)


def lost(unit: UnitOfWork, row: AllocationRow, agent_id: str, told: TaskExited | None = None) -> None:
    """Handle the loss of an agent, or its return without the allocation's part."""
    _parts_ended(unit, row, agent_id, EndKind.LOST, told)


def _parts_ended(unit: UnitOfWork, row: AllocationRow, agent_id: str, kind: EndKind, told: TaskExited | None) -> None:
    mine = [part for part in parts.on(unit.session, row, agent_id) if part.end is None]
    if not mine:
        return
    for part in mine:
        part.end, part.ended_at = kind.value, unit.now
        part.heard = None if told is None else told.model_dump()
    _log.info("allocation %s: its part on agent %s ended: %s", row.id, agent_id, kind)
    everywhere = parts.of_allocation(unit.session, row)
    if all(one.end is not None for one in everywhere):
        _close(unit, row, everywhere)
    elif gang.breaks(kind):
        apply_allocation(unit, row, allocations.AllocationKillRequested(unit.now))
    else:
        _begin_when_all_have(unit, row, everywhere)


def _close(unit: UnitOfWork, row: AllocationRow, everywhere: Sequence[PartRow]) -> None:
    """End the attempt when no part is left: the deciding part, the first of them that ended so, gives the outcome."""
    kind = gang.verdict(EndKind(part.end) for part in everywhere if part.end is not None)
    deciding = min(
        (part for part in everywhere if part.end == kind), key=lambda part: (part.ended_at or 0.0, part.rank)
    )
    row.exit_code = None
    if deciding.heard is not None:
        told = TaskExited.model_validate(deciding.heard)
        row.exit_code, unit.exits[row.id] = told.exit_code, told
    for part in everywhere:
        part.meeting = None  # it holds the secret of the ranks
    apply_allocation(unit, row, allocations.PartsGone(kind))
