"""The program that compares a storage with what the master knows: both ways, and it removes only what it may."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from detlab.cli.commands.storage.check import _sums
from detlab.core.checkpoint.abandoned import TrialLeftovers
from detlab.errors import StorageError
from detlab.run.check_storage import check
from detlab.schemas.checkpoint_ids import new_checkpoint_id
from detlab.schemas.taskwire import StoredItem, StoredPage
from detlab.storage import StorageManager, from_config
from detlab.storage.inventory import StoredCheckpoint, Upload, inventory
from detlab.storage.ownership import StorageHolder

TRIAL = 7
OWNER = f"c1-{TRIAL}"
METADATA = {"steps_completed": 1}


class Knows:
    """What a master knows: what is committed, what never was, and what it cannot tell."""

    def __init__(self) -> None:
        self.committed: set[str] = set()
        self.never: set[str] = set()
        self.known: dict[str, str] = {}

    def verdicts(self, items: Sequence[StoredCheckpoint]) -> Mapping[str, str]:
        return {one.uuid: self.known.get(one.uuid) or self._told(one) for one in items}

    def _told(self, one: StoredCheckpoint) -> str:
        if one.uuid in self.committed:
            return "kept"
        return "never" if one.uuid in self.never or any(owner == OWNER for owner, _ in one.marks) else "unknown"

    def expected(self, place: int) -> Iterable[tuple[str, int]]:
        return [(uuid, 100 + len(b'{\n "steps_completed": 1\n}\n')) for uuid in sorted(self.committed)]


class SomeUploads:
    def __init__(self, *found: Upload) -> None:
        self.found, self.aborted = list(found), list[str]()

    def list(self) -> list[Upload]:
        return self.found

    def abort(self, upload: Upload) -> None:
        self.aborted.append(upload.id)


@pytest.fixture(params=["directory", "fsspec"])
def block(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Of files, and of the code of object stores."""
    if request.param == "directory":
        return {"type": "directory", "container_path": str(tmp_path / "root")}
    return {"type": "fsspec", "url": f"file://{tmp_path}/objects"}


@pytest.fixture
def store(block: dict[str, Any]) -> StorageManager:
    return from_config(block)


def begin(store: StorageManager, *, marked: bool = True) -> str:
    uuid = new_checkpoint_id(TRIAL)
    if marked:
        store.mark(uuid, OWNER, 1)
    (store.stage(uuid) / "model.pt").write_bytes(b"x" * 100)
    return uuid


def publish(store: StorageManager, *, marked: bool = True) -> str:
    uuid = begin(store, marked=marked)
    store.publish(uuid, METADATA, store.seal(uuid))
    return uuid


def looked(store: StorageManager, knows: Knows, *, repair: bool = False, uploads: Any = None) -> Any:
    return check(store, "here", 0, knows, uploads, repair=repair, say=lambda text: None)


def test_a_committed_checkpoint_that_has_lost_a_file_is_damaged(store: StorageManager, block: dict[str, Any]) -> None:
    knows = Knows()
    whole, broken = publish(store, marked=False), publish(store, marked=False)
    knows.committed = {whole, broken}
    assert looked(store, knows).damaged_count == 0
    root = Path(block.get("container_path") or block["url"].removeprefix("file://"))
    (lost,) = root.rglob(f"{broken}/model.pt")
    lost.write_bytes(b"x" * 99)
    assert looked(store, knows).damaged == [broken]
    lost.unlink()
    found = looked(store, knows, repair=True)
    assert (found.damaged, found.damaged_count, found.missing_count, found.repaired) == ([broken], 1, 0, 0)


def test_all_kinds_are_found_summed_and_repaired_and_nothing_else(store: StorageManager) -> None:
    knows = Knows()
    kept, orphan, deleted, strange = (publish(store, marked=marked) for marked in (False, True, False, False))
    gone = new_checkpoint_id(TRIAL)
    knows.committed = {kept, gone}
    knows.never = {deleted}
    found = looked(store, knows)
    assert {item.uuid for item in found.never} == {orphan, deleted}
    assert all(item.published and item.bytes > 100 for item in found.never)
    assert found.never_bytes == sum(item.bytes for item in found.never)
    assert [item.uuid for item in found.unknown] == [strange]
    assert (found.kept, found.missing, found.repaired) == (1, [gone], 0)
    assert set(store.uuids()) == {kept, orphan, deleted, strange}, "to look changes nothing"
    found = looked(store, knows, repair=True)
    assert (found.repaired, found.repaired_bytes) == (2, found.never_bytes)
    assert set(store.uuids()) == {kept, strange}
    assert looked(store, knows).never_count == 0


@pytest.mark.parametrize("verdict", ["another", "trash", "busy", "unknown", "kept", "a word of tomorrow"])
def test_what_is_not_its_own_is_not_repaired(store: StorageManager, verdict: str) -> None:
    knows = Knows()
    uuid = publish(store)
    knows.known = {uuid: verdict}
    assert looked(store, knows, repair=True).repaired == 0
    assert store.uuids() == [uuid]


