"""`core_context.artifacts`: folders in versions that a trial uses and makes, by the task's own token.

Nothing of `detlab.client` is imported before the first call.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from detlab.info import ClusterInfo

if TYPE_CHECKING:
    from detlab.client.artifacts.draft import Artifact
    from detlab.client.artifacts.logged import ArtifactVersion
    from detlab.client.transport.session import Session

logger = logging.getLogger("detlab.core")
ATTEMPTS, LONGEST_PAUSE = 60, 15.0
"""A master that restarts is waited for: about a quarter of an hour."""


class ArtifactContext:
    """Artifacts of a trial. Off-cluster the cluster that this user is logged in to is asked, and no run is recorded.

    Args:
        info: The task; None: there is none.
    """

    def __init__(self, info: ClusterInfo | None) -> None:
        self._info = info
        self._known: Session | None = None

    def use(self, reference: str) -> ArtifactVersion:
        """Return a version, and record that this trial uses it: `use("cats:latest").download()`.

        Any rank may call it; the record is made once.

        Args:
            reference: `cats:v3`, `cats:best`, `ada/cats:latest`, or `cats`, which is the newest version.

        Raises:
            NotFound: There is none that the trial's owner may read.
            ClusterUnreachable: The master did not answer for a quarter of an hour.
            StaleAttempt: A newer attempt of this trial runs: end this process.
        """
        from detlab.client.artifacts.logged import ArtifactVersion
        from detlab.client.operations.artifacts import artifacts

        session, named = self._session(), artifacts.split_artifact(reference)
        flow = artifacts.get_version(*named) if self._info is None else artifacts.use_version(*named)
        return ArtifactVersion(session, session.run(flow))

    def log(
        self,
        artifact: Artifact | str | os.PathLike[str],
        name: str | None = None,
        type: str | None = None,  # noqa: A002  (as the artifact's own)
        *,
        aliases: Iterable[str] = (),
    ) -> Artifact:
        """Log a version that this trial has made, as its owner's: call it on one rank. It returns when that is stored.

        Args:
            artifact: What was put together; or the path of a file or a folder.
            name: Of the artifact, if it is a path.
            type: What it is, if it is a path.
            aliases: Names of the version.

        Raises:
            ConfigError: It is empty, or something about it cannot be sent.
            ClusterUnreachable: The master did not answer for a quarter of an hour.
            StaleAttempt: A newer attempt of this trial runs: end this process.
        """
        from detlab.client.artifacts.draft import as_artifact
        from detlab.client.artifacts.logged import ArtifactVersion
        from detlab.client.operations.artifacts import artifacts

        made = as_artifact(artifact, name, type)
        ready = made.prepared(aliases=aliases)
        session = self._session()
        reply = session.run(artifacts.log_version(made.name, ready.body, ready.sources))
        assert reply.version is not None
        made.became(ArtifactVersion(session, reply.version))
        logger.info("artifact %s:v%d is logged", made.name, reply.version.version)
        return made

    def close(self) -> None:
        """Close connections; the context, and the versions that it gave, can be used again afterwards."""
        if self._known is not None:
            self._known.close()

    def _session(self) -> Session:
        """Return a session with the token as it is now: the launcher renews it."""
        from detlab.client.transport.calls import Retries
        from detlab.client.transport.discovery import ClusterAddress, find_cluster, with_token
        from detlab.client.transport.session import Session

        task = self._info
        address = (
            with_token(find_cluster())
            if task is None
            else ClusterAddress(task.master_url, task.session_token, "this task")
        )
        if self._known is None or self._known.address != address:
            self.close()
            patience = None if task is None else Retries(cap=LONGEST_PAUSE, attempts=ATTEMPTS, refused=ATTEMPTS)
            self._known = Session(address, backoff=patience)
        return self._known
