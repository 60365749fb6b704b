"""How the world reaches the embedded cluster: on which address, and with which certificate."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from detlab.errors import DetlabError
from detlab.trust import fingerprint_of, read_certificate
from detlab_hub.embedded.certificate import make_certificate
from detlab_hub.embedded.settings import EmbeddedCluster
from detlab_hub.embedded.state import StateFolder


@dataclass(frozen=True)
class Said:
    """What the command line of `det up` says about it; see `lifecycle.Options`."""

    ip: str | None = None
    tls: bool = False
    behind_tls_proxy: bool = False
    renew_certificate: bool = False


@dataclass(frozen=True)
class Front:
    """What was decided; the fields are those of `Plan`."""

    ip: str
    public_host: str
    certificate_file: str = ""
    key_file: str = ""
    fingerprint: str = ""


def choose_front(folder: StateFolder, wishes: EmbeddedCluster, said: Said) -> Front:
    """Decide on address and certificate; make the certificate if it is needed and there is none.

    Raises:
        DetlabError: The address is none; it is beyond loopback and nobody speaks TLS; a certificate's file is wrong.
    """
    ip = _address(said.ip or wishes.ip)
    own = bool(wishes.certificate_file or wishes.key_file)
    tls = said.tls or wishes.tls or own
    if not (ip.is_loopback or tls or said.behind_tls_proxy or wishes.behind_tls_proxy):
        raise DetlabError(
            f"{ip} can be reached from other machines, and without TLS everybody on the way could read passwords and"
            " tokens, and run code with them",
            hint="Add --tls; or --behind-tls-proxy if a server that speaks TLS stands before it",
        )
    host = wishes.public_host or (_own_name() if ip.is_unspecified else "")
    if not tls:
        return Front(str(ip), host)
    if own:
        return _with_own(Front(str(ip), host), wishes)
    certificate, key = folder.certificate_file, folder.key_file
    if said.renew_certificate or not (certificate.exists() and key.exists()):
        make_certificate(certificate, key, [*_names(), str(ip), host])
    return Front(str(ip), host, str(certificate), str(key), fingerprint_of(read_certificate(certificate)))


def _with_own(front: Front, wishes: EmbeddedCluster) -> Front:
    certificate, key = Path(wishes.certificate_file).absolute(), Path(wishes.key_file).absolute()
    if not (wishes.certificate_file and key.is_file()):
        raise DetlabError(
            "c.EmbeddedCluster.certificate_file and c.EmbeddedCluster.key_file go together, and must be there",
            hint="Name both files, or neither and det up --tls",
        )
    fingerprint = fingerprint_of(read_certificate(certificate))
    return Front(front.ip, front.public_host, str(certificate), str(key), fingerprint)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError as error:
        raise DetlabError(
            f"{text!r} is no address to listen on", hint="Give one of this machine's in numbers, or 0.0.0.0 for all"
        ) from error


def _own_name() -> str:
    return socket.getfqdn() or socket.gethostname()


def _names() -> list[str]:
    return ["localhost", "127.0.0.1", "::1", socket.gethostname(), _own_name()]
