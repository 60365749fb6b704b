"""Where the master is, and whether it is safe to send it a token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from detlab.client.transport.discovery import is_loopback, service_url
from detlab.errors import UntrustedMaster
from detlab.files import write_atomic
from detlab.pasted import word
from detlab.schemas.wire import API_PREFIX
from detlab.trust import (
    accept,
    environment_certificate,
    fingerprint_of,
    naming,
    read_certificate,
    tls_context,
    trust_for,
)

if TYPE_CHECKING:
    import ssl

PIN_FILE = "master.pem"
"""File in the agent's directory with the pinned certificate."""


class UnsafeMaster(Exception):
    """The token would travel in the clear; the message says what to do."""


@dataclass(frozen=True)
class Endpoints:
    """Addresses of one master, and which certificate is trusted to be the master's.

    Attributes:
        base: Ends with `/services/detlab/`.
        pin_file: Holds the pinned certificate, once there is one; None: none is ever pinned. Without it, the
            certificate that DET_MASTER_CERT_FILE names counts.
    """

    base: str
    pin_file: Path | None = None

    @property
    def api(self) -> str:
        """Base of the REST API, with a trailing slash."""
        return self.base + API_PREFIX

    @property
    def connect(self) -> str:
        """Address of the agents' WebSocket."""
        return "ws" + self.api.removeprefix("http") + "agents/connect"

    @property
    def enrol(self) -> str:
        """Address that exchanges an enrolment token for the agent's own key."""
        return self.api + "agents/enrol"

    def bundle(self, digest: str) -> str:
        """Return the address of a code bundle."""
        return f"{self.api}bundles/{digest}"

    @property
    def pinned(self) -> str | None:
        """The pinned certificate (PEM), the agent's own or else its environment's; None if there is none.

        Raises:
            DetlabError: Its file is damaged.
        """
        return self._kept() or environment_certificate(self.base)

    def _kept(self) -> str | None:
        path = self.pin_file
        return read_certificate(path) if path is not None and path.exists() else None

    def trust(self) -> bool | ssl.SSLContext:
        """Return which certificates to trust, for httpx.

        Raises:
            DetlabError: The file of the pin is damaged.
        """
        return trust_for(self.base, self.pinned)

    def context(self) -> ssl.SSLContext | None:
        """Return which certificates to trust, for tornado; None for plain http.

        Raises:
            DetlabError: The file of the pin is damaged.
        """
        return tls_context(self.base, self.pinned)

    def pin(self, fingerprint: str) -> None:
        """Pin the certificate with this fingerprint, if that is the one that the master presents.

        Raises:
            UntrustedMaster: It presents another one or none, or is reached by plain http; or there is another pin.
            OSError: It cannot be reached.
        """
        if not self.base.startswith("https:"):
            raise UntrustedMaster(
                f"the enrolment token belongs to a master that speaks TLS, and {self.base} is plain http",
                hint="Give the https address that det agent enrol printed",
            )
        held = self._kept()
        if held is not None and fingerprint_of(held) != fingerprint:
            raise self.refused()
        if held is None and self.pin_file is not None:
            write_atomic(self.pin_file, accept(self.base, fingerprint).encode(), mode=0o644, durable=True)

    def refused(self) -> UntrustedMaster:
        """Return the error for a master whose certificate is not trusted."""
        held = self.pinned
        if held is None:
            return UntrustedMaster(
                f"no authority that this machine trusts signed the certificate of {self.base}",
                hint="If detlab made it, the enrolment token pins it: ask for a new one (det agent enrol);"
                " for one of your own authority, name its file in SSL_CERT_FILE",
            )
        where = self.pin_file.parent if self.pin_file else "DIR"
        return UntrustedMaster(
            f"{self.base} does not show the certificate {fingerprint_of(held)} that this agent has pinned"
            f"{naming(held)}: it was renewed or has expired, or an attacker intercepts the connection. Nothing sent",
            hint="Ask an administrator for the current fingerprint (det status), and pin it: "
            f"det agent pin {self.base} --dir {word(where)} --fingerprint sha256:…",
        )

    def as_reached(self, master_url: str) -> str:
        """Return how tasks of this agent reach the master, given the address that the master reports.

        The agent's own address is known to lead there. Tasks use it as well if it uses TLS, which the reported address
        need not do, and if the master reports its own loopback address, which does not lead there from this machine.
        """
        ours, theirs = urlsplit(self.base), urlsplit(master_url)
        if ours.scheme == "https":
            return self.base
        elsewhere = not is_loopback(ours.hostname or "") and is_loopback(theirs.hostname or "")
        return self.base if elsewhere else master_url


def find_endpoints(url: str, *, insecure_http: bool = False, pin_file: Path | None = None) -> Endpoints:
    """Return the addresses for the URL of a Hub or of the service.

    Raises:
        UnsafeMaster: Plain http to another machine, without the operator's explicit permission.
        ClusterNotFound: It is not an http(s) address.
    """
    base = service_url(url)
    parts = urlsplit(base)
    if parts.scheme == "http" and not insecure_http and not is_loopback(parts.hostname or ""):
        raise UnsafeMaster(
            f"{base} is plain http to another machine: anyone on the network path could read this agent's token and "
            "run code here. Use https, or --insecure-http if the network is trusted"
        )
    return Endpoints(base, pin_file)
