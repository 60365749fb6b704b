"""What earlier attempts left of checkpoints: who removes what, and what is never removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from detlab.core.checkpoint.abandoned import Leftovers, TrialLeftovers
from detlab.errors import StorageError
from detlab.storage import DirectoryStorage, Manifest, StorageManager, unfinished
from detlab.storage.own_folders import unfinished_folder
from testbed.stores import names_in

OLD, OTHER, NEW = (f"{digit}1111111-1111-1111-1111-111111111111" for digit in "123")
METADATA = {"steps_completed": 1}


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "store")


def attempt(store: StorageManager, run: int) -> TrialLeftovers:
    return TrialLeftovers(store, "c1", 7, run)


def names(store: DirectoryStorage) -> set[str]:
    return set(names_in(store.root))


def put(store: DirectoryStorage, uuid: str) -> Manifest:
    (store.stage(uuid) / "state").write_text("1")
    return store.publish(uuid, METADATA)


def test_a_stage_of_an_earlier_attempt_is_removed_one_of_this_or_of_another_trial_is_not(
    store: DirectoryStorage,
) -> None:
    attempt(store, 1).begin(OLD)
    TrialLeftovers(store, "c1", 77, 1).begin(OTHER)
    for uuid in (OLD, OTHER):
        (store.stage(uuid) / "state").write_text("1")
    second = attempt(store, 2)
    second.begin(NEW)
    store.stage(NEW)
    attempt(store, 2).begin(NEW)
    assert names(store) == {f".stage-{OTHER}", f".pending-c1-77.1.{OTHER}", f".stage-{NEW}", f".pending-c1-7.2.{NEW}"}


def test_what_is_published_is_never_removed_whatever_a_mark_says(store: DirectoryStorage) -> None:
    manifest = put(store, OLD)
    store.mark(OLD, "c1-7", 1)
    attempt(store, 2).begin(NEW)
    assert names(store) == {OLD, f".pending-c1-7.1.{OLD}", f".pending-c1-7.2.{NEW}"}, "nobody says what it is"
    with store.restore_path(OLD, manifest) as path:
        assert (path / "state").read_text() == "1"


def test_a_published_checkpoint_whose_manifest_cannot_be_read_is_left_as_it_is(store: DirectoryStorage) -> None:
    put(store, OLD)
    (store.root / OLD / "manifest.json").write_text("{")
    store.mark(OLD, "c1-7", 1)
    attempt(store, 2).begin(NEW)
    assert {path.name for path in (store.root / OLD).iterdir()} == {"state", "metadata.json", "manifest.json"}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_the_mark_of_another_user_removes_nothing(store: DirectoryStorage) -> None:
    store.stage(OLD)
    store.mark(OLD, "c1-7", 1)
    os.chown(store.root / unfinished_folder() / f".pending-c1-7.1.{OLD}", 24502, 24502)
    attempt(store, 2).begin(NEW)
    assert f".stage-{OLD}" in names(store)


def test_a_mark_that_cannot_be_taken_away_stops_neither_the_others_nor_the_checkpoint(
    store: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uuid in (OLD, OTHER):
        attempt(store, 1).begin(uuid)
        store.stage(uuid)
    plain = store.unmark

    def unmark(uuid: str, owner: str, run: int) -> None:
        if uuid == OLD:
            raise StorageError("cannot remove") from PermissionError(errno.EPERM, "Operation not permitted")
        plain(uuid, owner, run)

    monkeypatch.setattr(store, "unmark", unmark)
    attempt(store, 2).begin(NEW)
    assert names(store) == {f".pending-c1-7.1.{OLD}", f".pending-c1-7.2.{NEW}"}


def test_a_store_that_is_stale_does_not_keep_a_checkpoint_from_being_begun(
    store: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(*_: Any) -> Any:
        raise OSError(errno.ESTALE, "Stale file handle")

    store.stage(OLD)
    monkeypatch.setattr(unfinished, "last_change", stale)
    Leftovers(store).begin(NEW)
    for name in ("sweep", "marked", "mark", "unmark"):
        monkeypatch.setattr(store, name, stale)
    leftovers = attempt(store, 2)
    leftovers.begin(NEW)
    leftovers.settle(NEW)


class WithoutMarks:
    """A store of somebody's own, made before there were marks."""

    def __init__(self) -> None:
        self.discarded: list[str] = []

    def stage(self, uuid: str) -> Path:
        raise NotImplementedError

    def publish(self, uuid: str, metadata: Mapping[str, Any]) -> Manifest:
        raise NotImplementedError

    def discard(self, uuid: str) -> None:
        self.discarded.append(uuid)


def test_a_store_that_knows_no_marks_is_used_without_them() -> None:
    store = WithoutMarks()
    for leftovers in (Leftovers(cast("StorageManager", store)), attempt(cast("StorageManager", store), 2)):
        leftovers.begin(NEW)
        leftovers.settle(NEW)
        leftovers.give_up(NEW)
    assert store.discarded == [NEW, NEW]


def test_a_store_that_extends_the_interface_need_not_know_marks() -> None:
    class Own(WithoutMarks, StorageManager):
        pass

    leftovers = attempt(cast("StorageManager", Own()), 2)  # type: ignore[abstract, unused-ignore]
    leftovers.begin(NEW)
    leftovers.settle(NEW)


@pytest.mark.parametrize(
    ("verdict", "left"),
    [
        *(("never", set()), ("kept", {OLD}), ("trash", {OLD})),
        *((one, {OLD, f".pending-c1-7.1.{OLD}"}) for one in ("busy", "unknown", "x")),
    ],
)
def test_what_the_master_says_of_what_is_published_decides(
    store: DirectoryStorage, verdict: str, left: set[str]
) -> None:
    put(store, OLD)
    store.mark(OLD, "c1-7", 1)
    TrialLeftovers(store, "c1", 7, 2, lambda items: {OLD: verdict}).begin(NEW)
    assert names(store) == {*left, f".pending-c1-7.2.{NEW}"}
