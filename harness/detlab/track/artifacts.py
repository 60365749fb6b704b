"""Artifacts of a run on disk: what it has made, with the files, and what it uses, until the master has them.

RUN/artifacts/ID/version.json       a version to be logged: the name of the artifact, and `LogVersion`
RUN/artifacts/ID/SHA256             its files, by their digests; they go when the master has them
RUN/artifacts/ID/use.json           or a version that is used: artifact and number
RUN/artifacts/ID/logged.json        what the master has made of it
RUN/artifacts/ID/refused.json       or why it will never take it
"""

from __future__ import annotations

import json
import logging
import shutil
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detlab.errors import DetlabError, Unavailable
from detlab.files import write_atomic
from detlab.schemas.wire.artifacts.artifacts import ArtifactVersionView, LogVersion

if TYPE_CHECKING:
    from detlab.client.artifacts.draft import Artifact
    from detlab.client.artifacts.logged import ArtifactVersion
    from detlab.client.transport.session import Session

logger = logging.getLogger("detlab.track")
ARTIFACTS = "artifacts"
VERSION, USE, LOGGED, REFUSED = "version.json", "use.json", "logged.json", "refused.json"
_LOOK = 0.2


class ArtifactLost(DetlabError):
    """An artifact of a run was not logged, and will not be."""

    default_code = "run.artifact"


@dataclass(frozen=True)
class KeptArtifact:
    """Something about an artifact that the master is to get.

    Attributes:
        path: Its folder.
    """

    path: Path

    @property
    def settled(self) -> bool:
        """Whether the master has it, or will never take it."""
        return (self.path / LOGGED).exists() or (self.path / REFUSED).exists()

    @property
    def version(self) -> tuple[str, LogVersion] | None:
        """The name of the artifact and the version to be logged; None: it is a use."""
        try:
            said = json.loads((self.path / VERSION).read_bytes())
        except FileNotFoundError:
            return None
        return said["name"], LogVersion.model_validate(said["version"])

    @property
    def use(self) -> tuple[int, int]:
        """Artifact and number of the version that is used."""
        said = json.loads((self.path / USE).read_bytes())
        return int(said["artifact"]), int(said["version"])

    def sources(self) -> dict[str, Path]:
        """Return the files by their digests."""
        return {f"sha256:{one.name}": one for one in self.path.iterdir() if len(one.name) == 64}

    def note_logged(self, view: ArtifactVersionView) -> None:
        """Write down that the master has it; its files are not needed any more."""
        write_atomic(self.path / LOGGED, view.model_dump_json().encode())
        for path in self.sources().values():
            path.unlink(missing_ok=True)

    def note_refused(self, why: str) -> None:
        """Write down that the master will never take it; its files stay."""
        write_atomic(self.path / REFUSED, json.dumps({"message": why}).encode())

    def outcome(self) -> ArtifactVersionView | None:
        """Return what became of it; None: nothing so far.

        Raises:
            ArtifactLost: The master refused it.
        """
        if (self.path / LOGGED).exists():
            return ArtifactVersionView.model_validate_json((self.path / LOGGED).read_bytes())
        if (self.path / REFUSED).exists():
            why = json.loads((self.path / REFUSED).read_bytes())["message"]
            raise ArtifactLost(f"the artifact is not logged: {why}", hint=f"Its files are in {self.path}")
        return None


def kept_in(run: Path) -> list[KeptArtifact]:
    """Return what a run has of artifacts, in the order in which it came."""
    found = [one for one in (run / ARTIFACTS).glob("*") if (one / VERSION).exists() or (one / USE).exists()]
    return [KeptArtifact(path) for path in sorted(found)]


def keep_version(run: Path, artifact: Artifact, aliases: Iterable[str]) -> KeptArtifact:
    """Copy an artifact into the folder of a run.

    Raises:
        ConfigError: It is empty, or something about it cannot be sent.
        OSError: A file cannot be read, or the disk is full.
    """
    path = _new(run)
    try:
        ready = artifact.prepared(aliases=aliases, copy_to=path)
        said = {"name": artifact.name, "version": ready.body.model_dump(mode="json")}
        write_atomic(path / VERSION, json.dumps(said).encode())
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return KeptArtifact(path)


def keep_use(run: Path, view: ArtifactVersionView) -> None:
    """Keep that a run uses a version.

    Raises:
        OSError: The disk is full.
    """
    said: dict[str, Any] = {"artifact": view.artifact_id, "version": view.version}
    write_atomic(_new(run) / USE, json.dumps(said).encode())


class ArtifactFinder:
    """Finds versions of artifacts in the cluster that is found here."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def find(self, reference: str) -> ArtifactVersion:
        """Return a version by a reference.

        Raises:
            DetlabError: There is no such version, or no cluster that answers.
        """
        from detlab.client.artifacts.logged import ArtifactVersion
        from detlab.client.operations.artifacts import artifacts

        session = self._opened()
        return ArtifactVersion(session, session.run(artifacts.get_version(*artifacts.split_artifact(reference))))

    def wait_for(self, kept: KeptArtifact, what: str, timeout: float | None) -> ArtifactVersion:
        """Wait until an artifact is logged, and return its version.

        Raises:
            ArtifactLost: The master refused it.
            Unavailable: It was not sent in that time.
        """
        from detlab.client.artifacts.logged import ArtifactVersion

        end = None if timeout is None else time.monotonic() + timeout
        while (view := kept.outcome()) is None:
            if end is not None and time.monotonic() > end:
                raise Unavailable(
                    f"artifact {what} was not sent within {timeout:g} s", hint="It is on disk; det sync sends it later"
                )
            time.sleep(_LOOK)
        return ArtifactVersion(self._opened(), view)

    def close(self) -> None:
        """Close connections; what was found can be used again afterwards."""
        if self._session is not None:
            self._session.close()

    def _opened(self) -> Session:
        from detlab.client.transport.discovery import find_cluster, with_token
        from detlab.client.transport.session import Session

        address = with_token(find_cluster())
        if self._session is None or self._session.address != address:
            self.close()
            self._session = Session(address)
        return self._session


def _new(run: Path) -> Path:
    path = run / ARTIFACTS / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    path.mkdir(parents=True, mode=0o700)
    return path
