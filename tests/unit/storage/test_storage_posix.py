"""shared_fs and directory: the contract, damage on disk, configuration."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detlab.core.full_disk import is_full
from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.storage import (
    MANIFEST_NAME,
    DirectoryStorage,
    Manifest,
    ManifestNotWritten,
    SharedFSStorage,
    from_config,
    from_string,
    unfinished,
)
from detlab.storage import files as storage_files
from detlab.storage.manifest import safe_path
from detlab.storage.own_folders import unfinished_folder
from detlab.storage.posix import PosixStorage
from detlab.testing.storage import METADATA, UUID, StorageContract


class PosixContract(StorageContract):
    def alter(self, store: PosixStorage, uuid: str, name: str, data: bytes | None) -> None:
        path = store.root / uuid / name
        path.unlink()
        if data is not None:
            path.write_bytes(data)


class TestSharedFS(PosixContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SharedFSStorage:
        return SharedFSStorage(tmp_path / "host", "checkpoints")

    def reopen(self, store: SharedFSStorage) -> SharedFSStorage:
        return SharedFSStorage(store.root.parent, "checkpoints")

    def config(self, store: SharedFSStorage) -> dict[str, Any]:
        return {"type": "shared_fs", "host_path": str(store.root.parent), "storage_path": "checkpoints"}


class TestDirectory(PosixContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DirectoryStorage:
        return DirectoryStorage(tmp_path / "root")

    def reopen(self, store: DirectoryStorage) -> DirectoryStorage:
        return DirectoryStorage(store.root)

    def config(self, store: DirectoryStorage) -> dict[str, Any]:
        return {"type": "directory", "container_path": str(store.root)}


@pytest.fixture
def store(tmp_path: Path) -> SharedFSStorage:
    return SharedFSStorage(tmp_path / "root")


@pytest.fixture
def stored(store: SharedFSStorage) -> Manifest:
    (store.stage(UUID) / "shard0").write_bytes(b"a" * 1000)
    (store.stage(UUID) / "shard1").write_bytes(b"b" * 1000)
    return store.publish(UUID, METADATA)


@pytest.mark.parametrize("way", ["restore", "download"])
@pytest.mark.parametrize("damage", ["flipped", "shorter", "gone", "link"])
def test_a_damaged_file_is_named(
    store: SharedFSStorage, stored: Manifest, tmp_path: Path, way: str, damage: str
) -> None:
    path = store.root / UUID / "shard1"
    match damage:
        case "flipped":
            path.write_bytes(b"b" * 999 + b"c")
        case "shorter":
            path.write_bytes(b"b" * 999)
        case "gone":
            path.unlink()
        case "link":
            path.unlink()
            path.symlink_to(store.root / UUID / "shard0")
    fetch = {
        "restore": lambda: store.restore_path(UUID, stored).__enter__(),
        "download": lambda: store.download(UUID, tmp_path / "target", stored),
    }[way]
    with pytest.raises(CheckpointError, match="shard1"):
        fetch()
    assert not (tmp_path / "target" / "shard1").exists()
    with store.restore_path(UUID, stored, selector=lambda name: name == "shard0") as good:
        assert (good / "shard0").stat().st_size == 1000


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b'{"format": 2}',
        b'{"format": 1, "uuid": "another", "files": {}}',
        json.dumps({"format": 1, "uuid": UUID, "files": {"../../etc/passwd": {"size": 1, "digest": "x"}}}).encode(),
        json.dumps({"format": 1, "uuid": UUID, "files": {"/etc/passwd": {"size": 1, "digest": "x"}}}).encode(),
    ],
)
def test_a_forged_manifest_is_refused(store: SharedFSStorage, stored: Manifest, document: bytes) -> None:
    (store.root / UUID / MANIFEST_NAME).write_bytes(document)
    with pytest.raises(CheckpointError):
        store.manifest(UUID)


def test_the_manifest_encodes_in_one_way(stored: Manifest, store: SharedFSStorage) -> None:
    data = (store.root / UUID / MANIFEST_NAME).read_bytes()
    assert data == stored.to_bytes()
    assert Manifest.from_bytes(data, uuid=UUID).digest == stored.digest


def test_nan_in_metadata_is_kept_as_strict_json(store: SharedFSStorage) -> None:
    store.stage(UUID)
    manifest = store.publish(UUID, {"steps_completed": 1, "loss": float("nan")})
    assert json.loads(manifest.to_bytes())["metadata"]["loss"] == "NaN"
    assert store.manifest(UUID).digest == manifest.digest


def test_checkpoints_are_private(store: SharedFSStorage, stored: Manifest) -> None:
    assert (store.root / UUID).stat().st_mode & 0o777 == 0o700


def test_sweep_removes_only_old_stages(store: SharedFSStorage, stored: Manifest) -> None:
    old, young = store.stage("old"), store.stage("young")
    (old / "file").write_text("1")
    for path in (old / "file", old):
        os.utime(path, (1000, 1000))
    assert store.sweep(3600) == ["old"]
    assert young.is_dir()
    assert not old.exists()
    assert store.manifest(UUID) == stored


def test_sweep_of_a_store_that_was_never_written(store: SharedFSStorage) -> None:
    assert store.sweep(0) == []


def test_metadata_that_is_no_json_is_refused_and_nothing_published(store: SharedFSStorage) -> None:
    (store.stage(UUID) / "x").write_text("1")
    with pytest.raises(CheckpointError, match="JSON"):
        store.publish(UUID, {"steps_completed": 1, "bad": object()})
    with pytest.raises(CheckpointError):
        store.manifest(UUID)


def test_special_files_are_refused(store: SharedFSStorage, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    with pytest.raises(CheckpointError, match=r"pipe is not a regular file"):
        store.upload(tmp_path / "source", UUID)


def test_links_are_refused_unless_the_selector_leaves_them_out(store: SharedFSStorage, tmp_path: Path) -> None:
    """The hint said so, but the selector was asked too late."""
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "weights").write_text("1")
    (source / "inner" / "link").symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match=r"inner/link is a symbolic link") as refused:
        store.upload(source, UUID)
    assert "leave it out with a selector" in (refused.value.hint or "")
    with pytest.raises(CheckpointError, match=r"inner/link is a symbolic link"):
        store.upload(source, UUID, selector=lambda name: name.startswith("inner/"))
    assert list(store.upload(source, UUID, selector=lambda name: name == "weights").files) == ["weights"]


def test_a_link_instead_of_the_directory_of_files_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="symbolic"):
        storage_files.describe(link)


def test_an_unwritable_store_says_which(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        SharedFSStorage(tmp_path / "file" / "root").stage(UUID)


def test_from_config(tmp_path: Path) -> None:
    shared = from_config({"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "a/b", "save_trial_best": 1})
    assert isinstance(shared, SharedFSStorage)
    assert shared.root == tmp_path / "a" / "b"
    absolute = from_config({"type": "shared_fs", "host_path": str(tmp_path), "storage_path": str(tmp_path / "c")})
    assert isinstance(absolute, SharedFSStorage)
    assert absolute.root == tmp_path / "c"
    folder = from_config({"type": "directory", "container_path": str(tmp_path)})
    assert isinstance(folder, DirectoryStorage)
    assert folder.root == tmp_path


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"type": "tape"},
            "no checkpoint storage of type 'tape' here; installed: azure, directory, fsspec, gcs, s3, shared_fs",
        ),
        ({"type": "share_fs"}, "did you mean 'shared_fs'"),
        ({"type": ["shared_fs"]}, "no checkpoint storage of type"),
        ({}, "type is missing"),
        ({"type": "shared_fs"}, "host_path is missing"),
        ({"type": "shared_fs", "host_path": "relative"}, "absolute"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "../other"}, "leads out"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "/other"}, "leads out"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "/data-evil"}, "leads out"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "../data-evil/x"}, "leads out"),
        ({"type": "directory", "container_path": "relative"}, "absolute"),
    ],
)
def test_from_config_says_what_is_wrong(config: dict[str, Any], message: str) -> None:
    with pytest.raises(StorageError) as caught:
        from_config(config)
    assert message in str(caught.value)


def test_from_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = from_string("here")
    assert isinstance(relative, SharedFSStorage)
    assert relative.root == tmp_path / "here"
    with pytest.raises(StorageError, match="known address"):
        from_string("ftp://host/x")


def test_a_file_address_is_a_directory(tmp_path: Path) -> None:
    found = from_string(f"file://{tmp_path}/here")
    assert isinstance(found, SharedFSStorage)
    assert found.root == tmp_path / "here"


@pytest.mark.parametrize("address", ["file://host/a", "minio:9000/bucket", "localhost:1234", "FTP://host/x"])
def test_what_is_no_address_is_not_taken_for_a_folder(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="neither a directory nor a known address"):
        from_string(address)
    assert not list(tmp_path.iterdir())


def test_a_folder_may_have_a_colon_or_a_question_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run:1a", "what?", "./host:80/x", "/data/host:80"):
        assert isinstance(from_string(name), SharedFSStorage)


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", ".", "a\0"])
def test_paths_that_leave_the_checkpoint(path: str) -> None:
    with pytest.raises(ValueError, match="not a relative path"):
        safe_path(path)


def test_paths_are_made_plain() -> None:
    assert safe_path("./a//b/") == "a/b"


def test_a_name_that_is_not_utf8_is_refused(store: SharedFSStorage, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "source") + b"/\xff")).write_text("1")
    with pytest.raises(CheckpointError, match="not valid UTF-8"):
        store.upload(tmp_path / "source", UUID)


def test_files_beside_the_checkpoints_are_private(store: SharedFSStorage, tmp_path: Path) -> None:
    (tmp_path / "events").write_text("1")
    store.put_file(tmp_path / "events", "tensorboard-1/a/events")
    assert (store.root / "tensorboard-1").stat().st_mode & 0o777 == 0o700


def test_a_file_that_no_rank_has_stored_is_told(store: SharedFSStorage) -> None:
    """Left out it would be lost without a word: something still writes while the checkpoint is published."""
    (store.stage(UUID) / "model").write_bytes(b"1")
    part = store.seal(UUID)
    (store.stage(UUID) / "late").write_bytes(b"2")
    with pytest.raises(CheckpointError, match=r"late is in .* but no rank has stored it"):
        store.publish(UUID, METADATA, part)
    assert store.uuids() == []


def test_a_store_that_is_not_there_has_not_removed_a_checkpoint(store: SharedFSStorage) -> None:
    """It may not be mounted: the master must not note that the files are gone."""
    with pytest.raises(StorageError, match="cannot remove"):
        store.delete(UUID)


def test_no_link_below_the_root_is_followed(store: SharedFSStorage, stored: Manifest, tmp_path: Path) -> None:
    """Neither as a file, nor as a folder on the way to it, nor as the checkpoint itself."""
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder" / "file").write_text("secret")
    (store.root / UUID / "link").symlink_to(outside / "folder" / "file")
    (store.root / UUID / "folder").symlink_to(outside / "folder")
    (store.root / "other").symlink_to(outside)
    os.mkfifo(store.root / UUID / "pipe")
    for uuid, name in ((UUID, "link"), (UUID, "folder/file"), ("other", "folder/file"), (UUID, "pipe")):
        with pytest.raises(CheckpointMissing):
            store.open_file(uuid, name)
        assert store.file_sizes(uuid, [name]) == {}
    with pytest.raises(StorageError):
        store.delete("other")
    assert (outside / "folder" / "file").exists()


# --- marks and what is abandoned, where others may write, too


def test_marks_that_are_not_our_own_plain_files_do_not_count(store: SharedFSStorage, tmp_path: Path) -> None:
    store.mark(UUID, "c1-7", 1)
    (tmp_path / "plain").touch()
    for folder in (store.root, store.root / unfinished_folder()):
        (folder / ".pending-c1-7.2.link").symlink_to(tmp_path / "plain")
        (folder / ".pending-c1-7.2.folder").mkdir()
        os.link(tmp_path / "plain", folder / ".pending-c1-7.2.another-name")
        (folder / ".pending-c1-7.2.full").write_text("x")
        for run in ("0", "-1", "01", "٣", ""):
            (folder / f".pending-c1-7.{run}.{UUID}").touch()
    assert store.marked("c1-7") == [(1, UUID)]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_marks_of_another_user_do_not_count(store: SharedFSStorage) -> None:
    store.mark(UUID, "c1-7", 1)
    os.chown(store.root / unfinished_folder() / f".pending-c1-7.1.{UUID}", 24502, 24502)
    assert store.marked("c1-7") == []


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_stage_that_is_no_folder_of_ours_is_refused(store: SharedFSStorage, tmp_path: Path, what: str) -> None:
    place = store.stage(UUID)
    place.rmdir()
    if what == "link":
        place.symlink_to(tmp_path)
    else:
        place.write_text("")
    with pytest.raises(StorageError, match="no folder of uid"):
        store.stage(UUID)
    with pytest.raises(CheckpointError, match="nothing is staged"):
        store.publish(UUID, METADATA)


def test_what_earlier_versions_left_in_the_root_is_found_and_removed(store: SharedFSStorage) -> None:
    """They kept stages and marks beside the checkpoints; a cluster may be upgraded while trials have some."""
    stages = [store.root / f".stage-{name}" for name in ("old", "young", "given-up")]
    for stage in stages:
        stage.mkdir(mode=0o700, parents=True)
        (stage / "file").write_text("1")
    for path in (stages[0] / "file", stages[0]):
        os.utime(path, (1000, 1000))
    mark = store.root / f".pending-c1-7.1.{UUID}"
    mark.touch()
    store.mark(UUID, "c1-7", 2)
    assert store.sweep(3600) == ["old"]
    store.discard("given-up")
    assert [stage.exists() for stage in stages] == [False, True, False]
    assert store.marked("c1-7") == [(1, UUID), (2, UUID)]
    store.unmark(UUID, "c1-7", 1)
    assert not mark.exists()
    assert store.marked("c1-7") == [(2, UUID)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to another user")
def test_what_others_left_in_the_root_is_left_alone(store: SharedFSStorage) -> None:
    stage, mark = store.root / f".stage-{UUID}", store.root / f".pending-c1-7.1.{UUID}"
    stage.mkdir(parents=True)
    mark.touch()
    for path in (stage, mark):
        os.chown(path, 24502, 24502)
    os.utime(stage, (1000, 1000))
    assert store.sweep(3600) == []
    assert store.marked("c1-7") == []
    store.unmark(UUID, "c1-7", 1)
    store.discard(UUID)
    with pytest.raises(CheckpointError, match="nothing is staged"):
        store.publish(UUID, METADATA)
    assert stage.is_dir()
    assert mark.is_file()


def test_a_run_below_one_marks_nothing(store: SharedFSStorage) -> None:
    with pytest.raises(StorageError, match="counted from 1"):
        store.mark(UUID, "c1-7", 0)
    assert not store.root.exists()


def test_sweep_goes_on_after_a_stage_that_it_cannot_look_at(
    store: SharedFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        os.utime(store.stage(name), (1000, 1000))
    plain = unfinished.last_change

    def last_change(path: Path) -> float:
        if path.name == ".stage-a":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return plain(path)

    def rmtree(path: Path) -> None:
        if path.name == ".stage-b":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        path.rmdir()

    monkeypatch.setattr(unfinished, "last_change", last_change)
    monkeypatch.setattr(unfinished.shutil, "rmtree", rmtree)
    assert store.sweep(3600) == ["c"]


# --- a full disk while publishing


def test_files_that_an_fsync_failed_for_are_never_published(
    store: SharedFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped what it could not write, and says so once."""
    (store.stage(UUID) / "model").write_bytes(b"w" * 10_000)
    fail_once(monkeypatch, "sync_file", "model", lambda path: os.truncate(path, 4096))
    with pytest.raises(StorageError) as caught:
        store.publish(UUID, METADATA)
    assert is_full(caught.value)
    assert not isinstance(caught.value.__cause__, ManifestNotWritten)
    with pytest.raises(CheckpointError, match="may be damaged"):
        store.publish(UUID, METADATA)
    store.discard(UUID)
    (store.stage(UUID) / "model").write_bytes(b"w" * 10_000)
    assert store.publish(UUID, METADATA).files["model"].size == 10_000


