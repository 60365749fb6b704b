"""MLflow's routes of the files of runs and logged models: the client asks the server that it talks to for them."""

from __future__ import annotations

from pathlib import PurePosixPath

from detlab_hub.core.rights import Action
from detlab_hub.services.tracking.artifacts import ArtifactPlace, FileFacts, RootKind, RunArtifacts
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.web.files import Download
from detlab_hub.web.mlflow.base import ARTIFACTS, Empty, NotServed, ProtocolHandler, serves
from detlab_hub.web.mlflow.messages import ArtifactsQuery, ArtifactsReply, FileInfo, ListArtifacts
from detlab_hub.web.paths import protocol
from detlab_hub.web.scopes import needs
from detlab_hub.web.uploads import ArtifactUpload

BYTES = "application/octet-stream"
_OF_RUNS, _OF_OTHERS = 3, 4
"""Parts of a path before that of a file: EXPERIMENT/RUN/artifacts, EXPERIMENT/models/MODEL/artifacts."""
_KINDS = {"models": RootKind.MODEL, "checkpoints": RootKind.CHECKPOINT}


def place_of(path: str) -> ArtifactPlace:
    """Return where a path below all files leads to.

    Raises:
        BadRequest: It is none that `artifact_uri` of a run or a model begins.
    """
    parts = path.strip("/").split("/")
    if len(parts) >= _OF_OTHERS and parts[1] in _KINDS and parts[3] == "artifacts":
        return ArtifactPlace(parts[2], _KINDS[parts[1]], "/".join(parts[_OF_OTHERS:]))
    if len(parts) >= _OF_RUNS and parts[2] == "artifacts":
        return ArtifactPlace(parts[1], RootKind.RUN, "/".join(parts[_OF_RUNS:]))
    raise BadRequest(
        f"{path[:80]!r} is no path of files: EXPERIMENT/RUN/artifacts/… or EXPERIMENT/models/MODEL/artifacts/…"
    )


@protocol(f"{ARTIFACTS}artifacts/{{artifact_path}}")
class Artifact(ProtocolHandler, ArtifactUpload, Download):
    """One file."""

    alternative = "Keep larger ones as checkpoints"

    @needs("read", "task", cross_site="bearer", media=BYTES)
    async def get(self, artifact_path: str) -> None:
        """Download a file."""
        place, service = place_of(artifact_path), self.services[RunArtifacts]
        if place.kind is RootKind.CHECKPOINT:
            await self.send_contents(service.open_committed(self.tracker, place), BYTES)
        else:
            await self.send_file(service.open(self.tracker, place), BYTES)

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG, accepts=BYTES)
    async def put(self, artifact_path: str) -> Empty:
        """Upload a file; one of the same path is replaced."""
        await self.services[RunArtifacts].put(self.tracker, place_of(artifact_path), await self.uploaded())
        return Empty()

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def delete(self, artifact_path: str) -> Empty:
        """Remove a file or a folder."""
        await self.services[RunArtifacts].delete(self.tracker, place_of(artifact_path))
        return Empty()


@protocol(f"{ARTIFACTS}artifacts")
class Artifacts(ProtocolHandler):
    """The files in a folder."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: ArtifactsQuery) -> ArtifactsReply:
        """List a folder by the names in it."""
        found = await self.services[RunArtifacts].list(self.tracker, place_of(query.path))
        return ArtifactsReply(files=[_info(one, PurePosixPath(one.path).name) for one in found] or None)


@serves("artifacts/list")
class RunFiles(ProtocolHandler):
    """The files in a folder of a run."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: ListArtifacts) -> ArtifactsReply:
        """List a folder by whole paths."""
        place = ArtifactPlace(query.id, RootKind.RUN, query.path.strip("/"))
        found = await self.services[RunArtifacts].list(self.tracker, place)
        uri = f"mlflow-artifacts:/0/{query.id}/artifacts"
        return ArtifactsReply(root_uri=uri, files=[_info(one, one.path) for one in found] or None)


@protocol(f"{ARTIFACTS}mpu/{{anything}}", f"{ARTIFACTS}presigned/{{anything}}")
class NoParts(ProtocolHandler):
    """Uploads in parts, and addresses to upload to."""

    @needs("read", "task", cross_site="bearer", reads=True)
    async def get(self, anything: str) -> Empty:
        """Refuse: clients then send each file as a whole."""
        raise NotServed("files are uploaded and downloaded whole here, one request each")

    post = put = get


def _info(one: FileFacts, path: str) -> FileInfo:
    return FileInfo(path=path, is_dir=one.size is None, file_size=one.size)
