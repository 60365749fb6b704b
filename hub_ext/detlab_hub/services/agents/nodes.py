"""Administrators' actions on agents: disable, drain, close single slots, remove for good."""

from __future__ import annotations

import logging
from typing import Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.pasted import word
from detlab.schemas.wire import AgentView
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.agents import drains, removed
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.connection import lose
from detlab_hub.services.agents.drains import Drain
from detlab_hub.services.agents.many_nodes import is_spoken_for
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.allocation_transitions import send_kill
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.queries import parts, tokens
from detlab_hub.store.tables import AgentRow, AllocationRow

_log = logging.getLogger(__name__)


class Nodes(Service):
    """Administrators' actions on agents. All raise Forbidden for others, NotFound for an unknown agent."""

    def __init__(self, context: ServiceContext, agents: Agents) -> None:
        super().__init__(context)
        self._agents = agents

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Agents])

    async def enable(self, caller: Caller, agent_id: str) -> AgentView:
        """Let new work start on an agent again. A drain is over; what it asked to leave still does."""
        return await self._set(caller, agent_id, enabled=True)

    async def disable(self, caller: Caller, agent_id: str) -> AgentView:
        """Let nothing new start on an agent; running tasks continue. The state survives a restart of the master."""
        return await self._set(caller, agent_id, enabled=False)

    async def _set(self, caller: Caller, agent_id: str, *, enabled: bool) -> AgentView:
        _check(caller)

        def change(unit: UnitOfWork) -> AgentView:
            row = _agent(unit.session, agent_id)
            if row.enabled is not enabled or row.drain:
                row.enabled = enabled
                drains.end(row)
                self._note(unit, caller, "agent.enable" if enabled else "agent.disable", f"agent {agent_id}")
            return self._view(unit.session, caller, agent_id)

        return await self._context.write(change)

    async def drain(self, caller: Caller, agent_id: str, drain: Drain, deadline: float | None = None) -> AgentView:
        """Drain an agent: nothing new starts; trials leave or finish; users of its tasks are notified.

        The drain survives a restart of the master or the agent. Another call changes its mode and its deadline.

        Args:
            caller: An administrator.
            agent_id: The agent.
            drain: What becomes of its trials.
            deadline: Seconds after which everything that is still there is ended; None: nothing is.
        """
        _check(caller)

        def change(unit: UnitOfWork) -> AgentView:
            row = _agent(unit.session, agent_id)
            drains.begin(unit, row, drain, None if deadline is None else unit.now + deadline)
            how = f"its trials {drain.value}" + ("" if deadline is None else f", all of it ends in {deadline:.0f} s")
            self._note(unit, caller, "agent.drain", f"agent {agent_id}", how)
            return self._view(unit.session, caller, agent_id)

        return await self._context.write(change)

    async def set_slot(self, caller: Caller, agent_id: str, slot_id: str, *, enabled: bool) -> AgentView:
        """Disable a slot for new tasks, or enable it again; a task that has it keeps it. This survives restarts.

        Raises:
            NotFound: The agent has no such slot.
        """
        _check(caller)

        def change(unit: UnitOfWork) -> AgentView:
            row = _agent(unit.session, agent_id)
            _check_slot(row, slot_id)
            if enabled is (slot_id in row.slots_off):
                off = set(row.slots_off) ^ {slot_id}
                row.slots_off = sorted(off)
                action = "slot.enable" if enabled else "slot.disable"
                self._note(unit, caller, action, f"slot {slot_id} of agent {agent_id}")
            return self._view(unit.session, caller, agent_id)

        return await self._context.write(change)

    def _note(self, unit: UnitOfWork, caller: Caller, action: str, subject: str, detail: str = "") -> None:
        """Write the audit entry of a change of what may start where, and what follows from the change."""
        audit.note(unit, caller, action, subject, detail)
        unit.changed_cluster()
        unit.outbox.kick_scheduler = True
        unit.session.flush()
        _log.info("%s: %s by %s %s", subject, action, caller.name, detail)

    async def remove(self, caller: Caller, agent_id: str) -> AgentView:
        """Remove an agent: its key is void, its tasks are killed and lost, its connection is closed.

        The enrolment token that it enrolled with is void, too; agents that used it before stay. The cluster's own token
        (`DetHub.enrolment_token_file`) enrols no agent of this name any more: it returns with a new enrolment token.

        Returns:
            The agent as it was.

        Raises:
            Conflict: It is a node of a connected agent that speaks for many.
        """
        _check(caller)

        def remove(unit: UnitOfWork) -> AgentView:
            row = _agent(unit.session, agent_id)
            if is_spoken_for(agent_id) and self._context.backend.state_of(agent_id, unit.now) == "connected":
                speaker = agent_id.partition("/")[0]
                raise Conflict(
                    f"{agent_id} is a node of agent {speaker}, which would bring it back",
                    hint=f"det agent disable {word(agent_id)}, or remove {speaker}",
                )
            view = self._view(unit.session, caller, agent_id)
            tokens.revoke(unit.session, "agent", agent_id)
            removed.note(unit, caller, row)
            for allocation in unit.session.scalars(
                select(AllocationRow).where(parts.on_agent(agent_id), AllocationRow.state.in_(PLACED))
            ).all():
                send_kill(unit, allocation, agent_id)
            lose(unit, agent_id)
            unit.session.delete(row)
            audit.note(unit, caller, "agent.revoke", f"agent {agent_id}", f"{view.running} tasks lost")
            unit.changed_cluster()
            unit.outbox.kick_scheduler = True
            return view

        view = await self._context.write(remove)
        self._context.backend.dismiss(agent_id)
        _log.warning("agent %s: removed by %s", agent_id, caller.name)
        return view.model_copy(update={"state": "lost"})

    def _view(self, s: Session, caller: Caller, agent_id: str) -> AgentView:
        (view,) = self._agents.views(s, caller, agent_id)
        return view


def _agent(s: Session, agent_id: str) -> AgentRow:
    row = s.get(AgentRow, agent_id)
    if row is None:
        raise NotFound(f"there is no agent {agent_id[:80]!r}", hint="det agent list")
    return row


def _check_slot(row: AgentRow, slot_id: str) -> None:
    known = [slot["id"] for slot in row.slots]
    if slot_id not in known and slot_id not in row.slots_off:
        raise NotFound(
            f"agent {row.id} has no slot {slot_id[:80]!r}",
            hint=f"it has {', '.join(known[:8]) or 'none'}: det slot list",
        )


def _check(caller: Caller) -> None:
    check_administers(caller, ObjectKind.AGENT, "manage agents")
