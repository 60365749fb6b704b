"""The contract of `detlab.storage.StorageManager`, as a class of tests.

class TestMyStorage(StorageContract):
    @pytest.fixture
    def store(self, tmp_path):
        return MyStorage(tmp_path / "root")

    def reopen(self, store):
        return MyStorage(store.root)

    def config(self, store):
        return {"type": "mine", "place": str(store.root)}

    def alter(self, store, uuid, name, data):
        (store.root / uuid / name).write_bytes(data)
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from detlab.errors import CheckpointError, CheckpointMissing
from detlab.schemas.storage_types import STORAGES
from detlab.storage import (
    MANIFEST_NAME,
    METADATA_NAME,
    ManifestPart,
    StorageManager,
    StorageType,
    from_config,
)
from detlab.storage.clearing import KeepsFolders, clear_folders
from detlab.storage.manifest import MOST_MANIFEST
from detlab.testing.storage_faults import UUID, StorageFaults, files_of
from detlab.testing.storage_work import METADATA

__all__ = ["METADATA", "UUID", "StorageContract"]

_LIGHT = """
import sys
import detlab.storage, detlab.schemas.expconf
from detlab.schemas.storage_types import STORAGES
before = set(sys.modules)
found = STORAGES.load(sys.argv[1])
found.config_model()
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names) - {found.__module__.partition(".")[0]}))
"""


class StorageContract(StorageFaults):
    """Subclass it, give a `store` fixture and the three methods of `StorageFaults`, and let pytest collect it."""

    def test_what_was_uploaded_comes_back(self, store: StorageManager, source: Path, tmp_path: Path) -> None:
        """Bytes, names, permissions and empty folders survive."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        other = self.reopen(store)
        assert other.manifest(UUID) == manifest
        target = tmp_path / "target"
        names = other.download(UUID, target, manifest)
        assert sorted(names) == sorted([*files_of(source), METADATA_NAME])
        assert {name: files_of(target)[name] for name in files_of(source)} == files_of(source)
        assert json.loads((target / METADATA_NAME).read_text()) == METADATA
        assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (target / "empty").is_dir()

    def test_the_manifest_tells_size_and_digest(self, store: StorageManager, source: Path) -> None:
        """Every file is in the manifest, the manifest itself is not."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        assert manifest.metadata == METADATA
        assert MANIFEST_NAME not in manifest.files
        for name, content in files_of(source).items():
            assert manifest.files[name].size == len(content)
            assert manifest.files[name].digest == "sha256:" + hashlib.sha256(content).hexdigest()

    def test_a_manifest_of_any_size_is_not_read(self, store: StorageManager, source: Path) -> None:
        """The master reads what tasks have written: gigabytes would fill its memory. It can still be removed."""
        store.upload(source, UUID)
        store.publish(UUID, METADATA)
        self.alter(store, UUID, MANIFEST_NAME, bytes(MOST_MANIFEST + 1))
        with pytest.raises(CheckpointError, match=f"{MOST_MANIFEST + 1:,} bytes"):
            self.reopen(store).manifest(UUID)
        self.reopen(store).delete(UUID)
        with pytest.raises(CheckpointMissing):
            self.reopen(store).manifest(UUID)

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
        assert sorted(files_of(tmp_path / "t")) == [METADATA_NAME]

    def test_the_selector_chooses_empty_folders(self, store: StorageManager, source: Path, tmp_path: Path) -> None:
        """It is asked for each with a `/` after its path, as in Determined; on the way in and on the way out."""
        (source / "empty" / "other").mkdir()
        (source / "none").mkdir()
        part = store.upload(source, UUID, selector=lambda name: name in {"run.sh", "empty/other/", "none/"})
        assert sorted(part.directories) == ["empty/other", "none"]
        manifest = store.publish(UUID, METADATA)
        assert store.download(UUID, tmp_path / "t", manifest, selector=lambda name: name == "none/") == []
        assert [path.name for path in (tmp_path / "t").iterdir()] == ["none"]

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

    # --- marks and what is abandoned

    def test_marks_are_kept_by_owner_until_they_are_taken_away(self, store: StorageManager, source: Path) -> None:
        """They are not the checkpoint's: it is stored and removed with them there, and they say which run it was."""
        if type(store).mark is StorageManager.mark:
            pytest.skip("this store leaves marks out")
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

    # --- reading, as the master does

    def test_single_files_can_be_opened(self, store: StorageManager, source: Path) -> None:
        """At any position; only what is published, and nothing that is not there."""
        store.upload(source, UUID)
        with pytest.raises(CheckpointMissing):
            store.open_file(UUID, "model/deep/wéights.bin")
        store.publish(UUID, METADATA)
        with self.reopen(store).open_file(UUID, "model/deep/wéights.bin") as file:
            assert file.seek(0, os.SEEK_END) == 256 * 40
            file.seek(256)
            assert file.read(3) == b"\x00\x01\x02"
        for missing in ("model", "model/deep/other"):
            with pytest.raises(CheckpointMissing):
                store.open_file(UUID, missing)

    def test_sizes_are_told_of_what_is_there(self, store: StorageManager, source: Path) -> None:
        """The rest is left out: it may only not be visible from here."""
        assert store.file_sizes(UUID, ["state"]) == {}
        store.upload(source, UUID)
        store.publish(UUID, METADATA)
        assert store.file_sizes(UUID, ["state", "run.sh", "other"]) == {"state": 100_000, "run.sh": 10}

    def test_published_checkpoints_are_listed(self, store: StorageManager, source: Path) -> None:
        """Those that are staged, removed, or single files of no checkpoint are not."""
        assert store.uuids() == []
        other = UUID[:-1] + "0"
        for uuid in (UUID, other):
            store.upload(source, uuid)
        store.put_file(source / "state", "tensorboard/state")
        store.publish(UUID, METADATA)
        assert self.reopen(store).uuids() == [UUID]
        store.publish(other, METADATA)
        assert store.uuids() == sorted([UUID, other])
        store.delete(UUID)
        assert self.reopen(store).uuids() == [other]

    # --- several ranks

    def test_parts_of_ranks_are_published_as_one(self, store: StorageManager, tmp_path: Path) -> None:
        """Each rank has a store of its own, on a machine of its own; the last one has read no other rank's files."""
        parts = []
        for rank in (0, 1):
            folder = tmp_path / f"rank{rank}"
            folder.mkdir()
            (folder / f"shard{rank}").write_bytes(b"%d" % rank * 1000)
            parts.append(self.reopen(store).upload(folder, UUID))
        joined = ManifestPart({**parts[0].files, **parts[1].files})
        manifest = store.publish(UUID, METADATA, joined)
        assert manifest.files.keys() == {"shard0", "shard1", METADATA_NAME}
        self.reopen(store).download(UUID, tmp_path / "target", manifest)

    def test_sealed_files_are_published(self, store: StorageManager, tmp_path: Path) -> None:
        """Files that training code wrote into the stage; a rank of each node seals."""
        (store.stage(UUID) / "direct").write_bytes(b"1")
        part = store.seal(UUID)
        assert part.files.keys() == {"direct"}
        other = self.reopen(store).seal(UUID, node=1)
        manifest = store.publish(UUID, METADATA, ManifestPart({**part.files, **other.files}))
        self.reopen(store).download(UUID, tmp_path / "target", manifest)

    @pytest.mark.parametrize("wrong", ["missing", "size"])
    def test_what_the_parts_say_must_be_stored(self, store: StorageManager, source: Path, wrong: str) -> None:
        """A file that a rank has stored and that is not there, or not whole, makes no checkpoint."""
        part = store.upload(source, UUID)
        entry = part.files["state"]
        name, entry = ("other", entry) if wrong == "missing" else ("state", entry.model_copy(update={"size": 7}))
        with pytest.raises(CheckpointError, match=name):
            store.publish(UUID, METADATA, ManifestPart({**part.files, name: entry}, part.directories))
        assert self.reopen(store).uuids() == []
        with pytest.raises(CheckpointError):
            store.manifest(UUID)

    # --- the type

    def test_the_block_leads_to_this_store(self, store: StorageManager, source: Path) -> None:
        """`from_config` finds what was stored, and ignores keys of other versions; the model takes the block."""
        block = self.config(store)
        found = STORAGES.load(block["type"])
        assert isinstance(found, StorageType)
        assert isinstance(store, StorageManager)
        assert found.config_model().model_validate(block).model_dump()["type"] == block["type"]
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        assert from_config({**block, "save_trial_best": 1, "of_another_version": True}).manifest(UUID) == manifest

    def test_the_type_is_light(self, store: StorageManager) -> None:
        """The master and `det` ask it for its keys: client libraries are imported with the first store."""
        command = [sys.executable, "-c", _LIGHT, self.config(store)["type"]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr

    # --- removing, and what belongs to no checkpoint

    def test_delete_removes_all_of_it(self, store: StorageManager, source: Path) -> None:
        """And is harmless when repeated."""
        store.upload(source, UUID)
        store.publish(UUID, METADATA)
        store.delete(UUID)
        store.delete(UUID)
        with pytest.raises(CheckpointError):
            self.reopen(store).manifest(UUID)

    def test_some_files_are_deleted_and_the_others_stay(self, store: StorageManager, source: Path) -> None:
        """And it is harmless when repeated; names that lead out of the checkpoint are refused."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        gone, *stay = sorted(manifest.files)
        store.delete_files(UUID, [gone])
        store.delete_files(UUID, [gone])
        with pytest.raises(CheckpointMissing):
            self.reopen(store).open_file(UUID, gone)
        assert sorted(self.reopen(store).file_sizes(UUID, manifest.files)) == stay
        with pytest.raises(CheckpointError):
            store.delete_files(UUID, ["../outside"])

    def test_single_files_are_replaced(self, store: StorageManager, tmp_path: Path) -> None:
        """`put_file` stores what belongs to no checkpoint, and only inside the root."""
        file = tmp_path / "events"
        for content in (b"1", b"22"):
            file.write_bytes(content)
            store.put_file(file, "tensorboard/trial/1/events")
        with pytest.raises(CheckpointError):
            store.put_file(file, "../outside")

    def test_folders_of_single_files_are_found_and_removed(self, store: StorageManager, tmp_path: Path) -> None:
        """Event files of a deleted experiment, by the names of their folders; a store of one's own may leave it out."""
        file = tmp_path / "events"
        file.write_bytes(b"123")
        for name in ("tensorboard-c-1-1/rank0/a", "tensorboard-c-1-1/b", "tensorboard-c-1-11/a", "other/x"):
            store.put_file(file, name)
        wanted = ["tensorboard-c-1-1", "tensorboard-c-1-2"]
        again = self.reopen(store)
        freed = clear_folders(again, wanted)
        if not isinstance(again, KeepsFolders):
            assert freed == 0
            return
        assert freed == 6
        assert again.folders([*wanted, "tensorboard-c-1-11", "other"]) == {"tensorboard-c-1-11": 3, "other": 3}
        assert clear_folders(again, wanted) == 0, "harmless if they are gone"
