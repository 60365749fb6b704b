"""The part of the contract of storages that is about hostile names, damage, and processes that are killed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.storage import MANIFEST_NAME, METADATA_NAME, Manifest, StorageManager
from detlab.testing.storage_work import METADATA, Verb, perform, write_small_files

UUID = "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"
HOSTILE_UUIDS = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    ".hidden",
    "/etc",
    "a\0b",
    "a\nb",
    "a b",
    "$(id)",
    "%2e%2e",
    "ü",
    "a" * 129,
]
HOSTILE_PATHS = ["", ".", "..", "../outside", "/etc/passwd", "a/../../outside", "a\0b"]
ODD_NAMES = ["-rf", " ", "a b", "new\nline", "%2e%2e", "$(id)", "...", "größe 重み", "u\u0308", "q?x=1#f", "n" * 200]
_IO = ("open", "os.", "fcntl.", "shutil.", "tempfile.", "socket.", "http.", "subprocess.")
"""Audit events of which a process is killed before each, one after another."""
_DIED = 99
_MOST_EVENTS = 400


class StorageFaults:
    """What a store must refuse and survive; `detlab.testing.storage.StorageContract` has these tests, too."""

    def reopen(self, store: StorageManager) -> StorageManager:
        """Return another object for the same store, as another process would have."""
        raise NotImplementedError

    def config(self, store: StorageManager) -> dict[str, Any]:
        """Return the `checkpoint_storage` block of this store."""
        raise NotImplementedError

    def alter(self, store: StorageManager, uuid: str, name: str, data: bytes | None) -> None:
        """Replace the bytes of a stored file behind the store's back, or remove it if None."""
        raise NotImplementedError

    def killed_before(self, store: StorageManager, event: int, verb: Verb, uuid: str, folder: Path) -> bool:
        """Do a piece of work in another process that is killed before its I/O of a number; whether it was.

        Here the process is a fork of this one. A store whose client does not survive a fork has a process of its own
        (`detlab.testing.storage_work.command`) and kills it before a request.

        Args:
            store: The store.
            event: From 0.
            verb: See `detlab.testing.storage_work.perform`.
            uuid: The checkpoint.
            folder: As for `perform`.
        """
        return _killed_before(event, lambda: perform(self.reopen(store), verb, uuid, folder))

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        """Make a directory such as training code would write."""
        root = tmp_path / "source"
        (root / "model" / "deep").mkdir(parents=True)
        (root / "empty").mkdir()
        (root / "state").write_bytes(b"x" * 100_000)
        (root / "nothing").write_bytes(b"")
        (root / "model" / "deep" / "wéights.bin").write_bytes(bytes(range(256)) * 40)
        (root / "run.sh").write_bytes(b"#!/bin/sh\n")
        (root / "run.sh").chmod(0o755)
        return root

    # --- names: they come from the network, from configs and from other people's folders

    @pytest.mark.parametrize("uuid", HOSTILE_UUIDS)
    def test_uuids_that_lead_out_of_the_root_are_refused(self, store: StorageManager, uuid: str) -> None:
        """By every method that takes one."""
        for call in (store.stage, store.manifest, store.delete, store.discard, store.seal):
            with pytest.raises(CheckpointError):
                call(uuid)
        with pytest.raises(CheckpointError):
            store.open_file(uuid, "x")
        with pytest.raises(CheckpointError):
            store.publish(uuid, METADATA)

    @pytest.mark.parametrize("name", HOSTILE_PATHS)
    def test_paths_that_lead_out_of_the_checkpoint_are_refused(
        self, store: StorageManager, source: Path, tmp_path: Path, name: str
    ) -> None:
        """Also where a forged manifest names them."""
        store.upload(source, UUID)
        entry = store.publish(UUID, METADATA).files["state"]
        forged = Manifest(UUID, {name: entry})
        with pytest.raises(CheckpointError):
            store.open_file(UUID, name)
        with pytest.raises(CheckpointError):
            store.put_file(source / "state", name)
        with pytest.raises(CheckpointError):
            store.download(UUID, tmp_path / "target", forged)
        with pytest.raises(CheckpointError), store.restore_path(UUID, forged):
            pass
        assert not (tmp_path / "outside").exists()

    def test_odd_names_come_back_as_they_are(self, store: StorageManager, tmp_path: Path) -> None:
        """They are names, nothing that a shell, an URL or a pattern could read."""
        folder = tmp_path / "odd"
        for name in ODD_NAMES:
            (folder / name).mkdir(parents=True)
            (folder / name / name).write_bytes(name.encode())
        store.upload(folder, UUID)
        store.download(UUID, tmp_path / "target", store.publish(UUID, METADATA))
        (tmp_path / "target" / METADATA_NAME).unlink()
        assert files_of(tmp_path / "target") == files_of(folder)
        for name in ODD_NAMES:
            with store.open_file(UUID, f"{name}/{name}") as file:
                assert file.read() == name.encode()

    def test_names_that_the_master_refuses_are_refused_before_the_upload(
        self, store: StorageManager, tmp_path: Path
    ) -> None:
        """Otherwise they would be found at the commit, after gigabytes."""
        (tmp_path / "bad").mkdir()
        (tmp_path / "bad" / "a\\b").write_bytes(b"1")
        with pytest.raises(CheckpointError, match="backslash"):
            store.upload(tmp_path / "bad", UUID)

    # --- damage

    @pytest.mark.parametrize(
        "data", [b"y" * 100_000, b"x" * 99_999, b"", None], ids=["flipped", "cut", "empty", "gone"]
    )
    def test_an_altered_file_is_named_and_the_others_still_serve(
        self, store: StorageManager, source: Path, tmp_path: Path, data: bytes | None
    ) -> None:
        """Partial downloads need only what they select."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        self.alter(store, UUID, "state", data)
        error = CheckpointMissing if data is None else CheckpointError
        with pytest.raises(error, match="state"):
            self.reopen(store).download(UUID, tmp_path / "all", manifest)
        assert not (tmp_path / "all" / "state").exists()
        with pytest.raises(error, match="state"), store.restore_path(UUID, manifest):
            pass
        store.download(UUID, tmp_path / "some", manifest, selector=lambda name: name == "run.sh")
        assert files_of(tmp_path / "some") == {"run.sh": b"#!/bin/sh\n"}

    def test_an_altered_manifest_is_refused(self, store: StorageManager, source: Path) -> None:
        """Or gone: then there is no checkpoint."""
        store.upload(source, UUID)
        store.publish(UUID, METADATA)
        self.alter(store, UUID, MANIFEST_NAME, b'{"format": 1')
        with pytest.raises(CheckpointError):
            self.reopen(store).manifest(UUID)
        self.alter(store, UUID, MANIFEST_NAME, None)
        with pytest.raises(CheckpointMissing):
            store.manifest(UUID)
        assert store.uuids() == []

    def test_a_published_checkpoint_is_not_replaced(self, store: StorageManager, source: Path, tmp_path: Path) -> None:
        """A uuid always names the same content."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        (store.stage(UUID) / "state").write_bytes(b"another")
        with pytest.raises(StorageError):
            store.publish(UUID, {"steps_completed": 20})
        assert self.reopen(store).manifest(UUID) == manifest
        store.download(UUID, tmp_path / "target", manifest)

    # --- killed at any moment

    @pytest.mark.parametrize("way", ["upload", "stage"])
    def test_a_writer_killed_at_any_moment_leaves_all_or_nothing(
        self, store: StorageManager, tmp_path: Path, way: Verb
    ) -> None:
        """I5: manifest last. And the same uuid can be written again after its stage was discarded."""
        folder = write_small_files(tmp_path / "small")
        deaths = 0
        for event, uuid in enumerate(_numbered()):
            died = self.killed_before(store, event, way, uuid, folder)
            deaths += died
            if not self._is_complete(store, uuid):
                assert died, "publish has returned"
                self.reopen(store).discard(uuid)
                perform(self.reopen(store), way, uuid, folder)
                assert self._is_complete(store, uuid)
            if not died:
                break
        assert deaths > 3

    def test_a_delete_killed_at_any_moment_leaves_all_or_nothing(self, store: StorageManager, tmp_path: Path) -> None:
        """And can be repeated."""
        folder = write_small_files(tmp_path / "small")
        for number in range(8):  # so that the manifest is not removed first by chance
            (folder / f"shard{number}").write_bytes(b"1")
        for event, uuid in enumerate(_numbered()):
            store.publish(uuid, METADATA, store.upload(folder, uuid))
            died = self.killed_before(store, event, "delete", uuid, folder)
            if self._is_complete(store, uuid):
                assert died, "delete has returned"
            self.reopen(store).delete(uuid)
            assert not self._is_complete(store, uuid)
            if not died:
                break

    def test_a_download_killed_at_any_moment_leaves_wholefiles_of(self, store: StorageManager, tmp_path: Path) -> None:
        """Under their names; what is half there has another one."""
        folder = write_small_files(tmp_path / "small")
        store.publish(UUID, METADATA, store.upload(folder, UUID))
        whole = {**files_of(folder), METADATA_NAME: json.dumps(METADATA, indent=2).encode()}
        for event in range(_MOST_EVENTS):
            target = tmp_path / f"target{event}"
            died = self.killed_before(store, event, "download", UUID, target)
            found = files_of(target) if target.is_dir() else {}
            assert all(data == whole[name] for name, data in found.items() if name in whole)
            if not died:
                assert found == whole
                break

    def _is_complete(self, store: StorageManager, uuid: str) -> bool:
        """Whether there is such a checkpoint; one that is there must verify."""
        reader = self.reopen(store)
        try:
            manifest = reader.manifest(uuid)
        except CheckpointMissing:
            assert uuid not in reader.uuids()
            return False
        with reader.restore_path(uuid, manifest):
            assert uuid in reader.uuids()
        return True


def files_of(root: Path) -> dict[str, bytes]:
    """Return what is below a folder, by relative path."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _numbered() -> list[str]:
    return [f"{UUID[:-4]}{number:04x}" for number in range(_MOST_EVENTS)]


def _killed_before(event: int, work: Callable[[], object]) -> bool:
    """Run `work` in a forked process that ends, like a killed one, before its I/O of this number; whether it did."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            left = event + 1

            def count(name: str, _args: object) -> None:
                nonlocal left
                left -= name.startswith(_IO)
                if left == 0:
                    os._exit(_DIED)

            sys.addaudithook(count)
            work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, _DIED}, f"the process that was to be killed before event {event} ended with {status}"
    return status == _DIED
