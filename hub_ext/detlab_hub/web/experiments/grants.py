"""Routes of grants: with whom an experiment is shared."""

from __future__ import annotations

from detlab.schemas.wire import GrantList, GrantRequest, GrantTo
from detlab_hub.core.rights import Action
from detlab_hub.services.experiments.grants import Grants as GrantsService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("experiments/{experiment_id}/grants", relayed=True)
class Grants(Guarded):
    """The grants of an experiment."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int) -> GrantList:
        """List with whom the experiment is shared."""
        return await self.services[GrantsService].list(self.person, experiment_id)

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_SHARE)
    async def put(self, experiment_id: int, body: GrantRequest) -> GrantList:
        """Share the experiment with a user or a group of the Hub; a grant to the same one is replaced."""
        return await self.services[GrantsService].put(self.person, experiment_id, body)

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_UNSHARE)
    async def delete(self, experiment_id: int, query: GrantTo) -> GrantList:
        """Take a grant back."""
        return await self.services[GrantsService].remove(self.person, experiment_id, query)
