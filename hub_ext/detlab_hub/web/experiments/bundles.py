"""Routes of code bundles: streamed to a temporary file, checked against their digest by the service."""

from __future__ import annotations

from pathlib import Path

from detlab.errors import BundleTooLarge, DetlabError
from detlab.schemas.wire import Wire
from detlab_hub.core.rights import Action
from detlab_hub.services import AgentCaller
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.uploads import Upload


class BundleStored(Wire):
    """A bundle is there."""

    digest: str
    created: bool
    """False if the caller had sent it before; uploads of other users do not count."""


@route("bundles/{digest}")
class Bundle(Upload, Download):
    """One bundle, by its digest."""

    def initialize(self) -> None:
        """Take the operator's limit."""
        super().initialize()
        self.body_limit = self.services.settings.bundle_limit

    @property
    def folder(self) -> Path:
        """Beside the stored bundles."""
        return self.services.settings.bundles_dir

    def too_large(self) -> DetlabError:
        """Return the refusal with the size cap."""
        return BundleTooLarge(
            f"the code is larger than {self.body_limit // 1024 // 1024} MB packed",
            hint="List data and outputs in .detignore, or read them from shared storage.",
        )

    @needs("write", cross_site="xsrf", action=Action.BUNDLE_UPLOAD, accepts="application/gzip")
    async def put(self, digest: str) -> BundleStored:
        """Upload the code of an experiment, a tar.gz; the digest is `tree:` of its files, or `sha256:` of its bytes."""
        created = await self.services[Bundles].put(self.person, digest, await self.uploaded())
        self.set_status(201 if created else 200)
        return BundleStored(digest=digest, created=created)

    @needs("write", cross_site="xsrf")
    async def head(self, digest: str) -> None:
        """Say whether a bundle is there that the caller has sent, or sees an experiment or task of: 200 or 404."""
        await self.services[Bundles].path_for(self.person, digest)

    @needs("agent", "task", cross_site="token", media="application/gzip")
    async def get(self, digest: str) -> None:
        """Download a bundle that a task of the caller runs."""
        holder = self.agent if isinstance(self.caller, AgentCaller) else self.task
        path = await self.services[Bundles].path_for(holder, digest)
        await self.send_path(path, "application/gzip")
