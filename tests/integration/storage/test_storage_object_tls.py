"""A store on one's own machines: its address, its own certificates, the bucket in the path."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from detlab.errors import StorageError
from detlab.storage.objects.client import StoreAway
from detlab.storage.objects.obstores import s3_objects
from detlab.storage.objects.store import ObjectStorage
from detlab.testing.storage import METADATA, UUID
from testbed.objectstores import servers
from testbed.objectstores.servers import ObjectServer


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a key and its own certificate for loopback."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "our store")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return paths


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ObjectServer, Path]]:
    """moto behind TLS, with a certificate that nobody knows."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = certificate(folder)
    with servers.s3_server(folder, tls=(cert, key)) as server:
        yield server, cert


def test_a_store_with_its_own_certificates(secure: tuple[ObjectServer, Path], prefix: str, tmp_path: Path) -> None:
    server, cert = secure
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "state").write_bytes(b"s" * 9_000_000)
    block = {**server.block(prefix), "endpoint_url": f"https://127.0.0.1:{server.port}", "path_style": True}
    store = ObjectStorage(s3_objects({**block, "ca_file": str(cert)}))
    manifest = store.publish(UUID, METADATA, store.upload(tmp_path / "source", UUID))
    with store.restore_path(UUID, manifest) as path:
        assert (path / "state").read_bytes() == b"s" * 9_000_000
    stranger = ObjectStorage(s3_objects(block, seconds={"quick": 0, "patient": 0}), patience=0.0)
    with pytest.raises(StorageError, match=r"its certificate is not trusted \(UnknownIssuer\)") as caught:
        stranger.manifest(UUID)
    assert "checkpoint_storage.ca_file" in str(caught.value)
    assert not isinstance(caught.value, StoreAway)


def test_a_store_that_is_not_there_is_told(prefix: str) -> None:
    block = ObjectServer("s3", 1).block(prefix)
    store = ObjectStorage(s3_objects(block, seconds={"quick": 0, "patient": 0}), patience=0.0)
    with pytest.raises(StoreAway, match="nothing listens there"):
        store.manifest(UUID)
