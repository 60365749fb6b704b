"""The part of the asynchronous client that is about artifacts."""

from __future__ import annotations

from collections.abc import Iterable

from detlab.client.artifacts.alogged import AsyncArtifactCollection, AsyncArtifactVersion
from detlab.client.artifacts.draft import Artifact
from detlab.client.operations.artifacts import artifacts
from detlab.client.transport.calls import Progress
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire.artifacts.artifacts import RunArtifact


class AsyncArtifactCalls:
    """Artifacts of a cluster."""

    session: AsyncSession

    async def get_artifact(self, reference: str) -> AsyncArtifactVersion:
        """Return a version by `cats:v3`, `cats:best`, `ada/cats:latest` or `cats`, which is its newest.

        Raises:
            NotFound: There is none.
        """
        wanted = artifacts.get_version(*artifacts.split_artifact(reference))
        return AsyncArtifactVersion(self.session, await self.session.run(wanted))

    async def get_artifact_collection(self, name: str | int) -> AsyncArtifactCollection:
        """Return an artifact with all its versions, by its name if it is your own, by `OWNER/NAME`, or by its id.

        Raises:
            NotFound: There is none.
        """
        return AsyncArtifactCollection(self.session, await self.session.run(artifacts.get_artifact(name)))

    async def list_artifacts(
        self,
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002  (as the artifact's own)
        owner: str | None = None,
        workspace: str | int | None = None,
        limit: int | None = None,
    ) -> list[AsyncArtifactCollection]:
        """Return artifacts, newest first.

        Args:
            name: A part of the name, in capitals or not.
            type: Only those of this type.
            owner: Only this user's.
            workspace: Only those that lie in this one: its name, `OWNER/NAME` or id.
            limit: Only the newest so many.
        """
        wanted = artifacts.list_artifacts(limit=limit, name=name, kind=type, owner=owner, workspace=workspace)
        return [AsyncArtifactCollection(self.session, view) for view in await self.session.run(wanted)]

    async def log_artifact(
        self,
        artifact: Artifact,
        *,
        aliases: Iterable[str] = (),
        run: str = "",
        progress: Progress | None = None,
    ) -> AsyncArtifactVersion:
        """Log an artifact as a version; the content of the newest version is that one.

        Args:
            artifact: What was put together.
            aliases: Names of the version, beside those of the artifact itself.
            run: The run that has made it, by its id or your own key of it.
            progress: Called with (bytes sent, bytes that the master lacks).

        Raises:
            ConfigError: It is empty, or something about it cannot be sent.
        """
        ready = artifact.prepared(run=run, aliases=aliases)
        flow = artifacts.log_version(artifact.name, ready.body, ready.sources, progress)
        reply = await self.session.run(flow, in_thread=True)
        assert reply.version is not None
        return AsyncArtifactVersion(self.session, reply.version)

    async def get_run_artifacts(self, run: str) -> list[RunArtifact]:
        """Return the versions that a run has made and used."""
        return await self.session.run(artifacts.artifacts_of_run(run))
