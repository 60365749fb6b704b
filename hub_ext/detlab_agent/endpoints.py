"""Where the master is, and whether it is safe to send it a token."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from detlab.client.discovery import service_url
from detlab.schemas.wire import API_PREFIX


class UnsafeMaster(Exception):
    """The token would travel in the clear; the message says what to do."""


@dataclass(frozen=True)
class Endpoints:
    """Addresses of one master. `base` ends with `/services/detlab/`."""

    base: str

    @property
    def api(self) -> str:
        """Base of the REST API, with a slash at its end."""
        return self.base + API_PREFIX

    @property
    def connect(self) -> str:
        """Address of the agents' WebSocket."""
        return "ws" + self.api.removeprefix("http") + "agents/connect"

    @property
    def enrol(self) -> str:
        """Where an enrolment token is changed for the agent's own key."""
        return self.api + "agents/enrol"

    def bundle(self, digest: str) -> str:
        """Where a code bundle is."""
        return f"{self.api}bundles/{digest}"


def find_endpoints(url: str, *, insecure_http: bool = False) -> Endpoints:
    """Return the addresses for the URL of a Hub or of the service.

    Raises:
        UnsafeMaster: Plain http to another machine, and the operator did not say that this is meant.
        ClusterNotFound: It is no http(s) address.
    """
    base = service_url(url)
    parts = urlsplit(base)
    if parts.scheme == "http" and not insecure_http and not _is_loopback(parts.hostname or ""):
        raise UnsafeMaster(
            f"{base} is plain http to another machine: everybody on the way could read this agent's token and "
            "run code here. Use https, or --insecure-http if the network is trusted"
        )
    return Endpoints(base)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
