"""The requests that `det up`, `down` and `status` make to the master."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import httpx

from detlab import loopback
from detlab.schemas.taskwire import TaskKind, TaskPage, TaskView
from detlab.schemas.wire import API_PREFIX, ClusterView, TrialState
from detlab.trust import tls_context, trust_for
from detlab_hub.embedded.sockets import unavailable


class MasterClient:
    """A client for one cluster on loopback.

    Args:
        base: The service's address; ends with `/services/detlab/`.
        token: The operator's token.
        certificate: The pinned certificate (PEM), if the service uses TLS.
    """

    def __init__(self, base: str, token: str, certificate: str | None = None) -> None:
        self._base = base
        headers = {"Authorization": f"Bearer {token}"}
        trust = trust_for(base, certificate)
        hooks = loopback.hooks(base)
        self._client = httpx.Client(headers=headers, timeout=5.0, trust_env=False, verify=trust, event_hooks=hooks)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def healthy(self) -> bool:
        """Whether the master reports that it serves."""
        try:
            return self._client.get(f"{self._base}health").status_code == 200
        except httpx.HTTPError:
            return False

    def view(self) -> ClusterView | None:
        """Return a view of the cluster, None if the master does not answer."""
        try:
            reply = self._client.get(f"{self._base}{API_PREFIX}cluster")
        except httpx.HTTPError:
            return None
        return ClusterView.model_validate_json(reply.content) if reply.is_success else None

    def servers(self) -> list[TaskView]:
        """Return the notebooks and shells that have not ended, at most a page of each; none if the master is silent."""
        found: list[TaskView] = []
        for kind in (TaskKind.NOTEBOOK, TaskKind.SHELL):
            asked = {"kind": kind.value, "state": TrialState.ACTIVE.value, "limit": "1000"}
            try:
                reply = self._client.get(f"{self._base}{API_PREFIX}tasks", params=asked)
            except httpx.HTTPError:
                return []
            found += TaskPage.model_validate_json(reply.content).items if reply.is_success else []
        return found

    def drain(self, timeout: float) -> bool:
        """Let all tasks save and leave; return False if the master does not accept the order."""
        try:
            reply = self._client.post(f"{self._base}{API_PREFIX}cluster/drain", json={"timeout": timeout})
        except httpx.HTTPError:
            return False
        return reply.is_success


def answers(url: str, certificate: str | None = None) -> bool:
    """Whether a part answers at this address of this machine, whatever its response.

    It is called ten times a second while a cluster comes up, and making a client of httpx takes 50 ms.
    """
    address = urlsplit(url)
    host = address.hostname or ""
    connection = HTTPConnection(host, address.port, timeout=2.0)
    if address.scheme == "https":
        context = tls_context(url, certificate)
        connection = HTTPSConnection(host, address.port, timeout=2.0, context=context)
    try:
        connection.request("GET", address.path or "/")
        # the supervisor answers in place of a part that is down
        return connection.getresponse().getheader("Server") != unavailable.SERVER
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
