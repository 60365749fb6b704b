"""Routes of artifacts. One is named by its name, percent-encoded, by OWNER/NAME likewise, or by its id.

Trials come with their own token, and act for their owner. Files are sent as downloads, and opened by nobody here.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.artifacts.artifacts import (
    KIND_CHARS,
    PATH_CHARS,
    ArtifactFileList,
    ArtifactList,
    ArtifactVersionList,
    ArtifactVersionView,
    ArtifactView,
    EditArtifact,
    EditArtifactVersion,
    LogVersion,
    RunArtifactList,
    UseVersion,
    VersionLogged,
)
from detlab.schemas.wire.registry import LineageGraph
from detlab_hub.core.rights import Action
from detlab_hub.services.artifacts.artifacts import Artifacts as ArtifactsService
from detlab_hub.services.artifacts.files import ArtifactFiles
from detlab_hub.services.artifacts.lineage import ArtifactLineages
from detlab_hub.services.artifacts.versions import ArtifactVersions
from detlab_hub.web.base import Guarded, PartQuery, RowId
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.uploads import ArtifactUpload

BYTES = "application/octet-stream"
FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""Of a file: whatever opens it, it is nobody."""


class ArtifactsQuery(Wire):
    """Which artifacts."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`next` of the last page."""
    name: str | None = Field(None, max_length=1000)
    """A part of the name."""
    kind: str | None = Field(None, max_length=4 * KIND_CHARS)
    owner: str | None = None
    workspace: str | None = Field(None, max_length=1000)
    """Only those that lie in this workspace: a name, OWNER/NAME or an id."""


class VersionsQuery(Wire):
    """Which versions."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`next` of the last page."""


class FilesQuery(Wire):
    """Which files."""

    limit: int = Field(1000, ge=1, le=10_000)
    after: str = Field("", max_length=PATH_CHARS)
    """`next` of the last page."""


class FileQuery(Wire):
    """Which file."""

    path: str = Field(min_length=1, max_length=PATH_CHARS)


class ForcedRemoval(Wire):
    """How a deletion is meant."""

    force: bool = False
    """Also if runs use it, or aliases point at it."""


@route("artifacts", relayed=True)
class Artifacts(Guarded):
    """All artifacts."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: ArtifactsQuery) -> ArtifactList:
        """List artifacts, newest first."""
        return await self.services[ArtifactsService].list(self.person, **query.model_dump())


@route("artifacts/{artifact}", relayed=True)
class Artifact(Guarded):
    """One artifact."""

    @needs("read", "task", cross_site="xsrf")
    async def get(self, artifact: str) -> ArtifactView:
        """Return an artifact, without its versions."""
        return await self.services[ArtifactsService].get(self.tracker, artifact)

    @needs("write", cross_site="xsrf", action=Action.ARTIFACT_DELETE)
    async def delete(self, artifact: str, query: ForcedRemoval) -> ArtifactView:
        """Delete an artifact with all its versions and files."""
        return await self.services[ArtifactsService].delete(self.person, artifact, force=query.force)


@route("artifacts/{artifact}/edit", relayed=True)
class Edit(Guarded):
    """What people change about an artifact."""

    @needs("write", cross_site="xsrf", action=Action.ARTIFACT_EDIT)
    async def post(self, artifact: str, body: EditArtifact) -> ArtifactView:
        """Change the description; give it another name, or move it to another workspace."""
        return await self.services[ArtifactsService].edit(self.person, artifact, body)


@route("artifacts/{artifact}/files/{digest}")
class Bytes(ArtifactUpload):
    """The bytes of a file of a version to come."""

    alternative = "Keep larger ones elsewhere, and add a reference"

    @needs("write", "task", cross_site="bearer", action=Action.ARTIFACT_LOG, accepts=BYTES)
    async def put(self, artifact: str, digest: str) -> None:
        """Upload a file by its digest; what no version names a day later is removed."""
        await self.services[ArtifactFiles].put(self.tracker, artifact, digest, await self.uploaded())
        self.set_status(204)


@route("artifacts/{artifact}/versions", relayed=True)
class Versions(Guarded):
    """The versions of an artifact."""

    @needs("read", "task", cross_site="xsrf")
    async def get(self, artifact: str, query: VersionsQuery) -> ArtifactVersionList:
        """List an artifact's versions, newest first."""
        return await self.services[ArtifactVersions].list(self.tracker, artifact, query.limit, query.after)

    @needs("write", "task", cross_site="bearer", action=Action.ARTIFACT_LOG)
    async def post(self, artifact: str, body: LogVersion) -> VersionLogged:
        """Log a version, or say which of its files are to be uploaded first; the content of the newest is that one."""
        return await self.services[ArtifactVersions].log(self.tracker, artifact, body)


