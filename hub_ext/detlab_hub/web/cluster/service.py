"""Routes of the service itself, for administrators: its tokens and the health of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub.httpclient import JupyterHubHTTPClient

from detlab.schemas.taskwire import HealthView, TokenList, TokenView
from detlab_hub.core.rights import Action
from detlab_hub.services.cluster.credentials import Credentials
from detlab_hub.services.cluster.health import Health
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs

if TYPE_CHECKING:
    from detlab_hub.web.auth import Identifier


@route("tokens")
class Tokens(Guarded):
    """Tokens of detlab's own."""

    @needs("admin", cross_site="xsrf")
    async def get(self) -> TokenList:
        """List the valid tokens of agents, enrolment and tasks, newest first; never their text."""
        return await self.services[Credentials].list(self.person)


@route("tokens/{token_id}")
class Token(Guarded):
    """One token."""

    @needs("admin", cross_site="xsrf", action=Action.TOKEN_REVOKE)
    async def delete(self, token_id: str) -> TokenView:
        """Make a token void."""
        return await self.services[Credentials].revoke(self.person, token_id)


@route("service")
class Service(Guarded):
    """How the service is."""

    @needs("admin", cross_site="xsrf")
    async def get(self) -> HealthView:
        """Return the state of every part of the service."""
        return await self.services[Health].view(self.person, self._ask_hub)

    async def _ask_hub(self) -> str:
        identifier: Identifier = self.settings["identifier"]
        reply = await JupyterHubHTTPClient.loop_instance().fetch(f"{identifier.hub.api_url}/")
        return f"JupyterHub {(await reply.json())['version']} answers"
