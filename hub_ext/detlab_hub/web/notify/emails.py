"""Routes of the addresses to which users have alerts sent."""

from __future__ import annotations

from detlab.schemas.wire import Wire
from detlab.schemas.wire.notify.emails import ConfirmEmail, EmailView, SetEmail, SetUsersEmail, UserName
from detlab_hub.core.rights import Action
from detlab_hub.services.alerts.emails import Emails as EmailsService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class EmailOf(Wire):
    """Whose address."""

    user: UserName


@route("alerts/email")
class Email(Guarded):
    """The address to which the caller has alerts sent."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> EmailView:
        """Return it, and how sending went."""
        return await self.services[EmailsService].get(self.person)

    @needs("write", cross_site="xsrf", action=Action.ALERT_EMAIL_SET)
    async def put(self, body: SetEmail) -> EmailView:
        """Have a code sent to an address; alerts go there once it is confirmed. Few codes are sent in a day."""
        return await self.services[EmailsService].set(self.person, body)

    @needs("write", cross_site="xsrf", action=Action.ALERT_EMAIL_REMOVE)
    async def delete(self) -> EmailView:
        """Remove it, with what waits to be sent."""
        return await self.services[EmailsService].remove(self.person)


@route("alerts/email/confirm")
class EmailConfirmed(Guarded):
    """The code that confirms an address."""

    @needs("write", cross_site="xsrf", action=Action.ALERT_EMAIL_CONFIRM)
    async def post(self, body: ConfirmEmail) -> EmailView:
        """Confirm the address by the code that came there; after five wrong ones it is void."""
        return await self.services[EmailsService].confirm(self.person, body)


@route("alerts/emails")
class EmailsOfUsers(Guarded):
    """Addresses of users, for administrators."""

    @needs("admin", cross_site="xsrf")
    async def get(self, query: EmailOf) -> EmailView:
        """Return a user's address, and how sending went."""
        return await self.services[EmailsService].get_of(self.person, query.user)

    @needs("admin", cross_site="xsrf", action=Action.ALERT_EMAIL_GIVE)
    async def put(self, body: SetUsersEmail) -> EmailView:
        """Set the address of a user, without a code."""
        return await self.services[EmailsService].give(self.person, body)

    @needs("admin", cross_site="xsrf", action=Action.ALERT_EMAIL_TAKE)
    async def delete(self, query: EmailOf) -> EmailView:
        """Remove the address of a user, with what waits to be sent."""
        return await self.services[EmailsService].take(self.person, query.user)
