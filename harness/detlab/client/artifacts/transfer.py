"""Downloading a version: each file verified by its digest, the folder complete or absent, what is here not fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detlab.client.artifacts.cache import ArtifactCache
from detlab.client.operations.artifacts import artifacts
from detlab.client.transport.calls import Call, Flow, Progress
from detlab.client.transport.downloads import Assembly, complete, matches, replaceable
from detlab.errors import CheckpointError, StorageError
from detlab.schemas.wire import CheckpointFile, CheckpointView
from detlab.schemas.wire.artifacts.artifacts import ArtifactFile, ArtifactVersionView


def default_folder(view: ArtifactVersionView) -> Path:
    """Return where a version is downloaded to, if nobody says: `artifacts/cats-v3`."""
    return Path("artifacts") / f"{view.artifact}-v{view.version}"


def download_version(
    view: ArtifactVersionView,
    target: Path,
    cluster: str,
    *,
    references: bool = False,
    globs: Sequence[str] = (),
    progress: Progress | None = None,
) -> Flow[Path]:
    """Download a version to a folder and return that folder.

    Args:
        view: The version.
        target: Folder to create. If it already holds the version, nothing is transferred; the unchanged result of an
            earlier download is replaced.
        cluster: The address of the cluster, for the cache.
        references: Fetch what references lead to, too, with this machine's own credentials.
        globs: Take only files that match one of these patterns.
        progress: Called with (bytes done, bytes in all).

    Raises:
        CheckpointError: A file is damaged, what a reference leads to has changed, or nothing matches.
        StorageError: Something else is at `target`, or a reference cannot be read.
    """
    entries: list[ArtifactFile] = yield from artifacts.list_files(view.artifact_id, view.version)
    wanted = {one.path: one for one in entries if not globs or any(matches(one.path, glob) for glob in globs)}
    taken = {path: one for path, one in wanted.items() if references or not one.uri}
    what = f"{view.artifact_reference or view.artifact}:v{view.version}"
    if not taken:
        raise CheckpointError(
            f"there is nothing of {what} to download: it has {len(entries)} files, {len(wanted)} match",
            hint="What references lead to is fetched with references=True, or --references",
        )
    folder = _as_folder(view, taken)
    if complete(folder, target):
        return target
    there = target.exists() and not (target.is_dir() and not any(target.iterdir()))
    if there and not replaceable(target):
        raise StorageError(
            f"{target} exists and is neither {what} nor an unchanged download",
            hint="Name another folder, or remove that one first",
        )
    cache = ArtifactCache(cluster, view.artifact_id)
    with Assembly(folder, target, progress, replaces=there, what=what) as assembly:
        for path, file in assembly.wanted():
            if not assembly.has(path, file):
                yield from _fetched(view, taken[path], assembly, cache)
            assembly.verify(path, file)
        assembly.commit()
    cache.trim()
    return target


def _fetched(view: ArtifactVersionView, one: ArtifactFile, assembly: Assembly, cache: ArtifactCache) -> Flow[Any]:
    with assembly.writing(one.path) as writer:
        here = cache.copy(one.digest, writer)
    if here:
        return
    if one.uri:
        from detlab.client.artifacts.references import fetch

        with assembly.writing(one.path) as writer:
            fetch(one.uri, writer)
        if writer.digest != one.digest:
            raise CheckpointError(
                f"{one.uri} is not what it was when {assembly.what} was logged: its digest is {writer.digest}, the"
                f" version says {one.digest}",
                hint="Log a new version that refers to it as it is now",
            )
    else:
        route = artifacts.file_path(view.artifact_id, view.version)
        yield Call("GET", route, params={"path": one.path}, sink=lambda: assembly.writing(one.path))
    place = assembly.work / one.path
    if assembly.right(one.path, one.digest):
        cache.keep(one.digest, place)


def _as_folder(view: ArtifactVersionView, files: dict[str, ArtifactFile]) -> CheckpointView:
    """Return the files of a version as downloads know folders."""
    return CheckpointView(
        uuid=f"a{view.artifact_id}-v{view.version}-{view.digest[-12:]}",
        trial_id=0,
        experiment_id=0,
        files={path: CheckpointFile(size=one.size, digest=one.digest) for path, one in files.items()},
    )
