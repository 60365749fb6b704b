"""Route of the audit log."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.taskwire import AuditPage
from detlab.schemas.wire import Wire
from detlab_hub.services.base.audit import Audit as AuditService
from detlab_hub.services.views.pages import within
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class AuditQuery(Wire):
    """Which actions."""

    before: RowId | None = None
    """Only ids smaller than this: the `next` of the page before."""
    limit: int = Field(100, ge=1, le=1000)
    actor: str | None = Field(None, max_length=300)
    """Only this user's."""
    action: str | None = Field(None, max_length=100)
    """Only `experiment.kill` or the like, or all of a resource: `experiment`."""


@route("audit")
class Audit(Guarded):
    """The audit log."""

    @needs("admin", cross_site="xsrf")
    async def get(self, query: AuditQuery) -> AuditPage:
        """List actions, newest first."""
        page = await self.services[AuditService].page(self.person, **query.model_dump())
        items = within(page.items)
        return page if len(items) == len(page.items) else AuditPage(items=items, next=items[-1].id)