def test_event_files_are_known_and_left_alone(tmp_path: Path) -> None:
    """They were said to be of nobody that can be told, though `det experiment delete-tb-files` removes them."""
    store = from_config({"type": "directory", "container_path": str(tmp_path)})
    for name in ("tensorboard-c1-3-7", "tensorboard-c1-3-8.1"):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "events.out").write_bytes(b"x" * 50)
    strange = publish(store, marked=False)
    found = looked(store, Knows(), repair=True)
    assert (found.events, found.events_bytes) == (2, 100)
    assert [item.uuid for item in found.unknown] == [strange]
    lines = _sums(found)
    assert any(line.startswith("event files       2 folders") and "delete-tb-files" in line for line in lines)
    assert (tmp_path / "tensorboard-c1-3-7" / "events.out").exists()


def test_what_another_installation_owns_is_not_repaired(store: StorageManager) -> None:
    uuid = publish(store)
    store.held_by(StorageHolder("c1", "original")).check()
    found = looked(store.held_by(StorageHolder("c1", "copy")), Knows(), repair=True)
    assert (found.never_count, found.repaired) == (1, 0)
    assert "another installation" in found.not_repaired
    assert store.uuids() == [uuid]


def test_a_begun_upload_is_found_by_its_mark(store: StorageManager) -> None:
    uuid = begin(store)
    found = looked(store, Knows(), repair=True)
    assert [(item.uuid, item.published) for item in found.never] == [(uuid, False)]
    assert list(inventory(store)) == []


def test_unfinished_uploads_are_removed_if_their_checkpoint_is_ours(store: StorageManager) -> None:
    knows = Knows()
    uuid, other = publish(store), new_checkpoint_id(TRIAL)
    uploads = SomeUploads(Upload(f"p/{uuid}/a", "1", uuid, 50), Upload(f"p/{other}/a", "2", other, 60))
    found = looked(store, knows, uploads=uploads)
    assert (found.uploads, found.uploads_bytes, found.uploads_unknown, uploads.aborted) == (1, 50, 1, [])
    looked(store, knows, repair=True, uploads=uploads)
    assert uploads.aborted == ["1"]


def test_a_storage_that_cannot_be_listed_is_told() -> None:
    class Strange:
        pass

    with pytest.raises(StorageError, match="cannot be listed"):
        inventory(Strange())  # type: ignore[arg-type]


def attempt(block: dict[str, Any], run: int, commits: Path, more: int, draw: float) -> None:
    """One attempt of a trial, in a process of its own, killed some time after so many further commits."""
    before = len(list(commits.iterdir()))
    pid = os.fork()
    if pid == 0:
        try:
            leftovers = TrialLeftovers(from_config(block), "c1", TRIAL, run, lambda items: told(commits, items))
            store = from_config(block)
            while True:
                uuid = new_checkpoint_id(TRIAL)
                leftovers.begin(uuid)
                (store.stage(uuid) / "model.pt").write_bytes(b"x" * 1000)
                store.publish(uuid, METADATA, store.seal(uuid))
                (commits / uuid).touch()
                leftovers.settle(uuid)
        finally:
            os._exit(1)
    limit = time.monotonic() + 30.0
    while len(list(commits.iterdir())) < before + more and time.monotonic() < limit:
        time.sleep(0.001)
    time.sleep(draw)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def told(commits: Path, items: Sequence[StoredCheckpoint]) -> Mapping[str, str]:
    return {one.uuid: "kept" if (commits / one.uuid).exists() else "never" for one in items}


@pytest.mark.slow
def test_nothing_is_found_after_many_kills(block: dict[str, Any], tmp_path: Path) -> None:
    """What each attempt leaves, published or not, the next one removes; what was committed stays."""
    commits, rng = tmp_path / "commits", random.Random(3)
    commits.mkdir()
    for run in range(1, 41):
        attempt(block, run, commits, rng.choice((0, 1, 1, 2)), rng.uniform(0.0, 0.02))
    store = from_config(block)
    last = TrialLeftovers(store, "c1", TRIAL, 41, lambda items: told(commits, items))
    uuid = new_checkpoint_id(TRIAL)
    last.begin(uuid)
    last.settle(uuid)
    knows = Knows()
    knows.committed = {path.name for path in commits.iterdir()}
    assert knows.committed, "some were committed"
    found = looked(store, knows)
    assert (found.never, found.unknown, found.missing, found.kept) == ([], [], [], len(knows.committed))


class AsksInTerms(Knows):
    """Asks as the real master takes it."""

    def verdicts(self, items: Sequence[StoredCheckpoint]) -> Mapping[str, str]:
        StoredPage(items=[StoredItem(uuid=one.uuid) for one in items])
        return super().verdicts(items)


def test_uploads_of_others_with_any_name_stop_no_check(store: StorageManager) -> None:
    uploads = SomeUploads(Upload("k", "1", "x" * 900, 7), Upload("k", "2", "a b/c", 7))
    found = check(store, "here", 0, AsksInTerms(), uploads, repair=True)
    assert (found.uploads_unknown, uploads.aborted) == (2, [])


def test_unfinished_uploads_of_event_files_are_the_clusters_own(store: StorageManager) -> None:
    """They were "unknown: nothing says whose they are"."""
    names = ("tensorboard-my-cluster-12-34", ".owner", "tensorboard-photos", new_checkpoint_id(TRIAL))
    uploads = SomeUploads(*(Upload(f"{name}/events", name, name, 5) for name in names))
    found = looked(store, Knows(), repair=True, uploads=uploads)
    assert (found.uploads_own, found.uploads_unknown) == (2, 2)
    assert uploads.aborted == []
