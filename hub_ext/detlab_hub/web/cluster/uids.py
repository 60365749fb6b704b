"""Route of users' uids."""

from __future__ import annotations

from detlab.schemas.jobwire import UidList
from detlab_hub.services.lifecycle.uids import UserUids
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("uids")
class Uids(Guarded):
    """Under which uids tasks run."""

    @needs("admin", cross_site="xsrf")
    async def get(self) -> UidList:
        """List the uid of each user whose tasks ran."""
        return await self.services[UserUids].list(self.person)