@route("artifacts/{artifact}/versions/{version}", relayed=True)
class Version(Guarded):
    """One version."""

    @needs("read", "task", cross_site="xsrf")
    async def get(self, artifact: str, version: str) -> ArtifactVersionView:
        """Return a version with the runs that have made it and use it."""
        return await self.services[ArtifactVersions].get(self.tracker, artifact, version)

    @needs("write", cross_site="xsrf", action=Action.ARTIFACT_DELETE)
    async def delete(self, artifact: str, version: str, query: ForcedRemoval) -> ArtifactVersionView:
        """Delete a version with the files that no other version has; its number is not given again."""
        return await self.services[ArtifactVersions].delete(self.person, artifact, version, force=query.force)


@route("artifacts/{artifact}/versions/{version}/edit", relayed=True)
class EditVersion(Guarded):
    """What people change about a version."""

    @needs("write", cross_site="xsrf", action=Action.ARTIFACT_EDIT)
    async def post(self, artifact: str, version: str, body: EditArtifactVersion) -> ArtifactVersionView:
        """Change a version's comment, metadata and aliases."""
        return await self.services[ArtifactVersions].edit(self.person, artifact, version, body)


@route("artifacts/{artifact}/versions/{version}/use")
class Use(Guarded):
    """A run that uses a version."""

    @needs("write", "task", cross_site="bearer", action=Action.ARTIFACT_USE)
    async def post(self, artifact: str, version: str, body: UseVersion) -> ArtifactVersionView:
        """Record that a run uses a version, and return that."""
        return await self.services[ArtifactVersions].use(self.tracker, artifact, version, body.run)


@route("artifacts/{artifact}/versions/{version}/files", relayed=True)
class Files(Guarded):
    """The files of a version."""

    @needs("read", "task", cross_site="xsrf")
    async def get(self, artifact: str, version: str, query: FilesQuery) -> ArtifactFileList:
        """List the files and references of a version, by path."""
        return await self.services[ArtifactVersions].files(self.tracker, artifact, version, query.limit, query.after)


@route("artifacts/{artifact}/versions/{version}/file", relayed=True)
class File(Download):
    """One file of a version."""

    @needs("read", "task", cross_site="link", media=BYTES)
    async def get(self, artifact: str, version: str, query: FileQuery) -> None:
        """Download a file."""
        self.set_header("Content-Security-Policy", FILE_POLICY)
        opening = self.services[ArtifactFiles].open(self.tracker, artifact, version, query.path)
        await self.send_file(opening, BYTES, file_name(query.path))


@route("artifacts/{artifact}/versions/{version}/lineage", relayed=True)
class ArtifactLineage(Guarded):
    """Where a version comes from, and what was made with it."""

    @needs("read", cross_site="xsrf")
    async def get(self, artifact: str, version: str) -> LineageGraph:
        """Return the lineage of a version in both directions, up to versions of models."""
        return await self.services[ArtifactLineages].graph(self.person, artifact, version)


@route("runs/{run_id}/artifacts", relayed=True)
class OfRun(Guarded):
    """What a run has made and used."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: PartQuery) -> RunArtifactList:
        """List the versions of artifacts that a run has made and used."""
        return await self.services[ArtifactVersions].of_run(self.person, run_id, query.skip)


def file_name(path: str) -> str:
    """Return a name for a download: letters, digits, dots and dashes, whatever the path is."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", PurePosixPath(path).name).strip("-.")[:100] or "file"
