"""Certificates for servers (notebooks, shells, TensorBoards) on other nodes, and the authority that signs them.

The Hub's proxy reaches such a server over a network and trusts the cluster's own authority there. This authority signs
nothing else, and neither agents nor users nor tasks trust it, so that its key cannot be used to pose as the master.
Each server gets its own key and certificate, for its agent's address alone, with its launch.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from detlab.client.transport.discovery import is_loopback
from detlab.errors import DetlabError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec


class NoCertificate(DetlabError):
    """A server cannot have one: the authority's files cannot be used, or the agent's address is not a valid name."""

    default_code = "servers.certificate"


YEARS = 10
"""Validity of the authority, and so of its certificates: it is trusted by its file on the master's machine only."""
_BEGIN = datetime.datetime(1971, 1, 1, tzinfo=datetime.UTC)
"""Start of validity, far back: clocks of nodes differ, and are put back."""


@dataclass(frozen=True)
class ServerAuthority:
    """The signing authority.

    Attributes:
        certificate_file: Its certificate, which the proxy and the Hub trust.
        key_file: Its key, for the master alone.
    """

    certificate_file: Path
    key_file: Path

    def covers(self, address: str | None) -> bool:
        """Whether a server at this address is reached over a network, and so by TLS."""
        return bool(address) and not is_loopback(address or "")

    def issue(self, address: str) -> tuple[str, str]:
        """Return a certificate for one name or address with a new key, and that key, as PEM.

        Raises:
            NoCertificate: The authority's own files cannot be used, or the address is not a valid name.
        """
        # here: 50 ms that a master without such servers need not wait
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        own, key = self._files()
        try:
            name = _alternative(address)
        except ValueError as error:
            raise NoCertificate(f"no certificate can be made for the servers at {address}: {error}") from error
        private = ec.generate_private_key(ec.SECP256R1())
        made = (
            _begin("detlab server", own.subject, private.public_key(), own.not_valid_after_utc)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return _certificate_text(made), key_text(private)

    def prove(self) -> None:
        """Check that it can sign: at the master's start, not when a user waits for a notebook.

        Raises:
            NoCertificate: It cannot.
        """
        self._files()

    def _files(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            own = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
            key = serialization.load_pem_private_key(self.key_file.read_bytes(), None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: it wants a password
            raise _unusable(self, str(error)) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise _unusable(self, "the key is not of an elliptic curve")
        if own.public_key() != key.public_key():
            raise _unusable(self, "the key is not that of the certificate")
        return own, key


def _unusable(authority: ServerAuthority, why: str) -> NoCertificate:
    files = f"{authority.certificate_file} and its key {authority.key_file}"
    return NoCertificate(
        f"the authority for servers on other nodes, {files}, cannot sign: {why}",
        hint="correct c.DetHub.servers_certificate_file and c.DetHub.servers_key_file",
    )


def make_authority() -> tuple[str, str]:
    """Return a new authority's certificate and key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = _name("detlab servers")
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=365 * YEARS)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    made = (
        _begin("detlab servers", name, private.public_key(), until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .sign(private, hashes.SHA256())
    )
    return _certificate_text(made), key_text(private)


def key_text(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a key as PEM."""
    from cryptography.hazmat.primitives import serialization

    written = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return written.decode("ascii")


def _begin(
    name: str, issuer: x509.Name, public: ec.EllipticCurvePublicKey, until: datetime.datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(until)
    )


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _alternative(address: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _certificate_text(made: x509.Certificate) -> str:
    from cryptography.hazmat.primitives import serialization

    return made.public_bytes(serialization.Encoding.PEM).decode("ascii")
