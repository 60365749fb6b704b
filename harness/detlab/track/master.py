"""The master, as a run's records and files reach it; the cluster is looked for anew after each failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from detlab.client.operations.artifacts import artifacts
from detlab.client.transport.calls import Call, Progress, Reply, Retries, error_of, model
from detlab.client.transport.discovery import ClusterAddress, find_cluster, with_token
from detlab.client.transport.session import Session
from detlab.errors import DetlabError, NotFound
from detlab.schemas.wire import API_PREFIX
from detlab.schemas.wire.artifacts.artifacts import ArtifactVersionView, LogVersion
from detlab.schemas.wire.runs import BeginRun, RunBegun, RunView

SECONDS = 30.0
_FILES = "mlflow/api/2.0/mlflow-artifacts/artifacts/0"


class RunMaster(Protocol):
    """What a delivery needs of the master; the seam that tests fill in their own way."""

    def begin(self, wanted: BeginRun) -> RunBegun:
        """Begin a run, or find it.

        Raises:
            DetlabError: The master refused, or did not answer.
        """
        ...

    def find(self, key: str) -> RunView | None:
        """Return the caller's own run of a key; None: there is none.

        Raises:
            DetlabError: The master did not answer.
        """
        ...

    def send(self, run_id: str, writer: str, body: bytes) -> tuple[int, bytes]:
        """Send records of a process as JSON; return status and body of the answer.

        Raises:
            DetlabError: No answer came, or there is no cluster to send to.
        """
        ...

    def put(self, run_id: str, name: str, path: Path) -> None:
        """Store a file of the run.

        Raises:
            DetlabError: The master refused, or did not answer.
        """
        ...

    def log_artifact(
        self, name: str, wanted: LogVersion, sources: Mapping[str, Path], progress: Progress
    ) -> ArtifactVersionView:
        """Log a version of an artifact, of files by their digests.

        Raises:
            DetlabError: The master refused, or did not answer.
        """
        ...

    def use_artifact(self, run_id: str, artifact: int, version: int) -> ArtifactVersionView:
        """Record that the run uses a version.

        Raises:
            DetlabError: The master refused, or did not answer.
        """
        ...

    def put_media(self, run_id: str, facts: Mapping[str, Any], path: Path) -> None:
        """Log an object of the run: what it is, and its bytes.

        Raises:
            DetlabError: The master refused, or did not answer.
        """
        ...

    def close(self) -> None:
        """Release connections; further calls look for the cluster again."""
        ...


class HttpRunMaster:
    """The master over HTTP.

    Args:
        find: Finds the cluster: a token that has been renewed meanwhile is found, too.
    """

    def __init__(self, find: Callable[[], ClusterAddress] = find_cluster) -> None:
        self._find = find
        self._session: Session | None = None

    def begin(self, wanted: BeginRun) -> RunBegun:
        """See `RunMaster.begin`."""
        begun: RunBegun = self._open().send(Call("POST", "runs", json=wanted, parse=model(RunBegun)))
        return begun

    def find(self, key: str) -> RunView | None:
        """See `RunMaster.find`."""
        return _of_key(self._open(), key)

    def send(self, run_id: str, writer: str, body: bytes) -> tuple[int, bytes]:
        """See `RunMaster.send`."""
        session = self._open()
        path = f"{API_PREFIX}runs/{quote(run_id)}/writers/{quote(writer)}/records"
        return self._request(session, "POST", path, body, {"Content-Type": "application/json"})

    def put_media(self, run_id: str, facts: Mapping[str, Any], path: Path) -> None:
        """See `RunMaster.put_media`."""
        self._upload(f"{API_PREFIX}runs/{quote(run_id)}/media?{urlencode(facts)}", path)

    def put(self, run_id: str, name: str, path: Path) -> None:
        """See `RunMaster.put`."""
        self._upload(f"{_FILES}/{quote(run_id)}/artifacts/{quote(name)}", path)

    def _upload(self, url: str, path: Path) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        status, body = self._request(self._open(), "PUT", url, path.read_bytes(), headers)
        if not 200 <= status < 300:
            raise error_of(Reply(status, body))

    def log_artifact(
        self, name: str, wanted: LogVersion, sources: Mapping[str, Path], progress: Progress
    ) -> ArtifactVersionView:
        """See `RunMaster.log_artifact`."""
        reply = self._open().run(artifacts.log_version(name, wanted, sources, progress))
        assert reply.version is not None
        return reply.version

    def use_artifact(self, run_id: str, artifact: int, version: int) -> ArtifactVersionView:
        """See `RunMaster.use_artifact`."""
        return self._open().run(artifacts.use_version(artifact, version, run_id))

    def close(self) -> None:
        """See `RunMaster.close`."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _open(self) -> Session:
        if self._session is None:
            address = with_token(self._find())
            address.unchanged("POST")  # what was only guessed gets nothing
            self._session = Session(address, timeout=SECONDS, backoff=Retries(attempts=0, refused=0))
        return self._session

    def _request(
        self, session: Session, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        import httpx

        try:
            reply = session.http.request(method, url, content=body, headers=dict(headers))
        except (httpx.TransportError, OSError) as error:
            raise session.address.unreachable(str(error) or type(error).__name__) from error
        return reply.status_code, reply.content


def newest_step(key: str) -> int:
    """Return the greatest step of a run that the master has.

    Raises:
        DetlabError: It does not answer at once, or has no such run.
    """
    found = _known(key)
    return max((one.step for name, one in found.metrics.items() if not name.startswith("system/")), default=-1)


def has_ended(key: str) -> bool:
    """Return whether a run that the master has is over.

    Raises:
        DetlabError: It does not answer at once, or has no such run.
    """
    return _known(key).status not in {"RUNNING", "SCHEDULED"}


def _known(key: str) -> RunView:
    session = Session(with_token(find_cluster()), timeout=2.0, backoff=Retries(attempts=0, refused=0))
    try:
        found = _of_key(session, key)
    finally:
        session.close()
    if found is None:
        raise NotFound(f"there is no run {key}")
    return found


def _of_key(session: Session, key: str) -> RunView | None:
    """Return the run of this very key or id: the master also finds one whose key begins so."""
    try:
        found: RunView = session.send(Call("GET", f"runs/{quote(key)}", parse=model(RunView)))
    except NotFound:
        return None
    except DetlabError as error:
        if getattr(error, "status", None) == 400:  # several begin so, and none is called so
            return None
        raise
    return found if key in {found.key, found.id} else None
