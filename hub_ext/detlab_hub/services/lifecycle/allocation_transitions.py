"""Allocations: load a row, step its machine, write it back, and collect its actions in the unit of work's outbox.

The effect of an allocation's progress and end on the trial or user task that holds it is decided by its `Holder`.
"""

from __future__ import annotations

import logging
from typing import assert_never

from pydantic import ValidationError

from detlab.schemas.wire import AllocationState, Kill, TaskExited
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.services.base.server_certificates import NoCertificate
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle import accounting
from detlab_hub.services.lifecycle.launching import build_launches
from detlab_hub.services.lifecycle.rows import allocation_of, write_allocation
from detlab_hub.services.lifecycle.uids import NoUid
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AllocationRow

_log = logging.getLogger(__name__)


def apply_allocation(unit: UnitOfWork, row: AllocationRow, event: allocations.Event) -> None:
    """Apply an event to an allocation."""
    old = allocation_of(row)
    step = allocations.step(old, event)
    if step.state == old and not step.actions:
        return
    write_allocation(row, step.state)
    if old.state is not step.state.state:
        _log.info("allocation %s: %s", row.id, step.state.state)
        _note_times(unit, row, step.state.state)
        unit.changed_cluster()
    holder = unit.holder(row)
    holder.allocation_changed(unit, row)
    for action in step.actions:
        match action:
            case allocations.SendLaunch():
                send_launch(unit, row)
            case allocations.SignalPreempt():
                unit.outbox.wake_allocations.add(row.id)
            case allocations.SendKill():
                _kill(unit, row)
            case allocations.EndAttempt(kind):
                unit.outbox.kick_scheduler = True
                holder.attempt_ended(unit, row, kind)
            case _:
                assert_never(action)


def _note_times(unit: UnitOfWork, row: AllocationRow, state: AllocationState) -> None:
    if state is AllocationState.ASSIGNED:
        row.assigned_at = unit.now
    elif state is AllocationState.RUNNING:
        row.started_at, row.stage_message = unit.now, ""
    elif state is AllocationState.TERMINATED:
        row.ended_at = unit.now
        unit.outbox.ended_allocations.append(row.id)
        accounting.note(unit, row)
    unit.holder(row).allocation_moved(unit, row, state)


def send_launch(unit: UnitOfWork, row: AllocationRow, only: str | None = None) -> None:
    """Tell the allocation's agents, or only one of them, to start its task (again).

    One that cannot be launched ends, with a card: raised from here, it would undo the whole pass, each time anew.
    """
    if not unit.holder(row).ready(unit, row):
        return
    try:
        unit.outbox.messages += build_launches(unit, row, only)
    except (NoCertificate, NoUid) as error:
        _cannot_launch(unit, row, str(error))
    except (LookupError, TypeError, ValueError) as error:
        # A stored config that is not a valid launch, of whichever version: it must not stop the whole pass.
        _cannot_launch(unit, row, f"its stored record is not a valid launch: {_places(error)}")


def _places(error: Exception) -> str:
    """Return the places of the errors, without the values: secrets are among them."""
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__} {error}" if isinstance(error, KeyError) else type(error).__name__
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['type']}" for one in found)


def _cannot_launch(unit: UnitOfWork, row: AllocationRow, why: str) -> None:
    _log.error("allocation %s cannot be launched: %s", row.id, why)
    unit.exits[row.id] = TaskExited(allocation_id=row.id, run=row.run, reason="setup", message=why)
    apply_allocation(unit, row, allocations.PartsGone(allocations.kind_of_exit(allocation_of(row), None)))


def _kill(unit: UnitOfWork, row: AllocationRow) -> None:
    """Kill the task; one that its agents were never sent, as its trial has no point yet, has ended at once."""
    if unit.holder(row).waits(unit, row):
        apply_allocation(unit, row, allocations.PartsGone(allocations.kind_of_exit(allocation_of(row), None)))
    else:
        send_kill(unit, row)


def send_kill(unit: UnitOfWork, row: AllocationRow, agent_id: str | None = None) -> None:
    """Tell the allocation's agents, or one of them, to kill its task (again)."""
    agents = dict.fromkeys(part.agent_id for part in parts.of_allocation(unit.session, row) if part.end is None)
    kill = Kill(allocation_id=row.id, run=row.run, grace=unit.settings.kill_grace)
    unit.outbox.messages += [(agent, kill) for agent in agents if agent_id in (None, agent)]
