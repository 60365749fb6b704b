"""Routes of templates."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.configs.templates import TEMPLATE_CHARS, SetTemplate, TemplateList, TemplateView
from detlab.schemas.wire.workspaces import REFERENCE_CHARS
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.configs.templates import Templates as TemplatesService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class TemplatesQuery(Wire):
    """Which templates."""

    workspace: str | None = Field(None, max_length=REFERENCE_CHARS)
    """Only those of this workspace; `cluster`: of the cluster."""
    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`after` of the page before."""


class TemplateQuery(Wire):
    """Which template."""

    name: str = Field(max_length=TEMPLATE_CHARS)
    """`WORKSPACE:NAME`, `cluster:NAME`, or the name of one of the caller's own, or of the cluster."""


@route("templates")
class Templates(Guarded):
    """Named parts of configs that are laid under what is submitted."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: TemplatesQuery) -> TemplateList:
        """List the templates that the caller may see: of the cluster, and of the workspaces that they may read."""
        return await self.services[TemplatesService].list(self.person, **query.model_dump())

    @needs("write", cross_site="xsrf", action=Action.TEMPLATE_SET)
    async def put(self, body: SetTemplate) -> TemplateView:
        """Make a template, or replace the one of its name; what was submitted with it stays as it is."""
        return await self.services[TemplatesService].set(self.person, body)


@route("templates/one")
class Template(Guarded):
    """One template."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: TemplateQuery) -> TemplateView:
        """Return a template with its config, and merged with what it stands on; credentials are masked."""
        return await self.services[TemplatesService].get(self.person, query.name)

    @needs("write", cross_site="xsrf", action=Action.TEMPLATE_REMOVE)
    async def delete(self, query: TemplateQuery) -> TemplateView:
        """Remove a template on which none stands; return it as it was."""
        return await self.services[TemplatesService].remove(self.person, query.name)
