"""Routes of checkpoints. A file is requested by its digest, never by a path."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import CheckpointView, EditCheckpoint, RemoveFiles, SeriesView, Wire
from detlab.schemas.wire.storage import Bookmark, PinList
from detlab_hub.core.rights import Action
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.views.pages import in_part
from detlab_hub.web.base import Guarded, PartQuery
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class GroupQuery(Wire):
    """Of which group."""

    group: str | None = Field(None, max_length=1000)
    """None: of all groups."""


class DeleteQuery(Wire):
    """How to delete."""

    now: bool = False
    """Without time in the trash: the files go at once, also of one that is in it."""


class StepValues(Wire):
    """Curves of one point each."""

    items: list[SeriesView]


@route("checkpoints/{uuid}", relayed=True)
class Checkpoint(Guarded):
    """One checkpoint."""

    @needs("read", cross_site="xsrf")
    async def get(self, uuid: str) -> CheckpointView:
        """Return a committed checkpoint with its manifest."""
        return await self.services[Checkpoints].get(self.person, uuid)

    @needs("write", cross_site="xsrf", action=Action.CHECKPOINT_DELETE)
    async def delete(self, uuid: str, query: DeleteQuery) -> CheckpointView:
        """Put a checkpoint that nothing pins into the trash; its record stays, as DELETED."""
        return await self.services[Removals].delete(self.person, uuid, now=query.now)


@route("checkpoints/{uuid}/undelete", relayed=True)
class Undelete(Guarded):
    """A checkpoint in the trash."""

    @needs("write", cross_site="xsrf", action=Action.CHECKPOINT_UNDELETE)
    async def post(self, uuid: str) -> CheckpointView:
        """Take a checkpoint out of the trash."""
        return await self.services[Removals].undelete(self.person, uuid)


@route("checkpoints/{uuid}/pins", relayed=True)
class Pins(Guarded):
    """What keeps a checkpoint."""

    @needs("read", cross_site="xsrf")
    async def get(self, uuid: str, query: PartQuery) -> PinList:
        """List what keeps a checkpoint from being deleted or collected, with the reasons."""
        return in_part(await self.services[Collecting].pins(self.person, uuid), query.skip)


@route("checkpoints/{uuid}/bookmark", relayed=True)
class BookmarkOf(Guarded):
    """The caller's bookmark of a checkpoint."""

    @needs("write", cross_site="xsrf", action=Action.CHECKPOINT_BOOKMARK)
    async def put(self, uuid: str, body: Bookmark) -> PinList:
        """Bookmark a checkpoint: it is neither deleted nor collected until the bookmark is removed."""
        return await self.services[Collecting].bookmark(self.person, uuid, body)

    @needs("write", cross_site="xsrf", action=Action.CHECKPOINT_UNBOOKMARK)
    async def delete(self, uuid: str) -> PinList:
        """Remove the caller's bookmark, or, for those who may delete the checkpoint, the others' ones."""
        return await self.services[Collecting].unbookmark(self.person, uuid)


@route("checkpoints/{uuid}/edit")
class Edit(Guarded):
    """The metadata of a checkpoint."""

    @needs("write", cross_site="xsrf", action=Action.CHECKPOINT_EDIT)
    async def post(self, uuid: str, body: EditCheckpoint) -> CheckpointView:
        """Set keys of a checkpoint's metadata, and remove keys."""
        return await self.services[Removals].edit(self.person, uuid, body)


@route("checkpoints/{uuid}/remove-files")
class RemoveSome(Guarded):
    """Some files of a checkpoint."""

    @needs("write", cross_site="xsrf", action=Action.CHECKPOINT_REMOVE_FILES)
    async def post(self, uuid: str, body: RemoveFiles) -> CheckpointView:
        """Delete the files that match a pattern; no trial can start from the checkpoint then."""
        return await self.services[Removals].remove_files(self.person, uuid, body.globs)


@route("checkpoints/{uuid}/metrics")
class Metrics(Guarded):
    """What was reported at the step of a checkpoint."""

    @needs("read", cross_site="xsrf")
    async def get(self, uuid: str, query: GroupQuery) -> StepValues:
        """Return the values that its trial reported at its step, each as a curve of one point."""
        return StepValues(items=await self.services[Checkpoints].metrics(self.person, uuid, query.group))


@route("checkpoints/{uuid}/files/{digest}", relayed=True)
class CheckpointFileBytes(Download):
    """One file of a checkpoint."""

    @needs("read", cross_site="link", media="application/octet-stream")
    async def get(self, uuid: str, digest: str) -> None:
        """Download one file by its digest, as the manifest names it."""
        opening = self.services[Checkpoints].open_file(self.person, uuid, digest)
        await self.send_contents(opening, "application/octet-stream")


@route("checkpoints/{uuid}/archive", relayed=True)
class CheckpointArchive(Download):
    """All files of a checkpoint."""

    @needs("read", cross_site="link", media="application/x-tar")
    async def get(self, uuid: str) -> None:
        """Download all files as a tar with one folder, named by the checkpoint's uuid."""
        await self.send_contents(self.services[Checkpoints].open_archive(self.person, uuid), "application/x-tar")
