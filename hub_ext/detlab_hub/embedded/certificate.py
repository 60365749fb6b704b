"""The certificate that `det up --tls` makes: self-signed, one for each state folder, pinned by agents and logins.

Also the authority for the certificates of servers on other nodes, which only the proxy and the Hub trust.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from detlab.files import write_atomic
from detlab_hub.embedded.state import StateFolder
from detlab_hub.services.base.server_certificates import ServerAuthority, make_authority

if TYPE_CHECKING:
    from cryptography import x509

YEARS = 10
"""It is trusted by its fingerprint alone, so that a short life would only cost a renewal everywhere."""
_BEGIN = datetime.datetime(1971, 1, 1, tzinfo=datetime.UTC)
"""Clocks of nodes differ, and are sometimes set back."""


def make_certificate(certificate: Path, key: Path, names: Iterable[str]) -> None:
    """Make a key and its certificate.

    Args:
        certificate: The file to write, readable by all.
        key: The file to write, mode 0600. It is written first: a certificate without its key could not be served.
        names: Host names and addresses that it covers, for browsers.
    """
    # here: 50 ms that a cluster without TLS need not wait
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    public = private.public_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "detlab")])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(private, hashes.SHA256())
    )
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_atomic(key, secret, durable=True)
    write_atomic(certificate, made.public_bytes(serialization.Encoding.PEM), mode=0o644, durable=True)


def make_server_authority(folder: StateFolder) -> str:
    """Make the authority for servers on other nodes unless there is one; return its certificate's file.

    Running servers have certificates that it signed: it is not renewed with the proxy's own certificate.
    """
    found = ServerAuthority(folder.servers_certificate_file, folder.servers_key_file)
    if not (found.certificate_file.exists() and found.key_file.exists()):
        certificate, key = make_authority()
        _write_pair(found.certificate_file, found.key_file, certificate, key)
        _write_pair(*folder.hub_pair, *found.issue("hub.invalid"))
    return str(found.certificate_file)


def _write_pair(certificate_file: Path, key_file: Path, certificate: str, key: str) -> None:
    write_atomic(key_file, key.encode(), durable=True)
    write_atomic(certificate_file, certificate.encode(), mode=0o644, durable=True)


def _alternatives(names: Iterable[str]) -> list[x509.GeneralName]:
    """Return the names as the certificate lists them; those that cannot be in it are left out."""
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            with contextlib.suppress(ValueError):  # not ASCII
                if name:
                    found.append(x509.DNSName(name))
    return found
