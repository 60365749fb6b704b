"""Requests about artifacts and their versions; a version is made in two steps, see `log_version`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, Progress, model, valid_request
from detlab.errors import ConfigError, Conflict, Problem
from detlab.schemas.wire.artifacts.artifacts import (
    LATEST,
    ArtifactFile,
    ArtifactVersionView,
    ArtifactView,
    EditArtifact,
    EditArtifactVersion,
    LogVersion,
    RunArtifact,
    UseVersion,
    VersionLogged,
)
from detlab.schemas.wire.registry import LineageGraph

Name = str | int
"""An artifact's name, `OWNER/NAME` or id; a version's number, `v3`, alias or `latest`."""
_ROUNDS = 3
"""Times that missing files are sent: an upload may be swept away by who deletes a version meanwhile."""


def split_artifact(reference: str) -> tuple[str, str]:
    """Return (artifact, version) of `cats:v3`, `cats:best`, `ada/cats:latest` or `cats`, which is the newest.

    Raises:
        ConfigError: Nothing is before or after the `:`, or it names a project, as W&B does.
    """
    name, colon, version = reference.rpartition(":")
    if not colon:
        name, version = reference, LATEST
    problem = ""
    if not name or not version:
        problem = f"{reference!r} names no {'version after' if name else 'artifact before'} the `:`"
    elif name.count("/") > 1:
        problem = f"{reference!r} has more parts than OWNER/NAME:VERSION: artifacts lie in no project"
    if problem:
        raise ConfigError([Problem("reference", problem)], problem, hint="cats:latest is the newest version of cats")
    return name, version


def list_artifacts(
    *,
    limit: int | None = None,
    name: str | None = None,
    kind: str | None = None,
    owner: str | None = None,
    workspace: str | int | None = None,
) -> Flow[list[ArtifactView]]:
    """Fetch artifacts, newest first."""
    query = {"name": name, "kind": kind, "owner": owner, "workspace": workspace}
    return pages("artifacts", ArtifactView, "after", limit, query)


def get_artifact(name: Name) -> Flow[ArtifactView]:
    """Fetch an artifact."""
    return one(Call("GET", _artifact(name), parse=model(ArtifactView)))


def edit_artifact(name: Name, /, **changes: Any) -> Flow[ArtifactView]:
    """Change fields of `EditArtifact`; can safely be repeated."""
    with valid_request("this cannot be written about an artifact"):
        body = EditArtifact.model_validate(changes)
    return one(Call("POST", f"{_artifact(name)}/edit", json=body, parse=model(ArtifactView)))


def delete_artifact(name: Name, *, force: bool = False) -> Flow[ArtifactView]:
    """Delete an artifact with its versions."""
    query = {"force": "true" if force else None}
    return one(Call("DELETE", _artifact(name), params=query, parse=model(ArtifactView), again=False))


# --- versions


def log_version(
    name: Name, wanted: LogVersion, sources: Mapping[str, Path], progress: Progress | None = None
) -> Flow[VersionLogged]:
    """Make a version: ask which files are missing, send these, and ask again. It can safely be repeated.

    Args:
        name: Of the artifact.
        wanted: What the version is.
        sources: By digest, where each file is.
        progress: Called with (bytes sent, bytes that are missing).

    Raises:
        Conflict: Files that were sent are missing again and again.
    """
    ask = Call("POST", f"{_artifact(name)}/versions", json=wanted, parse=model(VersionLogged))
    for _ in range(_ROUNDS):
        reply: VersionLogged = yield ask
        if reply.version is not None:
            return reply
        total, done = sum(sources[digest].stat().st_size for digest in reply.missing), 0
        for digest in reply.missing:
            source = sources[digest]
            path = f"artifacts/{reply.artifact_id}/files/{quote(digest, safe=':')}"
            yield Call("PUT", path, source=source, progress=_part_of(progress, done, total))
            done += source.stat().st_size
    raise Conflict(
        f"files of artifact {name} that were sent are missing again",
        hint="Somebody deletes it, or its versions, meanwhile",
    )


def _part_of(progress: Progress | None, done: int, total: int) -> Progress | None:
    return None if progress is None else lambda sent, _: progress(done + sent, total)


def list_versions(name: Name, limit: int | None = None) -> Flow[list[ArtifactVersionView]]:
    """Fetch the versions of an artifact, newest first."""
    return pages(f"{_artifact(name)}/versions", ArtifactVersionView, "after", limit)


def get_version(name: Name, version: Name) -> Flow[ArtifactVersionView]:
    """Fetch a version."""
    return one(Call("GET", _version(name, version), parse=model(ArtifactVersionView)))


def edit_version(name: Name, version: Name, /, **changes: Any) -> Flow[ArtifactVersionView]:
    """Change fields of `EditArtifactVersion`; can safely be repeated."""
    with valid_request("this cannot be written about a version of an artifact"):
        body = EditArtifactVersion.model_validate(changes)
    return one(Call("POST", f"{_version(name, version)}/edit", json=body, parse=model(ArtifactVersionView)))


def delete_version(name: Name, version: Name, *, force: bool = False) -> Flow[ArtifactVersionView]:
    """Delete a version."""
    query = {"force": "true" if force else None}
    return one(Call("DELETE", _version(name, version), params=query, parse=model(ArtifactVersionView), again=False))


def use_version(name: Name, version: Name, run: str = "") -> Flow[ArtifactVersionView]:
    """Record that a run uses a version; a trial's own token needs no run."""
    with valid_request("a run cannot be recorded so"):
        body = UseVersion.model_validate({"run": run})
    return one(Call("POST", f"{_version(name, version)}/use", json=body, parse=model(ArtifactVersionView)))


def list_files(name: Name, version: Name) -> Flow[list[ArtifactFile]]:
    """Fetch the files and references of a version, by path."""
    return pages(f"{_version(name, version)}/files", ArtifactFile, "after", None)


def lineage(name: Name, version: Name) -> Flow[LineageGraph]:
    """Fetch where a version comes from, and what was made with it."""
    return one(Call("GET", f"{_version(name, version)}/lineage", parse=model(LineageGraph)))


def artifacts_of_run(run: str) -> Flow[list[RunArtifact]]:
    """Fetch what a run has made and used."""
    return pages(f"runs/{quote(run, safe='')}/artifacts", RunArtifact, "skip", None)


def file_path(name: Name, version: Name) -> str:
    """Return the path of the route that sends one file of a version."""
    return f"{_version(name, version)}/file"


def _artifact(name: Name) -> str:
    return f"artifacts/{quote(str(name), safe='')}"


def _version(name: Name, version: Name) -> str:
    return f"{_artifact(name)}/versions/{quote(str(version), safe='')}"
