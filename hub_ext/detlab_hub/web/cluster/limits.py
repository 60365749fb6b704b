"""Route of the limits of users."""

from __future__ import annotations

from detlab.schemas.jobwire import LimitList
from detlab_hub.services.admission.user_limits import UserLimits as UserLimitsService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("limits")
class UserLimits(Guarded):
    """The limits of one user."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> LimitList:
        """List the limits, with the users at or near each: all to administrators, else the caller."""
        return await self.services[UserLimitsService].list(self.person)
