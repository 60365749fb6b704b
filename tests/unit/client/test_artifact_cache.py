"""The cache of artifacts on a node: private, apart for each artifact, bounded, and never trusted."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from detlab.client.artifacts.cache import ArtifactCache, cache_root
from detlab.client.artifacts.draft import Artifact
from detlab.client.artifacts.references import digest_at
from detlab.client.operations.artifacts.artifacts import split_artifact
from detlab.client.transport.downloads import HashingWriter
from detlab.errors import ConfigError, StorageError


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def copied(cache: ArtifactCache, digest: str) -> bytes | None:
    into = io.BytesIO()
    return into.getvalue() if cache.copy(digest, HashingWriter(into, lambda _: None)) else None


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"DET_ARTIFACT_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def test_a_file_is_found_by_its_artifact_and_digest_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "x").write_bytes(b"data")
    cache = ArtifactCache("https://one", 7, environ)
    cache.keep(digest_of(b"data"), tmp_path / "x")
    assert copied(cache, digest_of(b"data")) == b"data"
    assert copied(ArtifactCache("https://one", 8, environ), digest_of(b"data")) is None, "another artifact"
    assert copied(ArtifactCache("https://two", 7, environ), digest_of(b"data")) is None, "another cluster"
    for digest in ("sha256:../../x", "", "sha256:" + "Z" * 64):
        assert copied(cache, digest) is None
    root = cache_root(environ)
    assert root is not None
    assert root.stat().st_mode & 0o077 == 0


def test_what_was_changed_there_is_not_used(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "x").write_bytes(b"data")
    cache = ArtifactCache("https://one", 7, environ)
    cache.keep(digest_of(b"data"), tmp_path / "x")
    (file,) = [one for one in (tmp_path / "cache").rglob("*") if one.is_file()]
    file.chmod(0o600)
    file.write_bytes(b"evil")
    assert copied(cache, digest_of(b"data")) is None
    assert not file.exists()


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, environ: dict[str, str]) -> None:
    cache = ArtifactCache("https://one", 7, {**environ, "DET_ARTIFACT_CACHE_GB": "0.0000025"})
    for number in range(4):
        data = bytes([number]) * 1000
        (tmp_path / "x").write_bytes(data)
        cache.keep(digest_of(data), tmp_path / "x")
        (file,) = (tmp_path / "cache").rglob(digest_of(data).removeprefix("sha256:"))
        os.utime(file, (number, number))
    assert copied(cache, digest_of(bytes(1000))) is not None, "it is the newest used now"
    cache.trim()
    left = [number for number in range(4) if copied(cache, digest_of(bytes([number]) * 1000)) is not None]
    assert left == [0, 3]


def test_it_can_be_turned_off_and_be_elsewhere_than_in_a_tasks_own_home(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_root({**environ, "DET_ARTIFACT_CACHE_GB": "0"}) is None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = tmp_path / "task" / "home"
    home.mkdir(parents=True)
    root = cache_root({"HOME": str(home), "DET_TASK_DIR": str(tmp_path / "task")})
    assert root == tmp_path / f"detlab-artifacts-{os.geteuid()}"


def test_references_to_versions() -> None:
    assert split_artifact("cats") == ("cats", "latest")
    assert split_artifact("ada/cats:v3") == ("ada/cats", "v3")
    for wrong in (":v3", "cats:", "team/project/cats:latest"):
        with pytest.raises(ConfigError):
            split_artifact(wrong)


def test_references_that_lead_nowhere_need_a_digest() -> None:
    made = Artifact("x")
    with pytest.raises(StorageError, match="names a data set"):
        made.add_reference("data:imagenet", "imagenet")
    with pytest.raises(ConfigError, match="is no digest"):
        made.add_reference("data:imagenet", "imagenet", digest="md5:1")
    with pytest.raises(StorageError, match="names no object"):
        digest_at("s3://bucket/folder/")
    made.add_reference("s3://bucket/train.tar", digest="0" * 64, size=5)
    with pytest.raises(ConfigError, match="is in the artifact already"):
        made.add_reference("s3://other/train.tar", digest="0" * 64)
    (only,) = made.prepared().body.files
    assert (only.path, only.uri, only.size) == ("train.tar", "s3://bucket/train.tar", 5)
