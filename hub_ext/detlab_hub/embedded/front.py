"""The public address of the embedded cluster, and its certificate."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from detlab.errors import DetlabError
from detlab.trust import fingerprint_of, read_certificate
from detlab_hub.embedded.certificate import make_certificate, make_server_authority
from detlab_hub.embedded.settings import EmbeddedCluster, check_address
from detlab_hub.embedded.state import StateFolder


@dataclass(frozen=True)
class AddressOptions:
    """The options of `det up` about the address; see `lifecycle.UpOptions`."""

    ip: str | None = None
    tls: bool = False
    behind_tls_proxy: bool = False
    renew_certificate: bool = False


@dataclass(frozen=True)
class PublicFront:
    """The decision; the fields are those of `StartPlan`."""

    ip: str
    public_host: str
    public_address: str = ""
    certificate_file: str = ""
    key_file: str = ""
    fingerprint: str = ""
    servers_certificate_file: str = ""
    subdomain_host: str = ""


def choose_front(
    folder: StateFolder, wishes: EmbeddedCluster, said: AddressOptions, subdomain_host: str = ""
) -> PublicFront:
    """Decide on address and certificate; make the certificate if it is needed and there is none.

    Args:
        folder: The state folder.
        wishes: The operator's configuration.
        said: The command line.
        subdomain_host: The Hub's address if each user has a name below it.

    Raises:
        DetlabError: The address is invalid; it is beyond loopback and without TLS; a certificate's file or the public
            address is wrong.
    """
    ip = _address(said.ip or wishes.ip)
    own = bool(wishes.certificate_file or wishes.key_file)
    tls = said.tls or wishes.tls or own
    behind = said.behind_tls_proxy or wishes.behind_tls_proxy
    if not (ip.is_loopback or tls or behind):
        raise DetlabError(
            f"{ip} can be reached from other machines, and without TLS anyone on the network path could read passwords"
            " and tokens, and run code with them",
            hint="Add --tls; or --behind-tls-proxy if a reverse proxy with TLS is in front of it",
        )
    host = wishes.public_host or (_own_name() if ip.is_unspecified else "")
    servers = make_server_authority(folder) if tls or behind else ""
    public = check_address("c.EmbeddedCluster.public_url", wishes.public_url) if wishes.public_url else subdomain_host
    front = PublicFront(str(ip), host, public, servers_certificate_file=servers, subdomain_host=subdomain_host)
    if behind and host and not (tls or front.public_address):
        front = replace(front, public_address=f"https://{_in_url(host)}")
    if not tls:
        return front
    if own:
        return _with_own(front, wishes)
    certificate, key = folder.certificate_file, folder.key_file
    if said.renew_certificate or not (certificate.exists() and key.exists()):
        below = urlsplit(subdomain_host).hostname or ""
        make_certificate(certificate, key, [*_names(), str(ip), host, below, f"*.{below}" if below else ""])
    fingerprint = fingerprint_of(read_certificate(certificate))
    return replace(front, certificate_file=str(certificate), key_file=str(key), fingerprint=fingerprint)


def _with_own(front: PublicFront, wishes: EmbeddedCluster) -> PublicFront:
    certificate, key = Path(wishes.certificate_file).absolute(), Path(wishes.key_file).absolute()
    if not (wishes.certificate_file and key.is_file()):
        raise DetlabError(
            "c.EmbeddedCluster.certificate_file and c.EmbeddedCluster.key_file go together, and must be there",
            hint="Name both files, or neither and det up --tls",
        )
    fingerprint = fingerprint_of(read_certificate(certificate))
    return replace(front, certificate_file=str(certificate), key_file=str(key), fingerprint=fingerprint)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError as error:
        raise DetlabError(
            f"{text!r} is not an address to listen on", hint="Give one of this machine's in numbers, or 0.0.0.0 for all"
        ) from error


def _own_name() -> str:
    return socket.getfqdn() or socket.gethostname()


def _names() -> list[str]:
    return ["localhost", "127.0.0.1", "::1", socket.gethostname(), _own_name()]
