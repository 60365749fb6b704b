"""Artifacts that were logged, and their versions, asynchronous."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.client.artifacts.transfer import default_folder, download_version
from detlab.client.operations.artifacts import artifacts
from detlab.client.transport.calls import Progress
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire.artifacts.artifacts import ArtifactFile, ArtifactVersionView, ArtifactView
from detlab.schemas.wire.registry import LineageGraph


class AsyncArtifactVersion:
    """A version of an artifact, asynchronous: files and references that never change.

    Attributes:
        view: What the master says of it.
    """

    def __init__(self, session: AsyncSession, view: ArtifactVersionView) -> None:
        self._session = session
        self.view = view

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reference!r}, {self.view.files} files)"

    @property
    def reference(self) -> str:
        """What you name it by: `cats:v3`."""
        return f"{self.view.artifact_reference or self.view.artifact}:v{self.view.version}"

    @property
    def name(self) -> str:
        """Of the artifact."""
        return self.view.artifact

    @property
    def version(self) -> int:
        """Its number, from 1."""
        return self.view.version

    @property
    def type(self) -> str:
        """What the artifact is, such as `dataset` or `model`."""
        return self.view.kind

    @property
    def aliases(self) -> list[str]:
        """Its aliases; `latest` among them, if it is the newest."""
        return list(self.view.aliases)

    @property
    def metadata(self) -> dict[str, Any]:
        """Any JSON."""
        return dict(self.view.metadata)

    @property
    def digest(self) -> str:
        """Of its list of files: equal digests are equal contents."""
        return self.view.digest

    @property
    def size(self) -> int:
        """Bytes of its files, without those of references."""
        return self.view.size

    async def reload(self) -> AsyncArtifactVersion:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(artifacts.get_version(self.view.artifact_id, self.view.version))
        return self

    async def files(self) -> list[ArtifactFile]:
        """Return its files and references, by path."""
        return await self._session.run(artifacts.list_files(self.view.artifact_id, self.view.version))

    async def versions(self, *, limit: int | None = None) -> list[AsyncArtifactVersion]:
        """Return all versions of its artifact, newest first."""
        views = await self._session.run(artifacts.list_versions(self.view.artifact_id, limit))
        return [AsyncArtifactVersion(self._session, view) for view in views]

    async def download(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        references: bool = False,
        globs: Sequence[str] = (),
        progress: Progress | None = None,
        **ignored: Any,
    ) -> Path:
        """Download its files to a folder (default `artifacts/NAME-vN`) and return that folder.

        Every file is verified by its digest, and the folder appears complete or not at all. What this user has
        downloaded to this machine before is copied from there.

        Args:
            path: Folder to create. If it already holds the version, nothing is transferred; the unchanged result of
                an earlier download is replaced.
            references: Fetch what references lead to, too, with this machine's own credentials: only if you trust who
                has logged them to name addresses to you.
            globs: Take only files that match one of these patterns.
            progress: Called with (bytes done, bytes in all).
            **ignored: Settings of others.

        Raises:
            CheckpointError: A file is damaged, what a reference leads to has changed, or nothing matches.
            StorageError: Something else is at `path`, or a reference cannot be read.
        """
        target = Path(path) if path is not None else default_folder(self.view)
        flow = download_version(
            self.view, target, self._session.address.url, references=references, globs=globs, progress=progress
        )
        return await self._session.run(flow, in_thread=True)

    async def use(self, run: str = "") -> None:
        """Record that a run uses it.

        Args:
            run: Its id, or the key of one of your own; in a trial it is the trial.
        """
        self.view = await self._session.run(artifacts.use_version(self.view.artifact_id, self.view.version, run))

    async def lineage(self) -> LineageGraph:
        """Return where it comes from and what was made with it, up to versions of models, as a graph."""
        return await self._session.run(artifacts.lineage(self.view.artifact_id, self.view.version))

    async def add_aliases(self, *aliases: str) -> None:
        """Give it aliases; each is taken from the version that has it now."""
        await self._edit(add_aliases=list(aliases))

    async def remove_aliases(self, *aliases: str) -> None:
        """Take aliases away from it."""
        await self._edit(remove_aliases=list(aliases))

    async def set_comment(self, comment: str) -> None:
        """Describe it."""
        await self._edit(comment=comment)

    async def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set keys of its metadata; others stay."""
        await self._edit(set_metadata=dict(metadata))

    async def remove_metadata(self, keys: Iterable[str]) -> None:
        """Remove keys of its metadata."""
        await self._edit(remove_metadata=list(keys))

    async def delete(self, *, force: bool = False) -> None:
        """Delete it with the files that no other version has; its number is never given again.

        Raises:
            Conflict: Runs use it, or aliases point at it, and it is not forced.
        """
        await self._session.run(artifacts.delete_version(self.view.artifact_id, self.view.version, force=force))

    async def _edit(self, **changes: Any) -> None:
        self.view = await self._session.run(artifacts.edit_version(self.view.artifact_id, self.view.version, **changes))


class AsyncArtifactCollection:
    """An artifact with all its versions, asynchronous.

    Attributes:
        view: What the master says of it.
    """

    def __init__(self, session: AsyncSession, view: ArtifactView) -> None:
        self._session = session
        self.view = view

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.view.reference!r}, {self.view.versions} versions)"

    @property
    def id(self) -> int:
        """Its id, which stays when it gets another name."""
        return self.view.id

    @property
    def name(self) -> str:
        """Its name."""
        return self.view.name

    async def versions(self, *, limit: int | None = None) -> list[AsyncArtifactVersion]:
        """Return its versions, newest first."""
        views = await self._session.run(artifacts.list_versions(self.view.id, limit))
        return [AsyncArtifactVersion(self._session, view) for view in views]

    async def get_version(self, version: int | str = "latest") -> AsyncArtifactVersion:
        """Return a version by its number, `v3`, an alias or `latest`."""
        return AsyncArtifactVersion(
            self._session, await self._session.run(artifacts.get_version(self.view.id, version))
        )

    async def set_description(self, description: str) -> None:
        """Describe it."""
        self.view = await self._session.run(artifacts.edit_artifact(self.view.id, description=description))

    async def set_name(self, name: str) -> None:
        """Give it another name."""
        self.view = await self._session.run(artifacts.edit_artifact(self.view.id, name=name))

    async def move_to_workspace(self, workspace: str | int = "") -> None:
        """Move it: the members of that workspace see it from then on; empty: your personal one."""
        self.view = await self._session.run(artifacts.edit_artifact(self.view.id, workspace=str(workspace)))

    async def delete(self, *, force: bool = False) -> None:
        """Delete it with all versions and files.

        Raises:
            Conflict: Runs use its versions, or aliases point at them, and it is not forced.
        """
        await self._session.run(artifacts.delete_artifact(self.view.id, force=force))
