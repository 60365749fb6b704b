"""Bodies that are files: streamed to a temporary one, on the file system of their destination."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from detlab.errors import DetlabError, Unavailable
from detlab_hub.services.base.threads import Workers, user_of
from detlab_hub.web.base import BodyTooLarge, Guarded
from detlab_hub.web.bodies import Sender

log = logging.getLogger("detlab.web")


class Upload(Guarded):
    """Base of routes whose PUT takes a file. The temporary file is removed unless the service moved it away."""

    @property
    def folder(self) -> Path:
        """Where temporary files are made."""
        raise NotImplementedError

    def initialize(self) -> None:
        """Begin with nothing received."""
        super().initialize()
        self._upload: BinaryIO | None = None
        self._ticket: str | None = None
        self._sender: Sender | None = None

    @property
    def _workers(self) -> Workers:
        return self.services.context.workers

    async def prepare(self) -> None:
        """Open the temporary file once the caller is admitted and has no more uploads under way than allowed."""
        await super().prepare()
        if self.request.method == "PUT" and self._refusal is None:
            user = user_of(self.caller)
            try:
                self._workers.open_uploads.take(user)
                self._ticket = user
                self._upload = await self._workers.uploads.run(user, _temporary, self.folder)
            except Unavailable as error:
                self._refusal = error
            if self._ticket is None:  # the sender has gone meanwhile
                self._discard()
        if self._sender is not None:
            self._sender.wait()

    def limit_time(self) -> None:
        """Cut an upload that pauses too long or is too slow; how long it takes in all depends on its size."""
        if self.request.method == "PUT":
            self._sender = Sender(self.body_limits, self._cut)
        else:
            super().limit_time()

    def _cut(self, why: str) -> None:
        log.info("%s %s: the upload is cut: %s", self.request.method, self.request.path, why)
        self.request.connection.stream.close()  # type: ignore[union-attr]  # over HTTP/1 there is one

    async def data_received(self, chunk: bytes) -> None:
        """Write the received bytes to the temporary file, up to the limit."""
        if self._sender is not None:
            self._sender.came(len(chunk))
        self._received += len(chunk)
        if self._upload is not None and self._received <= self.body_limit:
            await self._workers.uploads.run(user_of(self.caller), self._upload.write, chunk)
        if self._sender is not None:
            self._sender.wait()

    def admitted(self) -> bool:
        """Expect nothing more, and say whether the verb may run."""
        if self._sender is not None:
            self._sender.stop()
        return super().admitted()

    async def uploaded(self) -> Path:
        """Return the uploaded file.

        Raises:
            DetlabError: It is over the limit (`too_large`).
        """
        if self._received > self.body_limit:
            raise self.too_large()
        assert self._upload is not None
        await self._workers.uploads.run(user_of(self.caller), _finish, self._upload)
        return Path(self._upload.name)

    def on_finish(self) -> None:
        """Remove the temporary file, whatever happened; a stored one has been moved away."""
        super().on_finish()
        self._discard()

    def on_connection_close(self) -> None:
        """Remove the temporary file of an upload that broke off."""
        super().on_connection_close()
        self._discard()

    def _discard(self) -> None:
        if self._sender is not None:
            self._sender.stop()
        if self._ticket is not None:
            self._workers.open_uploads.release(self._ticket)
            self._ticket = None
        if self._upload is not None:
            with contextlib.suppress(OSError):  # a full disk: what was not written yet is not wanted
                self._upload.close()
            with contextlib.suppress(FileNotFoundError):
                Path(self._upload.name).unlink()
            self._upload = None


class ArtifactUpload(Upload):
    """Base of routes that take files of artifacts and of runs: up to the operator's limit, beside the stored ones."""

    alternative = "Keep larger ones elsewhere"
    """What the refusal of a larger file advises."""

    def initialize(self) -> None:
        """Take the operator's limit."""
        super().initialize()
        if self.request.method == "PUT":
            self.body_limit = self.services.settings.artifact_limit

    @property
    def folder(self) -> Path:
        """Beside the stored files."""
        return self.services.settings.artifacts_dir

    def too_large(self) -> DetlabError:
        """Return the refusal with the operator's limit."""
        return BodyTooLarge(
            f"a file has {self.body_limit // 1024**2:,} MB at most here",
            hint=f"{self.alternative}; an operator raises DetHub.artifact_limit_mb.",
        )


def _temporary(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".upload-", dir=folder)
    os.close(handle)
    return Path(name).open("wb")


def _finish(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
