"""Routes by which administrators steer agents."""

from __future__ import annotations

from detlab.schemas.wire import AgentView
from detlab_hub.web.base import Guarded
from detlab_hub.web.scopes import needs


class Enable(Guarded):
    """New work on an agent, again."""

    @needs("admin")
    async def post(self, agent_id: str) -> AgentView:
        """Let new work start on the agent again."""
        return await self.services.nodes.enable(self.person, agent_id)


class Disable(Guarded):
    """No new work on an agent."""

    @needs("admin")
    async def post(self, agent_id: str) -> AgentView:
        """Let nothing new start on the agent; what runs there goes on."""
        return await self.services.nodes.disable(self.person, agent_id)


class Node(Guarded):
    """One agent."""

    @needs("admin")
    async def delete(self, agent_id: str) -> AgentView:
        """Send the agent away: its key is void, what it runs is lost."""
        return await self.services.nodes.remove(self.person, agent_id)
