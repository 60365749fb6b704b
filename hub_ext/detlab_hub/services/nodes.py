"""Agents as administrators steer them: let nothing new start, let it again, send one away for good."""

from __future__ import annotations

import logging

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Forbidden, NotFound
from detlab.schemas.wire import AgentView
from detlab_hub.backends.agents import Agents as Connections
from detlab_hub.services import audit, departures
from detlab_hub.services.agentlives import lose
from detlab_hub.services.agents import Agents
from detlab_hub.services.callers import Caller
from detlab_hub.services.lives import send_kill
from detlab_hub.services.scene import PLACED
from detlab_hub.services.shell import Shell
from detlab_hub.services.turn import Turn
from detlab_hub.store.queries import tokens
from detlab_hub.store.tables import AgentRow, AllocationRow

_log = logging.getLogger(__name__)


class Nodes:
    """What administrators do with agents. All of it raises Forbidden for others, NotFound for an unknown agent."""

    def __init__(self, shell: Shell, agents: Agents, connections: Connections) -> None:
        self._shell = shell
        self._agents = agents
        self._connections = connections

    async def enable(self, caller: Caller, agent_id: str) -> AgentView:
        """Let new work start on an agent again."""
        return await self._set(caller, agent_id, enabled=True)

    async def disable(self, caller: Caller, agent_id: str) -> AgentView:
        """Let nothing new start on an agent; what runs there goes on. It stays so when the master is restarted."""
        return await self._set(caller, agent_id, enabled=False)

    async def _set(self, caller: Caller, agent_id: str, *, enabled: bool) -> AgentView:
        _check(caller)

        def change(turn: Turn) -> AgentView:
            row = _agent(turn.session, agent_id)
            if row.enabled is not enabled:
                row.enabled = enabled
                audit.note(turn, caller, "agent.enable" if enabled else "agent.disable", f"agent {agent_id}")
                turn.changed_cluster()
                turn.outbox.kick_scheduler = True
                turn.session.flush()
                _log.info("agent %s: %s by %s", agent_id, "enabled" if enabled else "disabled", caller.name)
            return self._view(turn.session, caller, agent_id)

        return await self._shell.write(change)

    async def remove(self, caller: Caller, agent_id: str) -> AgentView:
        """Send an agent away: its key is void, its tasks are killed and lost, its connection is closed.

        The enrolment token that it came by is void, too; agents that came by it before stay. The cluster's own token
        (`DetHub.enrolment_token_file`) enrols no agent of this name any more: it comes back by a new enrolment token.

        Returns:
            The agent as it was.
        """
        _check(caller)

        def remove(turn: Turn) -> AgentView:
            row = _agent(turn.session, agent_id)
            view = self._view(turn.session, caller, agent_id)
            tokens.revoke(turn.session, "agent", agent_id)
            departures.note(turn, caller, row)
            for allocation in turn.session.scalars(
                select(AllocationRow).where(AllocationRow.agent_id == agent_id, AllocationRow.state.in_(PLACED))
            ).all():
                send_kill(turn, allocation)
            lose(turn, agent_id)
            turn.session.delete(row)
            audit.note(turn, caller, "agent.revoke", f"agent {agent_id}", f"{view.running} tasks lost")
            turn.changed_cluster()
            turn.outbox.kick_scheduler = True
            return view

        view = await self._shell.write(remove)
        self._connections.dismiss(agent_id)
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


def _check(caller: Caller) -> None:
    if not caller.admin:
        raise Forbidden("only administrators may steer agents")
