"""Routes of saved views."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import PersonRequest, Wire
from detlab.schemas.wire.finding import FilteredTable
from detlab.schemas.wire.saved_views import SavedView, SavedViewList, SaveView, ViewName
from detlab_hub.core.rights import Action
from detlab_hub.services.finding.saved_views import SavedViews as SavedViewsService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class SavedViewsQuery(Wire):
    """Which views."""

    table: FilteredTable | None = None
    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`next` of the page before."""


class SavedViewRemoval(PersonRequest):
    """Which view."""

    table: FilteredTable
    name: ViewName


@route("saved-views", relayed=True)
class SavedViews(Guarded):
    """Filters, orders and columns of tables that the caller, or a project, has under names."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: SavedViewsQuery) -> SavedViewList:
        """List the caller's views and those of projects that they may read, the oldest first."""
        return await self.services[SavedViewsService].list(self.person, **query.model_dump())

    @needs("write", cross_site="xsrf", action=Action.VIEW_SAVE)
    async def put(self, body: SaveView) -> SavedView:
        """Keep a view under a name; one that has it is replaced."""
        return await self.services[SavedViewsService].save(self.person, body)

    @needs("write", cross_site="xsrf", action=Action.VIEW_REMOVE)
    async def delete(self, query: SavedViewRemoval) -> SavedView:
        """Remove one of the caller's views."""
        return await self.services[SavedViewsService].remove(self.person, query.table, query.name)
