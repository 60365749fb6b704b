"""Routes of webhooks of users."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.notify.webhooks import CreateWebhook, WebhookCallList, WebhookList, WebhookView
from detlab_hub.core.rights import Action
from detlab_hub.services.alerts.webhooks import Webhooks as WebhooksService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class WebhooksQuery(Wire):
    """Which webhooks."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`next` of the page before."""


class WebhookCallsQuery(Wire):
    """Which calls."""

    limit: int = Field(100, ge=1, le=1000)
    before: RowId | None = None
    """`next` of the page before."""


@route("webhooks", relayed=True)
class Webhooks(Guarded):
    """Addresses that are told what their owner has rules for."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: WebhooksQuery) -> WebhookList:
        """List the caller's webhooks, the oldest first; administrators have those of everybody, without addresses."""
        return await self.services[WebhooksService].list(self.person, **query.model_dump())

    @needs("write", cross_site="xsrf", action=Action.WEBHOOK_CREATE)
    async def post(self, body: CreateWebhook) -> WebhookView:
        """Make a webhook, with rules; its address must be public. The secret that signs its calls is told here only."""
        return await self.services[WebhooksService].create(self.person, body)


@route("webhooks/{webhook}", relayed=True)
class Webhook(Guarded):
    """One webhook."""

    @needs("read", cross_site="xsrf")
    async def get(self, webhook: str) -> WebhookView:
        """Return a webhook, by its id or by the name of one of the caller's own."""
        return await self.services[WebhooksService].get(self.person, webhook)

    @needs("write", cross_site="xsrf", action=Action.WEBHOOK_DELETE)
    async def delete(self, webhook: str) -> WebhookView:
        """Delete a webhook with its calls, and the rules that only tell it."""
        return await self.services[WebhooksService].delete(self.person, webhook)


@route("webhooks/{webhook}/test", relayed=True)
class WebhookTest(Guarded):
    """A call to try a webhook."""

    @needs("write", cross_site="xsrf", action=Action.WEBHOOK_TEST)
    async def post(self, webhook: str) -> WebhookView:
        """Have a call sent; the webhook says soon how it went."""
        return await self.services[WebhooksService].test(self.person, webhook)


@route("webhooks/{webhook}/calls", relayed=True)
class WebhookCalls(Guarded):
    """Calls of a webhook that did not go through yet."""

    @needs("read", cross_site="xsrf")
    async def get(self, webhook: str, query: WebhookCallsQuery) -> WebhookCallList:
        """List calls that wait, and those of the last week that were given up, the newest first."""
        return await self.services[WebhooksService].calls(self.person, webhook, **query.model_dump())
