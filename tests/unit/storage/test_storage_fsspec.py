"""The type `fsspec`: the contract on file://, its errors, and what is masked of its options."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from detlab.core.full_disk import is_away, is_full
from detlab.errors import StorageError
from detlab.schemas.expconf import check
from detlab.schemas.expconf.raw.secret_keys import MASK, holds_secret
from detlab.storage import from_config
from detlab.storage.objects.client import ObjectMissing, Objects, StoreAway, StoreRefused
from detlab.storage.objects.fsspecs import FsspecObjects, FsspecStorage
from detlab.testing.storage import UUID, StorageContract
from detlab_hub.services.base.masking import masked_config, masked_storage, secrets_of
from detlab_hub.services.checkpoints import stores


class TestFsspec(StorageContract):
    """On a folder, which is read and written by its file system for fsspec."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> FsspecStorage:
        """An empty folder."""
        self.root = tmp_path / "root"
        return FsspecStorage.from_config(self.config(None))

    def reopen(self, store: Any) -> FsspecStorage:
        """Return another store of that folder."""
        return FsspecStorage.from_config(self.config(store))

    def config(self, store: Any) -> dict[str, Any]:
        """Return its block."""
        return {"type": "fsspec", "url": f"file://{self.root}", "options": {"auto_mkdir": False}}

    def alter(self, store: Any, uuid: str, name: str, data: bytes | None) -> None:
        """Change the file."""
        path = self.root / uuid / name
        path.unlink()
        if data is not None:
            path.write_bytes(data)


@pytest.fixture
def objects(tmp_path: Path) -> FsspecObjects:
    return FsspecObjects(f"file://{tmp_path}/root", {})


@pytest.fixture
def memory() -> Iterator[FsspecObjects]:
    yield FsspecObjects("memory://box/deep", {})
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def test_it_is_a_client(objects: FsspecObjects) -> None:
    assert isinstance(objects, Objects)
    assert objects.conditional is False


def test_a_checkpoint_in_memory(memory: FsspecObjects, tmp_path: Path) -> None:
    store = from_config({"type": "fsspec", "url": "memory://box/deep"})
    store.check()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"1" * 3_000_000)
    manifest = store.publish(UUID, {"steps_completed": 1}, store.upload(tmp_path / "in", UUID))
    assert from_config({"type": "fsspec", "url": "memory://box/deep"}).manifest(UUID) == manifest
    assert store.uuids() == [UUID]
    with store.open_file(UUID, "a") as file:
        file.seek(2_999_999)
        assert file.read() == b"1"
    store.delete(UUID)
    assert list(memory.list("")) == []


def test_what_is_half_written_has_another_name(objects: FsspecObjects, tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"1" * 100
        assert [path.name for path in (tmp_path / "root").iterdir() if path.name == "a"] == []
        raise RuntimeError("cut off")

    with pytest.raises(StorageError):
        objects.put_parts("a", parts())
    assert list((tmp_path / "root").iterdir()) == []


def test_folders_that_are_empty_go(objects: FsspecObjects, tmp_path: Path) -> None:
    objects.put("a/b/c", b"1")
    objects.put("a/d", b"1")
    objects.delete(["a/b/c", "a/none"])
    assert sorted(path.name for path in (tmp_path / "root").rglob("*")) == ["a", "d"]
    objects.delete(["a/d"])
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), ObjectMissing, "it is not there"),
        (PermissionError(errno.EACCES, "Permission denied"), StoreRefused, "Permission denied"),
        (ConnectionResetError("reset"), StoreAway, "ConnectionResetError: reset"),
        (TimeoutError("late"), StoreAway, "late"),
        (type("AuthenticationException", (Exception,), {})("no such user"), StoreRefused, "no such user"),
        (type("SSHException", (Exception,), {})("banner"), StoreAway, "banner"),
        (ValueError("odd\nmore"), StorageError, "ValueError: odd"),
    ],
)
def test_errors_of_any_client(
    objects: FsspecObjects, monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: type[Exception], words: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise raised

    monkeypatch.setattr(objects._fs, "cat_file", fail)
    with pytest.raises(kind, match=words) as found:
        objects.get("a")
    assert type(found.value) is kind
    assert is_away(found.value) is (kind is StoreAway)
    assert "more" not in str(found.value)


def test_a_full_disk_is_known_as_one(objects: FsspecObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(objects._fs, "open", full)
    with pytest.raises(StorageError) as found:
        objects.put("a", b"1")
    assert is_full(found.value)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"type": "fsspec"}, "checkpoint_storage.url is missing"),
        ({"type": "fsspec", "url": "/no/scheme"}, "no address"),
        ({"type": "fsspec", "url": "tape://x"}, "Protocol not known: tape"),
        ({"type": "fsspec", "url": "smb://host/share"}, "smb:// needs a package that is not installed here"),
    ],
)
def test_blocks_that_cannot_be_used(block: dict[str, Any], message: str) -> None:
    with pytest.raises(StorageError, match=message) as found:
        from_config(block)
    assert found.value.hint


def problems(block: dict[str, Any]) -> str:
    config = {
        "name": "x",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "checkpoint_storage": {"type": "fsspec", **block},
    }
    return "\n".join(str(problem) for problem in check(config) if problem.path.startswith("checkpoint_storage"))


def test_configs() -> None:
    assert problems({"url": "sftp://host/folder", "options": {"username": "me"}}) == ""
    assert "must be an address" in problems({"url": "/folder"})
    said = problems({"url": "sftp://me:hunter2-secret@host/folder"})
    assert "must not hold a password" in said
    assert "hunter2" not in said
    assert "must not chain" in problems({"url": "zip://x::file:///etc/x.zip"})
    assert "url" in problems({})


def test_secrets_in_options_are_masked() -> None:
    options = {
        "username": "me",
        "port": 22,
        "password": "hunter2-secret",
        "client_kwargs": {"aws_secret_access_key": "s3cret-key-of-me", "endpoint_url": "https://x"},
        "headers": {"Authorization": "Bearer of-mine-alone"},
    }
    block = {"type": "fsspec", "url": "sftp://host/x", "options": options}
    shown = masked_storage(block)
    assert shown["options"]["username"] == "me"
    assert shown["options"]["port"] == 22
    assert shown["options"]["password"] == MASK
    assert shown["options"]["client_kwargs"] == {"aws_secret_access_key": MASK, "endpoint_url": "https://x"}
    assert shown["options"]["headers"] == {"Authorization": MASK}
    assert options["password"] == "hunter2-secret", "the block itself stays"
    found = secrets_of({"checkpoint_storage": block})
    assert sorted(found) == ["Bearer of-mine-alone", "hunter2-secret", "s3cret-key-of-me"]
    assert masked_config({"checkpoint_storage": block})["checkpoint_storage"]["options"]["password"] == MASK
    assert holds_secret(("checkpoint_storage", "options", "password"))
    assert not holds_secret(("checkpoint_storage", "options", "username"))


def test_the_master_opens_none(tmp_path: Path) -> None:
    """`file://` would be the master's own files; others would have it use its own keys."""
    with pytest.raises(StorageError, match="does not open") as found:
        stores.readable({"type": "fsspec", "url": f"file://{tmp_path}"}, ())
    assert "--mode direct" in str(found.value)
    assert stores.readable({"type": "directory", "container_path": str(tmp_path)}, ()).open().uuids() == []
