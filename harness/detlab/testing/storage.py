"""The contract of `detlab.storage.StorageManager`, as a class of tests.

class TestMyStorage(StorageContract):
    @pytest.fixture
    def store(self, tmp_path):
        return MyStorage(tmp_path / "root")

    def reopen(self, store):
        return MyStorage(store.root)
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from detlab.errors import CheckpointError
from detlab.storage import MANIFEST_NAME, METADATA_NAME, StorageManager

UUID = "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"
METADATA = {"steps_completed": 10, "note": "füße"}


class StorageContract:
    """Subclass it, give a `store` fixture, and let pytest collect the subclass."""

    def reopen(self, store: StorageManager) -> StorageManager:
        """Return another object for the same store, as another process would have; override it."""
        return store

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        """A directory such as training code makes."""
        root = tmp_path / "source"
        (root / "model" / "deep").mkdir(parents=True)
        (root / "empty").mkdir()
        (root / "state").write_bytes(b"x" * 100_000)
        (root / "nothing").write_bytes(b"")
        (root / "model" / "deep" / "wéights.bin").write_bytes(bytes(range(256)) * 40)
        (root / "run.sh").write_bytes(b"#!/bin/sh\n")
        (root / "run.sh").chmod(0o755)
        return root

    def test_what_was_uploaded_comes_back(self, store: StorageManager, source: Path, tmp_path: Path) -> None:
        """Bytes, names, permissions and empty folders survive."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        other = self.reopen(store)
        assert other.manifest(UUID) == manifest
        target = tmp_path / "target"
        names = other.download(UUID, target, manifest)
        assert sorted(names) == sorted([*_files(source), METADATA_NAME])
        assert {name: _files(target)[name] for name in _files(source)} == _files(source)
        assert json.loads((target / METADATA_NAME).read_text()) == METADATA
        assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (target / "empty").is_dir()

    def test_the_manifest_tells_size_and_digest(self, store: StorageManager, source: Path) -> None:
        """Every file is in the manifest, the manifest itself is not."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        assert manifest.metadata == METADATA
        assert MANIFEST_NAME not in manifest.files
        for name, content in _files(source).items():
            assert manifest.files[name].size == len(content)
            assert manifest.files[name].digest == "sha256:" + hashlib.sha256(content).hexdigest()

    def test_files_written_into_the_stage_are_stored(self, store: StorageManager) -> None:
        """Training code may write into the stage directly."""
        (store.stage(UUID) / "direct").write_bytes(b"1")
        manifest = store.publish(UUID, METADATA)
        with store.restore_path(UUID, manifest) as path:
            assert (path / "direct").read_bytes() == b"1"

    def test_two_uploads_are_united(self, store: StorageManager, tmp_path: Path) -> None:
        """Several ranks fill one stage."""
        for rank in (0, 1):
            folder = tmp_path / f"rank{rank}"
            folder.mkdir()
            (folder / f"shard{rank}").write_bytes(b"%d" % rank)
            store.upload(folder, UUID)
        assert {"shard0", "shard1"} <= store.publish(UUID, METADATA).files.keys()

    def test_nothing_is_there_before_publish(self, store: StorageManager, source: Path) -> None:
        """A writer that dies before it publishes leaves no checkpoint."""
        store.upload(source, UUID)
        with pytest.raises(CheckpointError):
            self.reopen(store).manifest(UUID)
        store.discard(UUID)
        store.discard(UUID)
        with pytest.raises(CheckpointError):
            store.manifest(UUID)

    def test_what_was_never_staged_is_not_published(self, store: StorageManager, source: Path) -> None:
        """A stage that is gone gives an error, not a checkpoint without files."""
        with pytest.raises(CheckpointError):
            store.publish(UUID, METADATA)
        store.upload(source, UUID)
        store.discard(UUID)
        with pytest.raises(CheckpointError):
            store.publish(UUID, METADATA)
        with pytest.raises(CheckpointError):
            self.reopen(store).manifest(UUID)

    def test_the_selector_chooses(self, store: StorageManager, source: Path, tmp_path: Path) -> None:
        """On the way in and on the way out."""
        part = store.upload(source, UUID, selector=lambda name: name.startswith("model/"))
        assert list(part.files) == ["model/deep/wéights.bin"]
        manifest = store.publish(UUID, METADATA)
        assert store.download(UUID, tmp_path / "t", manifest, selector=lambda name: name == METADATA_NAME) == [
            METADATA_NAME
        ]
        assert sorted(_files(tmp_path / "t")) == [METADATA_NAME]

    def test_a_restored_checkpoint_can_be_stored_again(
        self, store: StorageManager, source: Path, tmp_path: Path
    ) -> None:
        """Its old metadata and manifest are replaced."""
        store.upload(source, UUID)
        with store.restore_path(UUID, store.publish(UUID, METADATA)) as path:
            second = UUID[:-1] + "0"
            store.upload(path, second)
            manifest = store.publish(second, {"steps_completed": 20})
        assert manifest.metadata == {"steps_completed": 20}
        store.download(second, tmp_path / "t", manifest)
        assert json.loads((tmp_path / "t" / METADATA_NAME).read_text()) == {"steps_completed": 20}

    def test_links_are_refused(self, store: StorageManager, source: Path) -> None:
        """A link is neither followed nor stored; the error names it."""
        (source / "passwd").symlink_to("/etc/passwd")
        with pytest.raises(CheckpointError, match="passwd is a symbolic link"):
            store.upload(source, UUID)

    def test_a_file_named_like_the_manifest_is_refused(self, store: StorageManager, source: Path) -> None:
        """It would be overwritten silently."""
        (source / MANIFEST_NAME).write_text("{}")
        with pytest.raises(CheckpointError, match=MANIFEST_NAME):
            store.upload(source, UUID)

    @pytest.mark.parametrize("uuid", ["", "..", "../x", "a/b", ".hidden", "/etc", "a\0b"])
    def test_names_that_leave_the_root_are_refused(self, store: StorageManager, uuid: str) -> None:
        """Checkpoint names come from the network."""
        for call in (store.stage, store.manifest, store.delete, store.discard):
            with pytest.raises(CheckpointError):
                call(uuid)

    def test_marks_are_kept_by_owner_until_they_are_taken_away(self, store: StorageManager, source: Path) -> None:
        """They are not the checkpoint's: it is stored and removed with them there, and they say which run it was."""
        other = UUID[:-1] + "0"
        for uuid, owner, run in ((UUID, "c1-7", 11), (other, "c1-7", 2), (UUID, "c1-77", 1), (UUID, "c1-7", 11)):
            store.mark(uuid, owner, run)
        store.upload(source, UUID)
        store.publish(UUID, METADATA)
        store.delete(UUID)
        assert self.reopen(store).marked("c1-7") == [(2, other), (11, UUID)]
        for _ in range(2):
            store.unmark(UUID, "c1-7", 11)
        assert store.marked("c1-7") == [(2, other)]
        assert store.marked("c1-77") == [(1, UUID)]
        assert store.marked("c1") == []

    def test_sweep_leaves_what_is_young(self, store: StorageManager, source: Path) -> None:
        """And what is published."""
        store.upload(source, UUID)
        assert store.sweep(3600.0) == []
        manifest = store.publish(UUID, METADATA)
        assert store.sweep(0.0) == []
        assert store.manifest(UUID) == manifest

    def test_delete_removes_all_of_it(self, store: StorageManager, source: Path) -> None:
        """And is harmless when repeated."""
        store.upload(source, UUID)
        store.publish(UUID, METADATA)
        store.delete(UUID)
        store.delete(UUID)
        with pytest.raises(CheckpointError):
            self.reopen(store).manifest(UUID)

    def test_single_files_are_replaced(self, store: StorageManager, tmp_path: Path) -> None:
        """`put_file` stores what belongs to no checkpoint, and only inside the root."""
        file = tmp_path / "events"
        for content in (b"1", b"22"):
            file.write_bytes(content)
            store.put_file(file, "tensorboard/trial/1/events")
        with pytest.raises(CheckpointError):
            store.put_file(file, "../outside")


def _files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
