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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.schemas.storage_types import STORAGES
from detlab.storage import (
    MANIFEST_NAME,
    METADATA_NAME,
    Manifest,
    ManifestPart,
    StorageManager,
    StorageType,
    from_config,
)

UUID = "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"
METADATA = {"steps_completed": 10, "note": "füße"}
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


class StorageContract:
    """Subclass it, give a `store` fixture, and let pytest collect the subclass."""

    def reopen(self, store: StorageManager) -> StorageManager:
        """Return another object for the same store, as another process would have."""
        raise NotImplementedError

    def config(self, store: StorageManager) -> dict[str, Any]:
        """Return the `checkpoint_storage` block of this store."""
        raise NotImplementedError

    def alter(self, store: StorageManager, uuid: str, name: str, data: bytes | None) -> None:
        """Replace the bytes of a stored file behind the store's back, or remove it if None."""
        raise NotImplementedError

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
        assert _files(tmp_path / "target") == _files(folder)
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

    # --- marks and what is abandoned

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

    # --- reading, as the master does, and what is damaged

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
        assert _files(tmp_path / "some") == {"run.sh": b"#!/bin/sh\n"}

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
        """A uuid names one content for ever."""
        store.upload(source, UUID)
        manifest = store.publish(UUID, METADATA)
        (store.stage(UUID) / "state").write_bytes(b"another")
        with pytest.raises(StorageError):
            store.publish(UUID, {"steps_completed": 20})
        assert self.reopen(store).manifest(UUID) == manifest
        store.download(UUID, tmp_path / "target", manifest)

    # --- several ranks

    def test_parts_of_ranks_are_published_as_one(self, store: StorageManager, tmp_path: Path) -> None:
        """Each rank has a store of its own, on a machine of its own; the last one has read nobody's files."""
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

    # --- killed at any moment

    @pytest.mark.parametrize("way", ["upload", "stage"])
    def test_a_writer_killed_at_any_moment_leaves_all_or_nothing(
        self, store: StorageManager, tmp_path: Path, way: str
    ) -> None:
        """I5: manifest last. And the same uuid can be written anew after its stage was discarded."""
        folder = _two_files(tmp_path / "small")

        def write(uuid: str) -> None:
            writer = self.reopen(store)
            if way == "stage":
                _two_files(writer.stage(uuid))
                writer.publish(uuid, METADATA, writer.seal(uuid))
            else:
                writer.publish(uuid, METADATA, writer.upload(folder, uuid))

        deaths = 0
        for event, uuid in enumerate(_numbered()):
            died = _killed_before(event, lambda uuid=uuid: write(uuid))  # type: ignore[misc]
            deaths += died
            if not self._is_complete(store, uuid):
                assert died, "publish has returned"
                self.reopen(store).discard(uuid)
                write(uuid)
                assert self._is_complete(store, uuid)
            if not died:
                break
        assert deaths > 3

    def test_a_delete_killed_at_any_moment_leaves_all_or_nothing(self, store: StorageManager, tmp_path: Path) -> None:
        """And can be repeated."""
        folder = _two_files(tmp_path / "small")
        for number in range(8):  # so that the manifest is not removed first by chance
            (folder / f"shard{number}").write_bytes(b"1")
        for event, uuid in enumerate(_numbered()):
            store.publish(uuid, METADATA, store.upload(folder, uuid))
            died = _killed_before(event, lambda uuid=uuid: self.reopen(store).delete(uuid))  # type: ignore[misc]
            if self._is_complete(store, uuid):
                assert died, "delete has returned"
            self.reopen(store).delete(uuid)
            assert not self._is_complete(store, uuid)
            if not died:
                break

    def test_a_download_killed_at_any_moment_leaves_whole_files(self, store: StorageManager, tmp_path: Path) -> None:
        """Under their names; what is half there has another one."""
        folder = _two_files(tmp_path / "small")
        manifest = store.publish(UUID, METADATA, store.upload(folder, UUID))
        whole = {**_files(folder), METADATA_NAME: json.dumps(METADATA, indent=2).encode()}
        for event in range(_MOST_EVENTS):
            target = tmp_path / f"target{event}"
            died = _killed_before(event, lambda to=target: self.reopen(store).download(UUID, to, manifest))  # type: ignore[misc]
            found = _files(target) if target.is_dir() else {}
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


def _two_files(folder: Path) -> Path:
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(b"w" * 5000)
    (folder / "state").write_bytes(b"s")
    return folder


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
