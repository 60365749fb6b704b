"""Draining an agent: nothing new starts on it, and running tasks end, so that its machine can be switched off.

A drain is a state of the agent's row, so that it survives the master and the agent. Its requests to allocations are
states of theirs: nothing has to be requested again after a restart. `enable` cancels the drain, not these requests.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AgentRow, AllocationRow

_log = logging.getLogger(__name__)


class Drain(StrEnum):
    """The handling of a drained agent's trials. User tasks continue until the deadline, if there is one."""

    LEAVE = "leave"
    """They are asked to checkpoint and stop, which does not count as a restart, and continue elsewhere."""
    FINISH = "finish"
    """They run to their end."""


def mode_of(row: AgentRow, running: int) -> str:
    """Return the administrative state of an agent, for views: enabled, disabled, draining or drained."""
    if not row.drain:
        return "enabled" if row.enabled else "disabled"
    return "draining" if running else "drained"


def begin(unit: UnitOfWork, agent: AgentRow, drain: Drain, until: float | None) -> None:
    """Cancel a drain. Tasks that were asked to leave still do."""
    agent.enabled, agent.drain, agent.drain_until = False, drain.value, until
    for row in _placed(unit.session, agent.id):
        unit.holder(row).drain_began(unit, row, agent)
        if drain is Drain.LEAVE:
            unit.holder(row).ask_to_leave(unit, row, until)


def end(agent: AgentRow) -> None:
    """Take a drain back. What was asked to leave still does."""
    agent.drain, agent.drain_until = "", None


_DUE = PreparedStatement(select(AgentRow.id).where(AgentRow.drain_until <= bindparam("now")))


def due(s: Session, now: float) -> list[str]:
    """Return the agents whose deadline has passed and was not acted upon."""
    return [row[0] for row in _DUE.all(s, {"now": now})]


def act_on_deadline(unit: UnitOfWork, agent_id: str) -> None:
    """Act on the passed deadline of a drain: user tasks end, and trials that were to run to their end must leave."""
    agent = unit.session.get(AgentRow, agent_id)
    if agent is None or agent.drain_until is None or agent.drain_until > unit.now:
        return
    _log.info("agent %s: the deadline of its drain has passed", agent_id)
    agent.drain_until = None
    for row in _placed(unit.session, agent_id):
        unit.holder(row).drain_is_over(unit, row, agent_id)
    unit.changed_cluster()


def _placed(s: Session, agent_id: str) -> Sequence[AllocationRow]:
    """Return the allocations on an agent that were not asked to stop for good."""
    return s.scalars(
        select(AllocationRow)
        .where(
            parts.on_agent(agent_id),
            AllocationRow.state.in_(PLACED),
            AllocationRow.state != AllocationState.TERMINATING,
        )
        .order_by(AllocationRow.id)
    ).all()
