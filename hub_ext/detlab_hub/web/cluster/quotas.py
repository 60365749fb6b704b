"""Routes of quotas."""

from __future__ import annotations

from detlab.schemas.jobwire import QuotaList, QuotaRemoval, QuotaRequest
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.quotas import Quotas as QuotasService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("quotas", relayed=True)
class Quotas(Guarded):
    """Slots that users, groups and workspaces may hold at a time, and bytes that users and groups may keep."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> QuotaList:
        """List quotas and what is used of them: all to administrators, else one's own and those of one's groups."""
        return await self.services[QuotasService].list(self.person)

    @needs("admin", cross_site="xsrf", action=Action.QUOTA_SET)
    async def put(self, body: QuotaRequest) -> QuotaList:
        """Set the quota of a user, a group or a workspace; one that stands is replaced, and nothing is ended."""
        return await self.services[QuotasService].put(self.person, body)

    @needs("admin", cross_site="xsrf", action=Action.QUOTA_REMOVE)
    async def delete(self, query: QuotaRemoval) -> QuotaList:
        """Lift a quota of slots, of bytes, or both."""
        return await self.services[QuotasService].remove(self.person, query, query.what)
