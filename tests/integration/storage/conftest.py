"""Object stores on loopback: one of each kind for a worker's tests, which have a prefix each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.objectstores import servers
from testbed.objectstores.faultproxy import FaultProxy
from testbed.objectstores.servers import ObjectServer


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """moto, which takes any keys."""
    with servers.s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(s3_server: ObjectServer) -> Iterator[ObjectServer]:
    """Google's XML interface before moto."""
    with servers.gcs_server(s3_server) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """azurite."""
    with servers.azure_server(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_proxy(s3_server: ObjectServer) -> Iterator[FaultProxy]:
    """A proxy before moto, which fails as a test says."""
    proxy = FaultProxy(s3_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def prefix() -> str:
    """A place of this test's own in a bucket that all share."""
    return f"team/{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def own_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep stages and credentials of the person who runs the tests out of them."""
    import tempfile

    (tmp_path / "node").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "node"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
