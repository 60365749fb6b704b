"""Routes of code bundles: streamed to a temporary file, checked against their digest by the service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from detlab.errors import BundleTooLarge, DetlabError
from detlab.schemas.wire import Wire
from detlab_hub.services import AgentCaller
from detlab_hub.web.base import Guarded
from detlab_hub.web.files import send_file
from detlab_hub.web.scopes import needs


class BundleStored(Wire):
    """A bundle is there."""

    digest: str
    created: bool
    """False if it was there before."""


class Bundle(Guarded):
    """One bundle, by the digest of its bytes."""

    def initialize(self) -> None:
        """Nothing has come yet."""
        super().initialize()
        self._upload: BinaryIO | None = None
        self.body_limit = self.services.settings.bundle_limit  # type: ignore[misc]

    def too_large(self) -> DetlabError:
        """Return the refusal with the size cap."""
        return BundleTooLarge(
            f"the code is larger than {self.body_limit // 1024 // 1024} MB packed",
            hint="List data and outputs in .detignore, or read them from shared storage.",
        )

    async def prepare(self) -> None:
        """Open the temporary file once the caller is let in."""
        await super().prepare()
        if self.request.method == "PUT" and self._refusal is None:
            folder = self.services.settings.bundles_dir
            self._upload = await asyncio.to_thread(_temporary, folder)

    async def data_received(self, chunk: bytes) -> None:
        """Write what comes to the temporary file, up to the limit."""
        self._received += len(chunk)
        if self._upload is not None and self._received <= self.body_limit:
            await asyncio.to_thread(self._upload.write, chunk)

    @needs("write", accepts="application/gzip")
    async def put(self, digest: str) -> BundleStored:
        """Upload the code of an experiment, a tar.gz; the digest is `sha256:` of its bytes."""
        if self._received > self.body_limit:
            raise self.too_large()
        assert self._upload is not None
        await asyncio.to_thread(_finish, self._upload)
        created = await self.services.bundles.put(self.person, digest, Path(self._upload.name))
        self.set_status(201 if created else 200)
        return BundleStored(digest=digest, created=created)

    @needs("write")
    async def head(self, digest: str) -> None:
        """Say whether a bundle is there: 200 or 404."""
        await self.services.bundles.path_for(self.person, digest)

    @needs("agent", "task", media="application/gzip")
    async def get(self, digest: str) -> None:
        """Download a bundle that a task of the caller runs."""
        holder = self.agent if isinstance(self.caller, AgentCaller) else self.task
        path = await self.services.bundles.path_for(holder, digest)
        await send_file(self, path.open("rb"), "application/gzip")

    def on_finish(self) -> None:
        """Remove the temporary file, whatever happened; a stored bundle has been moved away."""
        self._discard()

    def on_connection_close(self) -> None:
        """Remove the temporary file of an upload that broke off."""
        super().on_connection_close()
        self._discard()

    def _discard(self) -> None:
        if self._upload is not None:
            self._upload.close()
            with contextlib.suppress(FileNotFoundError):
                Path(self._upload.name).unlink()
            self._upload = None


def _temporary(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".upload-", dir=folder)
    os.close(handle)
    return Path(name).open("wb")


def _finish(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
