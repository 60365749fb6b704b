"""Routes of what runs from elsewhere log beyond numbers; they are sent as those of trials are."""

from __future__ import annotations

from detlab.media import kinds
from detlab.schemas.wire.media import MediaFacts, MediaKeyList, MediaPage, MediaStepList, MediaView
from detlab_hub.core.rights import Action
from detlab_hub.services.tracking.run_media import RunMedia
from detlab_hub.services.views.pages import in_part
from detlab_hub.web.base import Guarded, PartQuery
from detlab_hub.web.experiments.media import BYTES, DocumentQuery, MediaQuery, MediaUpload, SentMedia, StepsQuery
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("runs/{run_id}/media", relayed=True)
class MediaOfRun(MediaUpload):
    """What a run has logged beyond numbers."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: MediaQuery) -> MediaPage:
        """List images, tables and other objects in the order of their steps."""
        return await self.services[RunMedia].page(self.person, run_id, query.wanted(), query.limit)

    @needs("write", cross_site="xsrf", action=Action.RUN_REPORT, accepts=BYTES)
    async def put(self, run_id: str, query: MediaFacts) -> MediaView:
        """Log an image, a table or another object; one of the same key, step and place is replaced."""
        return await self.services[RunMedia].put(self.person, run_id, query, await self.uploaded())


@route("runs/{run_id}/media/keys", relayed=True)
class KeysOfRun(Guarded):
    """Their keys."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: PartQuery) -> MediaKeyList:
        """List the keys under which a run has logged objects, with how many there are."""
        return in_part(await self.services[RunMedia].keys(self.person, run_id), query.skip)


@route("runs/{run_id}/media/steps", relayed=True)
class StepsOfRun(Guarded):
    """Their steps."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: StepsQuery) -> MediaStepList:
        """List the steps at which a run has logged objects."""
        return await self.services[RunMedia].steps(self.person, run_id, query.key, query.after)


@route("runs/{run_id}/media/{object_id}/file", relayed=True)
class FileOfRun(SentMedia):
    """The file of one."""

    @needs("read", cross_site="link", media=BYTES)
    async def get(self, run_id: str, object_id: int) -> None:
        """Download the file of an object."""
        await self.send_media(self.services[RunMedia], run_id, object_id)


@route("runs/{run_id}/media/{object_id}/document", relayed=True)
class DocumentOfRun(SentMedia):
    """One that is HTML, to be shown in a frame."""

    @needs("read", cross_site="link", media=kinds.MARKUP)
    async def get(self, run_id: str, object_id: int, query: DocumentQuery) -> None:
        """Show HTML as a document of an origin of its own, which loads nothing; scripts run only if asked for."""
        await self.send_document(self.services[RunMedia], run_id, object_id, scripts=query.scripts)
