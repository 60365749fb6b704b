"""Somebody with a certificate of their own who answers in a master's place, and notes what they are told."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from detlab.trust import fingerprint_of, read_certificate
from detlab_hub.embedded.certificate import make_certificate


@dataclass
class Peer:
    """A TLS server on loopback."""

    port: int
    certificate: str
    heard: list[bytes] = field(default_factory=list)
    """What came over a connection whose handshake succeeded."""
    met: int = 0
    """Connections, whatever became of them."""

    @property
    def url(self) -> str:
        """Its address, as that of a Hub."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def fingerprint(self) -> str:
        """Of its certificate."""
        return fingerprint_of(self.certificate)


def make_pair(folder: Path, name: str, *hosts: str) -> tuple[Path, Path]:
    """A certificate and its key, as `det up --tls` makes them."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}_key.pem"
    make_certificate(certificate, key, hosts or ["localhost", "127.0.0.1"])
    return certificate, key


class Authority:
    """An authority such as a company's, whose certificate says that it may sign others."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Company CA")])
        self.certificate = _pem(self._certify("Company CA", self._key.public_key(), authority=True))

    def sign(self, folder: Path, name: str) -> tuple[Path, Path]:
        """A certificate for one name or address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, secret = folder / f"{name}.pem", folder / f"{name}_key.pem"
        certificate.write_text(_pem(self._certify(name, key.public_key())))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, secret

    def _certify(self, name: str, key: ec.EllipticCurvePublicKey, *, authority: bool = False) -> x509.Certificate:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            made = made.add_extension(usage, critical=True)
        else:
            made = made.add_extension(x509.SubjectAlternativeName([_alternative(name)]), critical=False)
        return made.sign(self._key, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


@contextmanager
def tls_peer(
    folder: Path,
    name: str = "impostor",
    answer: bytes = b"",
    hosts: tuple[str, ...] = (),
    pair: tuple[Path, Path] | None = None,
    at: tuple[str, int] = ("127.0.0.1", 0),
) -> Iterator[Peer]:
    """Run such a server until the end of the context.

    Args:
        folder: Where its certificate is made.
        name: Of the files.
        answer: What it says to whoever has spoken.
        hosts: Names that its certificate is for.
        pair: Another certificate and key to use.
        at: Where it listens; port 0: any that is free.
    """
    certificate, key = pair or make_pair(folder, name, *hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(at) as listening:
        peer = Peer(int(listening.getsockname()[1]), read_certificate(certificate))
        thread = threading.Thread(target=_serve, args=(listening, context, peer, answer), daemon=True)
        thread.start()
        try:
            yield peer
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


def _serve(listening: socket.socket, context: ssl.SSLContext, peer: Peer, answer: bytes) -> None:
    with suppress(OSError):  # the end of the context
        while True:
            plain, _ = listening.accept()
            peer.met += 1
            with plain, suppress(OSError):  # a peer that does not believe us goes away
                plain.settimeout(5.0)
                with context.wrap_socket(plain, server_side=True) as spoken:
                    if data := _listen(spoken):
                        peer.heard.append(data)
                        spoken.sendall(answer)


def _listen(spoken: ssl.SSLSocket) -> bytes:
    """Return what is said until a moment of silence: a request may come in pieces."""
    said = spoken.recv(65536)
    spoken.settimeout(0.3)
    with suppress(TimeoutError):
        while more := spoken.recv(65536):
            said += more
    return said
