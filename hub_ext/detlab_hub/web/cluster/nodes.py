"""Routes of administrators' actions on agents."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import AgentView, PersonRequest
from detlab_hub.core.rights import Action
from detlab_hub.services.agents.drains import Drain
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("agents/{agent_id}/enable", relayed=True)
class Enable(Guarded):
    """New work on an agent, again."""

    @needs("admin", cross_site="xsrf", action=Action.NODE_ENABLE)
    async def post(self, agent_id: str) -> AgentView:
        """Let new work start on the agent again."""
        return await self.services[Nodes].enable(self.person, agent_id)


@route("agents/{agent_id}/disable", relayed=True)
class Disable(Guarded):
    """No new work on an agent."""

    @needs("admin", cross_site="xsrf", action=Action.NODE_DISABLE)
    async def post(self, agent_id: str) -> AgentView:
        """Let nothing new start on the agent; running tasks continue."""
        return await self.services[Nodes].disable(self.person, agent_id)


class DrainRequest(PersonRequest):
    """How an agent is emptied."""

    trials: Drain = Drain.LEAVE
    """leave: they checkpoint and continue elsewhere, which is not a restart; finish: they run to their end."""
    deadline: float | None = Field(None, ge=0, le=30 * 86400)
    """Seconds after which what is still there is ended; null: nothing is."""


@route("agents/{agent_id}/drain", relayed=True)
class DrainNode(Guarded):
    """An agent that is being drained."""

    @needs("admin", cross_site="xsrf", action=Action.NODE_DRAIN)
    async def post(self, agent_id: str, body: DrainRequest) -> AgentView:
        """Let nothing new start on the agent, and let what runs there go."""
        return await self.services[Nodes].drain(self.person, agent_id, body.trials, body.deadline)


@route("agents/{agent_id}/slots/{slot_id}/enable")
class EnableSlot(Guarded):
    """New work on a single slot, again."""

    @needs("admin", cross_site="xsrf", action=Action.NODE_ENABLE)
    async def post(self, agent_id: str, slot_id: str) -> AgentView:
        """Let new work have the slot again."""
        return await self.services[Nodes].set_slot(self.person, agent_id, slot_id, enabled=True)


@route("agents/{agent_id}/slots/{slot_id}/disable")
class DisableSlot(Guarded):
    """No new work on a single slot."""

    @needs("admin", cross_site="xsrf", action=Action.NODE_DISABLE)
    async def post(self, agent_id: str, slot_id: str) -> AgentView:
        """Let nothing new have the slot; what has it keeps it."""
        return await self.services[Nodes].set_slot(self.person, agent_id, slot_id, enabled=False)


@route("agents/{agent_id}")
class Node(Guarded):
    """One agent."""

    @needs("admin", cross_site="xsrf", action=Action.NODE_FORGET)
    async def delete(self, agent_id: str) -> AgentView:
        """Send the agent away: its key is void, what it runs is lost."""
        return await self.services[Nodes].remove(self.person, agent_id)
