"""Who may change a storage: a copy of a cluster does not, until it is told to take over; then the original does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detlab.storage.ownership import FOLDER, StorageHolder, StorageOwned
from detlab.storage.posix import DirectoryStorage, PosixStorage
from detlab.testing.storage import METADATA, UUID

OWN = f".owner-{os.geteuid()}"
ORIGINAL = StorageHolder("c0ffee", "original", 1)
COPY = StorageHolder("c0ffee", "copy", 1)
TOOK_OVER = StorageHolder("c0ffee", "copy", 1_700_000_000)
ANOTHER = StorageHolder("another", "x", 1)
OTHER_UUID = "0" * 8 + "-0000-4000-8000-" + "1" * 12


def opened(root: Path, holder: StorageHolder | None) -> PosixStorage:
    return DirectoryStorage(root).held_by(holder)


def save(store: PosixStorage, uuid: str = UUID) -> None:
    (store.stage(uuid) / "model.pt").write_bytes(b"weights")
    store.publish(uuid, METADATA)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save(opened(tmp_path / "root", ORIGINAL))
    return tmp_path / "root"


CHANGES: dict[str, Callable[[PosixStorage, Path], Any]] = {
    "delete": lambda store, here: store.delete(UUID),
    "delete_files": lambda store, here: store.delete_files(UUID, ["model.pt"]),
    "publish": lambda store, here: save(store, OTHER_UUID),
    "upload": lambda store, here: store.upload(here, OTHER_UUID),
    "put_file": lambda store, here: store.put_file(here / "f", "tensorboard-x/f"),
    "remove_folders": lambda store, here: store.remove_folders([UUID]),
    "sweep": lambda store, here: store.sweep(0.0),
    "mark": lambda store, here: store.mark(OTHER_UUID, "c0ffee-1", 1),
    "check": lambda store, here: store.check(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_changes_nothing_of_the_original(root: Path, tmp_path: Path, change: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "f").write_text("x")
    with pytest.raises(StorageOwned, match="another installation of cluster c0ffee") as refused:
        CHANGES[change](opened(root, COPY), source)
    assert "det up --take-over" in str(refused.value.hint)
    assert (root / UUID / "model.pt").read_bytes() == b"weights"


def test_a_copy_reads_what_is_there(root: Path, tmp_path: Path) -> None:
    store = opened(root, COPY)
    assert store.uuids() == [UUID]
    store.download(UUID, tmp_path / "copy", store.manifest(UUID))


def test_who_has_taken_over_goes_on_and_the_original_is_refused(root: Path) -> None:
    save(opened(root, TOOK_OVER), OTHER_UUID)
    with pytest.raises(StorageOwned):
        opened(root, ORIGINAL).delete(UUID)
    opened(root, TOOK_OVER).delete(UUID)
    back = StorageHolder("c0ffee", "original", TOOK_OVER.epoch + 1)
    opened(root, back).delete(OTHER_UUID)
    with pytest.raises(StorageOwned):
        save(opened(root, TOOK_OVER))


def test_two_clusters_share_a_prefix_and_each_has_its_record(root: Path) -> None:
    save(opened(root, ANOTHER), OTHER_UUID)
    opened(root, ORIGINAL).delete(UUID)
    opened(root, ANOTHER).delete(OTHER_UUID)
    assert sorted(path.name for path in (root / OWN).iterdir()) == ["another", "c0ffee"]


def test_the_same_installation_after_a_restart_is_the_same_one(root: Path) -> None:
    opened(root, ORIGINAL).delete(UUID)


def test_without_a_cluster_nobody_is_asked(root: Path) -> None:
    opened(root, None).delete(UUID)


HOSTILE = {
    "an epoch without end": '{"format": 1, "cluster": "c0ffee", "instance": "x", "epoch": 1e999}',
    "nested": "[" * 4000,
    "nan": '{"format": NaN}',
}


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"format": 2}', '{"format": 1, "cluster": "c0ffee"}', *HOSTILE.values()],
    ids=lambda text: text[:40],
)
def test_a_record_that_cannot_be_read_is_another_s(root: Path, text: str) -> None:
    (root / OWN / "c0ffee").write_text(text)
    with pytest.raises(StorageOwned, match="cannot be used"):
        opened(root, ORIGINAL).delete(UUID)
    assert (root / UUID).is_dir()


def test_the_name_of_a_cluster_leads_nowhere_else() -> None:
    assert StorageHolder("../../x/y", "i").record == f"{FOLDER}/______x_y"


def test_a_record_as_large_as_a_disk_is_not_read(root: Path) -> None:
    os.truncate(root / OWN / "c0ffee", 2**40)
    begun = time.monotonic()
    with pytest.raises(StorageOwned, match="cannot be used"):
        opened(root, ORIGINAL).delete(UUID, owner=os.geteuid())
    assert time.monotonic() - begun < 10


def test_users_who_took_all_names_of_records_keep_nobody_from_storing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(1001):
        (root / (f"{FOLDER}.{number}" if number else FOLDER)).mkdir(mode=0o755, parents=True)
    save(opened(root, ORIGINAL))
    assert (root / OWN / "c0ffee").is_file()
