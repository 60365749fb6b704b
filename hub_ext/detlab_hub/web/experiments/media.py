"""Routes of media: what a trial logs beyond numbers.

Files are sent as downloads. What users wrote as HTML is also shown, as a document of an origin of its own: it has no
session, reaches nothing, and runs scripts only where its reader asks for them.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field

from detlab.errors import DetlabError, NotFound
from detlab.media import kinds
from detlab.media.base import suffix_of
from detlab.schemas.wire import Wire
from detlab.schemas.wire.media import MediaFacts, MediaKeyList, MediaKind, MediaPage, MediaStepList, MediaView
from detlab_hub.core.rights import Action
from detlab_hub.services.ingest.media import MediaShelf, TrialMedia
from detlab_hub.services.views.pages import in_part
from detlab_hub.store.queries.tracking.media import MediaWanted
from detlab_hub.web.base import BodyTooLarge, Guarded, PartQuery
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.uploads import Upload

BYTES, DOCUMENT = "application/octet-stream", f"{kinds.MARKUP}; charset=utf-8"
FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""Of a file: whatever opens it, it is nobody."""
PAGE_POLICY = (
    "sandbox{allowed}; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; media-src data:;"
    " {scripts}base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Of a document: an origin of its own, which loads nothing; `allow-same-origin` is never in it."""
KEPT = "private, max-age=3600"
"""Files of an id never change: the reader's own browser may keep them for a while."""


class MediaQuery(Wire):
    """Which objects."""

    key: str | None = Field(None, max_length=200)
    kind: MediaKind | None = None
    step: int | None = Field(None, ge=0, le=2**53)
    """Of this step alone."""
    at: int | None = Field(None, ge=0, le=2**53)
    """Of each key, those of its newest step up to this one."""
    limit: int = Field(200, ge=1, le=1000)
    after: str | None = Field(None, pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$")
    """Only those beyond the page before: its `next`."""

    def wanted(self) -> MediaWanted:
        """Return what the service takes."""
        place = None if self.after is None else [int(part) for part in self.after.split(".")]
        after = None if place is None else (place[0], place[1])
        return MediaWanted(self.key, self.kind, self.step, self.at, after)


class StepsQuery(Wire):
    """Which steps."""

    key: str | None = Field(None, max_length=200)
    after: int = Field(-1, ge=-1, le=2**53)
    """Only later ones: the `next` of the part before."""


class DocumentQuery(Wire):
    """How to show a document."""

    scripts: bool = False
    """Run its scripts, in an origin of its own."""


class MediaUpload(Upload):
    """Base of routes that take an object."""

    def initialize(self) -> None:
        """Take no more than the largest kind has."""
        super().initialize()
        self.body_limit = max(kinds.MOST_BYTES.values())

    @property
    def folder(self) -> Path:
        """Beside the stored files."""
        return self.services.settings.media_dir

    def too_large(self) -> DetlabError:
        """Return the refusal with the limit."""
        return BodyTooLarge(
            f"an object has {self.body_limit // 1024**2:,} MB at most", hint="save it with a checkpoint"
        )


@route("task/media")
class TaskMedia(MediaUpload):
    """An object that the calling task logs."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT, accepts=BYTES)
    async def put(self, query: MediaFacts) -> MediaView:
        """Log an image, a table or another object; one of the same key, step and place is replaced."""
        return await self.services[TrialMedia].put(self.task, query, await self.uploaded())


@route("trials/{trial_id}/media", relayed=True)
class MediaOfTrial(Guarded):
    """What a trial has logged beyond numbers."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: MediaQuery) -> MediaPage:
        """List images, tables and other objects in the order of their steps."""
        return await self.services[TrialMedia].page(self.person, trial_id, query.wanted(), query.limit)


@route("trials/{trial_id}/media/keys", relayed=True)
class MediaKeys(Guarded):
    """Their keys."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: PartQuery) -> MediaKeyList:
        """List the keys under which a trial has logged objects, with how many there are."""
        return in_part(await self.services[TrialMedia].keys(self.person, trial_id), query.skip)


@route("trials/{trial_id}/media/steps", relayed=True)
class MediaSteps(Guarded):
    """Their steps."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: StepsQuery) -> MediaStepList:
        """List the steps at which a trial has logged objects."""
        return await self.services[TrialMedia].steps(self.person, trial_id, query.key, query.after)


class SentMedia(Download):
    """Base of routes that send an object."""

    async def send_media(self, service: MediaShelf, holder: int | str, media_id: int) -> None:
        """Send the file of an object, as a download of nobody's."""
        view = await service.get(self.person, holder, media_id)
        self.set_header("Content-Security-Policy", FILE_POLICY)
        self.set_header("Cache-Control", KEPT)
        opening = service.open(self.person, holder, media_id)
        await self.send_file(opening, view.media_type, file_name(view), in_parts=True)

    async def send_document(self, service: MediaShelf, holder: int | str, media_id: int, *, scripts: bool) -> None:
        """Send HTML as a document of an origin of its own.

        Raises:
            NotFound: It is none.
        """
        view = await service.get(self.person, holder, media_id)
        if view.kind != kinds.HTML:
            raise NotFound(f"media object {media_id} is {view.kind}, and only HTML is shown as a document")
        self.set_header("Content-Security-Policy", document_policy(scripts=scripts))
        self.set_header("X-Frame-Options", "SAMEORIGIN")
        self.set_header("Cache-Control", KEPT)
        await self.send_file(service.open(self.person, holder, media_id), DOCUMENT, inline=True)


@route("trials/{trial_id}/media/{media_id}/file", relayed=True)
class MediaFile(SentMedia):
    """The file of one."""

    @needs("read", cross_site="link", media=BYTES)
    async def get(self, trial_id: int, media_id: int) -> None:
        """Download the file of an object."""
        await self.send_media(self.services[TrialMedia], trial_id, media_id)


@route("trials/{trial_id}/media/{media_id}/document", relayed=True)
class MediaDocument(SentMedia):
    """One that is HTML, to be shown in a frame."""

    @needs("read", cross_site="link", media=kinds.MARKUP)
    async def get(self, trial_id: int, media_id: int, query: DocumentQuery) -> None:
        """Show HTML as a document of an origin of its own, which loads nothing; scripts run only if asked for."""
        await self.send_document(self.services[TrialMedia], trial_id, media_id, scripts=query.scripts)


def document_policy(*, scripts: bool) -> str:
    """Return the content policy of a document."""
    return PAGE_POLICY.format(
        allowed=" allow-scripts" if scripts else "", scripts="script-src 'unsafe-inline'; " if scripts else ""
    )


def file_name(view: MediaView) -> str:
    """Return a name for the download: letters, digits, dots and dashes, whatever the key is."""
    key = re.sub(r"[^A-Za-z0-9-]+", "-", view.key).strip("-")[:60] or view.kind
    place = f"-{view.place}" if view.place else ""
    of = f"run-{view.run_id[:12]}" if view.run_id else f"trial-{view.trial_id}"
    return f"{of}-{key}-step-{view.step}{place}{suffix_of(view.kind, view.media_type)}"
