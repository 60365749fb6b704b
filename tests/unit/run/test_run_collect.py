"""The task that removes collected checkpoints, against a scripted master and real folders."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detlab.errors import StorageError
from detlab.run import collect
from detlab.run.collect import Collector
from detlab.storage import MANIFEST_NAME, from_config
from detlab.storage.clearing import clear_checkpoint, clear_folders
from detlab.storage.objects.fsspecs import FsspecObjects, FsspecStorage
from detlab.storage.objects.store import ObjectStorage
from detlab.storage.posix import PosixStorage

BLOCK = {"type": "s3", "bucket": "b", "region": "eu-west-1"}


class ScriptedMaster:
    """Lists what was not reported as removed, and remembers reports."""

    def __init__(self, items: Sequence[Mapping[str, Any]], folders: Mapping[str, Any] | None = None) -> None:
        self.items = list(items)
        self.folders = folders
        self.reports: list[Mapping[str, Any]] = []
        self.told_of_folders: list[Mapping[str, Any]] = []

    def list(self) -> dict[str, Any]:
        return {"items": self.items, "event_files": None if self.items else self.folders}

    def report(
        self, items: Sequence[Mapping[str, Any]], event_files: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        self.reports += items
        told = {item["uuid"] for item in items}
        self.items = [item for item in self.items if item["uuid"] not in told]
        if event_files is not None:
            self.told_of_folders.append(event_files)
            self.folders = None
        return self.list()


class KeepsFiles(PosixStorage):
    """A store that says that it removes, and does not: one with versions, or a lock."""

    def delete(self, uuid: str, *, owner: int | None = None) -> None:
        pass


def saved(store: PosixStorage, **files: bytes) -> tuple[str, dict[str, int]]:
    """Publish a checkpoint; return its uuid, and the sizes of all of its files."""
    key = str(uuid.uuid4())
    for name, data in files.items():
        (store.stage(key) / name).write_bytes(data)
    manifest = store.publish(key, {})
    return key, {name: entry.size for name, entry in manifest.files.items()}


def item(root: Path, key: str, sizes: dict[str, int], paths: list[str] | None = None) -> dict[str, Any]:
    storage = {"type": "directory", "container_path": str(root)}
    return {"uuid": key, "paths": paths, "files": sizes, "storage": storage}


def test_what_is_listed_is_removed_and_reported(tmp_path: Path) -> None:
    store = PosixStorage(tmp_path)
    found = [saved(store, model=b"12345") for _ in range(25)]
    kept, _ = saved(store, model=b"1")
    master = ScriptedMaster([item(tmp_path, key, sizes) for key, sizes in found])
    collector = Collector(master)
    assert collector.run() == 0
    assert store.uuids() == [kept]
    assert [one["failure"] for one in master.reports] == [""] * 25
    assert collector.freed == sum(sum(sizes.values()) for _, sizes in found)


def test_a_repeated_removal_is_harmless(tmp_path: Path) -> None:
    store = PosixStorage(tmp_path)
    key, sizes = saved(store, model=b"1")
    for _ in range(2):
        master = ScriptedMaster([item(tmp_path, key, sizes)])
        assert Collector(master).run() == 0
        assert master.reports == [{"uuid": key, "paths": None, "failure": ""}]


def test_some_files_go_and_the_others_stay(tmp_path: Path) -> None:
    store = PosixStorage(tmp_path)
    key, sizes = saved(store, model=b"1", optimizer=b"22")
    assert Collector(ScriptedMaster([item(tmp_path, key, {"optimizer": 2}, ["optimizer"])])).run() == 0
    assert store.file_sizes(key, sizes).keys() == sizes.keys() - {"optimizer"}


def test_one_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    store = PosixStorage(tmp_path / "there")
    key, sizes = saved(store, model=b"1")
    away = item(tmp_path / "away", str(uuid.uuid4()), {"model": 1})
    odd = item(tmp_path / "there", str(uuid.uuid4()), {"model": 1}) | {"storage": {"type": "no such store"}}
    master = ScriptedMaster([away, odd, item(tmp_path / "there", key, sizes)])
    assert Collector(master).run() == 0
    assert [bool(one["failure"]) for one in master.reports] == [True, True, False]
    assert store.uuids() == []
    assert Collector(ScriptedMaster([away])).run() == 1


def test_bytes_that_stay_are_found(tmp_path: Path) -> None:
    store = KeepsFiles(tmp_path)
    key, sizes = saved(store, model=b"12345")
    with pytest.raises(StorageError, match="are still there after their removal: metadata"):
        clear_checkpoint(store, key, sizes)
    master = ScriptedMaster([item(tmp_path, key, sizes)])
    Collector(master, lambda block: store).run()
    assert "are still there" in master.reports[0]["failure"]


def test_a_manifest_that_stays_is_found(tmp_path: Path) -> None:
    store = KeepsFiles(tmp_path)
    key, _ = saved(store, model=b"12345")
    with pytest.raises(StorageError, match="its manifest"):
        clear_checkpoint(store, key, [])


class KeepsData(FsspecStorage):
    """An object store of which only the manifest is removed."""

    def delete(self, uuid: str, *, owner: int | None = None) -> None:
        self.objects.delete([f"{uuid}/{MANIFEST_NAME}"])


def test_objects_that_stay_without_their_manifest_are_found(tmp_path: Path) -> None:
    store = KeepsData(FsspecObjects(f"file://{tmp_path}/root", {"auto_mkdir": False}))
    key = str(uuid.uuid4())
    (store.stage(key) / "model").write_bytes(b"12345")
    manifest = store.publish(key, {})
    sizes = {name: entry.size for name, entry in manifest.files.items()}
    with pytest.raises(StorageError, match=r"are still there after their removal: metadata\.json, model"):
        clear_checkpoint(store, key, sizes)
    with pytest.raises(StorageError, match="are still there"):
        clear_checkpoint(store, key, sizes)
    whole = FsspecStorage(store.objects)
    assert clear_checkpoint(whole, key, sizes) == sum(sizes.values())
    assert clear_checkpoint(whole, key, sizes) == 0


def test_a_task_of_collection_asks_the_master_for_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Session:
        @classmethod
        def from_info(cls, info: Any) -> Session:
            return cls()

        def get(self, path: str, *, limit: float = 0.0) -> Any:
            asked.append(path)
            return {"values": {"access_key_id": "a", "secret_access_key": "b"}}

        def close(self) -> None:
            asked.append("closed")

    class Listing(ScriptedMaster):
        def __init__(self, info: Any) -> None:
            super().__init__([{**item(tmp_path, str(uuid.uuid4()), {}), "storage": BLOCK}])

    monkeypatch.setattr(collect, "get_cluster_info", lambda: SimpleNamespace(storage_instance=""))
    monkeypatch.setattr(collect, "TaskSession", Session)
    monkeypatch.setattr(collect, "CollectionClient", Listing)
    monkeypatch.setattr(collect, "clear_checkpoint", lambda store, *_: int(isinstance(store, ObjectStorage)))
    assert collect.main() == 0
    assert asked == ["task/storage-credentials", "closed"]


def test_the_store_of_a_block_is_opened_once(tmp_path: Path) -> None:
    store, opened = PosixStorage(tmp_path), []

    def open_store(block: Mapping[str, Any]) -> Any:
        opened.append(block)
        return from_config(block)

    master = ScriptedMaster([item(tmp_path, *saved(store, model=b"1")) for _ in range(3)])
    Collector(master, open_store).run()
    assert len(opened) == 1


def events(root: Path, *names: str) -> dict[str, Any]:
    return {"names": list(names), "storage": {"type": "directory", "container_path": str(root)}}


def test_event_files_go_after_the_checkpoints(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "file"
    file.write_bytes(b"123")
    store = PosixStorage(root)
    key, sizes = saved(store, model=b"1")
    for name in ("tensorboard-c-1-1/a", "tensorboard-c-1-2/rank0/a", "tensorboard-c-1-12/a"):
        store.put_file(file, name)
    folders = events(root, "tensorboard-c-1-1", "tensorboard-c-1-2", "tensorboard-c-1-3")
    master = ScriptedMaster([item(root, key, sizes)], folders)
    assert Collector(master).run() == 0
    assert master.told_of_folders == [{"failure": "", "freed": 6}]
    assert sorted(path.name for path in root.iterdir() if path.name.startswith("tensor")) == ["tensorboard-c-1-12"]


def test_event_files_that_stay_are_reported(tmp_path: Path) -> None:
    class Keeps(PosixStorage):
        def remove_folders(self, names: Collection[str], *, owner: int | None = None) -> None:
            pass

    file = tmp_path / "file"
    file.write_bytes(b"123")
    store = Keeps(tmp_path / "root")
    store.put_file(file, "tensorboard-c-1-1/a")
    master = ScriptedMaster([], events(tmp_path / "root", "tensorboard-c-1-1"))
    assert Collector(master, lambda block: store).run() == 1
    assert "folders are still there after their removal: tensorboard-c-1-1" in master.told_of_folders[0]["failure"]


def test_a_shared_file_system_that_is_not_mounted_holds_what_it_holds(tmp_path: Path) -> None:
    folders = {"names": ["tensorboard-c-1-1"], "storage": {"type": "shared_fs", "host_path": str(tmp_path / "away")}}
    master = ScriptedMaster([], folders)
    assert Collector(master).run() == 1
    assert "is it mounted" in master.told_of_folders[0]["failure"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_event_files_of_another_user_stay(tmp_path: Path) -> None:
    for name, uid in (("tensorboard-c-1-1", 4711), ("tensorboard-c-1-1.1", 4712)):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "a").write_bytes(b"1")
        os.chown(tmp_path / name, uid, uid)
    (tmp_path / "tensorboard-c-1-1.2").symlink_to(tmp_path / "tensorboard-c-1-1")
    assert clear_folders(PosixStorage(tmp_path), ["tensorboard-c-1-1"]) == 0
    assert clear_folders(PosixStorage(tmp_path), ["tensorboard-c-1-1"], owner=4712) == 1
    assert (tmp_path / "tensorboard-c-1-1" / "a").exists()