@pytest.mark.parametrize("name", ["metadata.json", "manifest.json"])
def test_metadata_and_manifest_are_written_again_after_a_full_disk(
    store: SharedFSStorage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What is half written of them is no file of the checkpoint."""
    (store.stage(UUID) / "model").write_bytes(b"w")
    plain, failed = os.fsync, []

    def fsync(descriptor: int) -> None:
        if not failed and name in Path(f"/proc/self/fd/{descriptor}").readlink().name:
            failed.append(descriptor)
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError) as caught:
        store.publish(UUID, METADATA)
    assert isinstance(caught.value.__cause__, ManifestNotWritten)
    assert is_full(caught.value)
    manifest = store.publish(UUID, METADATA)
    assert set(manifest.files) == {"model", "metadata.json"}
    with store.restore_path(UUID, manifest):
        pass


def fail_once(monkeypatch: pytest.MonkeyPatch, function: str, name: str, harm: Callable[[Path], None]) -> None:
    """Have a function of `files` fail for want of room, the first time that it is called for a file of this name."""
    plain, failed = getattr(storage_files, function), []

    def failing(path: Path) -> None:
        if not failed and path.name == name:
            failed.append(path)
            harm(path)
            raise OSError(errno.EDQUOT, "Disk quota exceeded", str(path))
        plain(path)

    monkeypatch.setattr(storage_files, function, failing)


def test_a_manifest_of_a_hundred_thousand_levels_is_none() -> None:
    with pytest.raises(CheckpointError, match="cannot be used"):
        Manifest.from_bytes(b"[" * 100_000, uuid=UUID)
