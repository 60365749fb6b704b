"""Routes of checkpoints. A file is requested by its digest, never by a path."""

from __future__ import annotations

from detlab.schemas.wire import CheckpointView
from detlab_hub.web.base import Guarded
from detlab_hub.web.files import Download
from detlab_hub.web.scopes import needs


class Checkpoint(Guarded):
    """One checkpoint."""

    @needs("read", cross_site="xsrf")
    async def get(self, uuid: str) -> CheckpointView:
        """Return a committed checkpoint with its manifest."""
        return await self.services.checkpoints.get(self.person, uuid)


class CheckpointFileBytes(Download):
    """One file of a checkpoint."""

    @needs("read", cross_site="link", media="application/octet-stream")
    async def get(self, uuid: str, digest: str) -> None:
        """Download one file by its digest, as the manifest names it."""
        opening = self.services.checkpoints.open_file(self.person, uuid, digest)
        await self.send_file(opening, "application/octet-stream")


class CheckpointArchive(Download):
    """All files of a checkpoint."""

    @needs("read", cross_site="link", media="application/x-tar")
    async def get(self, uuid: str) -> None:
        """Download all files as a tar with one folder, named by the checkpoint's uuid."""
        await self.send_archive(self.services.checkpoints.open_archive(self.person, uuid), "application/x-tar")
