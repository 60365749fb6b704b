"""Routes of versions. One is named by its number, its semantic version, a label or `latest`."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.registry import CreateVersion, EditVersion, LineageGraph, VersionList, VersionView
from detlab_hub.core.rights import Action
from detlab_hub.services.registry.versions import Versions as VersionsService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.registry.models import Forced
from detlab_hub.web.scopes import needs


class VersionsQuery(Wire):
    """Which versions."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`after` of the last page."""


class BestQuery(VersionsQuery):
    """Which versions, and in which order."""

    best: str | None = Field(None, max_length=1000)
    """A metric, such as `accuracy` or `training.loss`: best first. Versions without it are left out."""
    smaller_is_better: bool = False
    where: str = Field("", max_length=4000)
    """A condition: `label = vision and dataset = v3 and hp.lr < 0.1`."""


@route("models/{model}/versions", relayed=True)
class Versions(Guarded):
    """The versions of a model."""

    @needs("read", cross_site="xsrf")
    async def get(self, model: str, query: VersionsQuery) -> VersionList:
        """List a model's versions, newest first, without notes, config and environment."""
        return await self.services[VersionsService].list(self.person, model, query.limit, query.after)

    @needs("write", cross_site="xsrf", action=Action.VERSION_REGISTER)
    async def post(self, model: str, body: CreateVersion) -> VersionView:
        """Register a checkpoint, or the best one of an experiment; the same one again gives the same version."""
        return await self.services[VersionsService].register(self.person, model, body)


@route("models/{model}/versions/{version}", relayed=True)
class Version(Guarded):
    """One version."""

    @needs("read", cross_site="xsrf")
    async def get(self, model: str, version: str) -> VersionView:
        """Return a version with its lineage."""
        return await self.services[VersionsService].get(self.person, model, version)

    @needs("write", cross_site="xsrf", action=Action.VERSION_DELETE)
    async def delete(self, model: str, version: str, query: Forced) -> VersionView:
        """Delete a version; its number is not given again, and its checkpoint may be deleted then."""
        return await self.services[VersionsService].delete(self.person, model, version, force=query.force)


@route("models/{model}/versions/{version}/edit", relayed=True)
class EditOne(Guarded):
    """What people write about a version."""

    @needs("write", cross_site="xsrf", action=Action.VERSION_EDIT)
    async def post(self, model: str, version: str, body: EditVersion) -> VersionView:
        """Change a version's texts and metadata, and give it a semantic version."""
        return await self.services[VersionsService].edit(self.person, model, version, body)


@route("models/{model}/versions/{version}/lineage", relayed=True)
class Lineage(Guarded):
    """Where a version comes from."""

    @needs("read", cross_site="xsrf")
    async def get(self, model: str, version: str) -> LineageGraph:
        """Return the lineage of a version as a graph."""
        return await self.services[VersionsService].lineage(self.person, model, version)


@route("model-versions", relayed=True)
class Search(Guarded):
    """Versions of all models."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: BestQuery) -> VersionList:
        """Search versions: by a condition, best first by a metric or newest first."""
        return await self.services[VersionsService].search(
            self.person,
            best=query.best,
            smaller_is_better=query.smaller_is_better,
            where=query.where,
            limit=query.limit,
            after=query.after,
        )
