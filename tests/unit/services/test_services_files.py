"""A master run by root reads and removes for a user only what is the user's own."""

import hashlib
import os
from pathlib import Path

import pytest

from detlab.errors import CheckpointError, NotFound
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.files import open_found, remove, verifying
from detlab_hub.services.checkpoints.stores import OpenStore

UUID = "0b7c5a52-7a3e-4c39-9d1c-0d6a1c1f2a11"
ALICE, EVE = 23091, 23092
DIGEST = f"sha256:{hashlib.sha256(b'secret').hexdigest()}"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def open_verified(store, owner=None):
    """Open and check the file as the master does before it sends one."""
    file = open_found(store, UUID, "file", 6, owner)
    for _ in verifying(file, UUID, "file", DIGEST, 6):
        pass
    return file


@pytest.fixture
def alices(tmp_path):
    """A directory of alice's that has the name of a checkpoint: eve may say it is one of hers."""
    folder = tmp_path / UUID
    folder.mkdir(mode=0o700)
    (folder / "file").write_bytes(b"secret")
    for path in (folder, folder / "file"):
        os.chown(path, ALICE, ALICE)
    return OpenStore({"type": "shared_fs", "host_path": str(tmp_path)})


@needs_root
def test_root_reads_nobody_elses_file_for_a_user(alices, tmp_path):
    with pytest.raises(NotFound, match="its user's own"):
        open_verified(alices, EVE)
    with open_verified(alices, ALICE) as file:
        assert file.read() == b"secret"
    (tmp_path / "link").hardlink_to(tmp_path / UUID / "file")
    with pytest.raises(NotFound):
        open_verified(alices, ALICE)


@needs_root
def test_root_removes_nobody_elses_directory_for_a_user(alices, tmp_path):
    """A task may commit any UUID under any host_path; deleting the experiment then removed it, as root."""
    assert remove(alices, UUID, ["file"], None, EVE)
    assert (tmp_path / UUID / "file").exists()
    assert not remove(alices, UUID, ["file"], None, ALICE)
    assert not (tmp_path / UUID).exists()
    assert not remove(alices, UUID, ["file"], None, ALICE)  # it is gone already


def test_a_sparse_file_of_a_terabyte_is_not_digested(tmp_path):
    folder = tmp_path / UUID
    folder.mkdir()
    with (folder / "file").open("wb") as file:
        file.truncate(1 << 40)
    storage = OpenStore({"type": "directory", "container_path": str(tmp_path)})
    with pytest.raises(CheckpointError, match="not what was committed"):
        open_verified(storage)


def test_a_checkpoint_is_gone_only_if_its_folder_is_not_where_others_could_be(tmp_path: Path) -> None:
    root, uuid = tmp_path / "shared", "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"
    block = OpenStore({"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "shared"})
    assert not files.are_gone(block, uuid, {"model": 1}), "not mounted"
    root.mkdir()
    assert files.are_gone(block, uuid, {"model": 1})
    assert not files.are_gone(block, uuid, {}), "it has no files"
    (root / uuid).mkdir(mode=0o000)
    assert not files.are_gone(block, uuid, {"model": 1}), "its files may be there, and not for this master to see"
    assert not files.are_gone(OpenStore({"type": "directory", "container_path": str(tmp_path)}), uuid, {"model": 1})
