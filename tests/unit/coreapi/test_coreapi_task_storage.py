"""Credentials of a task's storage: whose are used, and when they are renewed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detlab.core.session import COMMIT_LIMIT
from detlab.core.task_storage import AT_ONCE, EARLY, MasterCredentials, open_storage
from detlab.errors import ClusterUnreachable, NotFound
from detlab.schemas.wire import StorageCredentials
from detlab.storage import DirectoryStorage
from detlab.storage.objects.store import ObjectStorage


class Master:
    """Gives numbered credentials for an hour."""

    def __init__(self) -> None:
        self.now, self.given, self.limits = 1000.0, 0, list[float]()
        self.fails: Exception | None = None
        self.has_some = True

    def get(self, path: str, *, limit: float = 0.0) -> Any:
        assert path == "task/storage-credentials"
        self.limits.append(limit)
        if self.fails is not None:
            raise self.fails
        if not self.has_some:
            return {}
        self.given += 1
        return {"values": {"access_key_id": f"key{self.given}", "token": "t"}, "expires_at": self.now + 3600}


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def provider(master: Master) -> MasterCredentials:
    first = StorageCredentials.model_validate(master.get("task/storage-credentials"))
    return MasterCredentials(master, first, clock=lambda: master.now)


def test_they_are_given_as_obstore_takes_them(provider: MasterCredentials) -> None:
    expires = datetime.fromtimestamp(4600, UTC)
    assert provider() == {"access_key_id": "key1", "token": "t", "expires_at": expires}
    assert "key1" not in repr(provider)


def test_they_are_renewed_before_they_expire(master: Master, provider: MasterCredentials) -> None:
    master.now += 3600 - EARLY - 1
    assert provider()["access_key_id"] == "key1"
    master.now += 2
    assert provider()["access_key_id"] == "key2"
    assert provider()["access_key_id"] == "key2", "asked once"
    assert master.given == 2


def test_those_for_some_minutes_are_not_asked_for_at_each_request(master: Master) -> None:
    first = StorageCredentials(values={"token": "a"}, expires_at=master.now + 240)
    provider = MasterCredentials(master, first, clock=lambda: master.now)
    master.now += 150
    assert provider()["token"] == "a"
    assert master.given == 0


def test_while_the_master_is_away_the_old_ones_serve_as_long_as_they_hold(
    master: Master, provider: MasterCredentials
) -> None:
    master.now += 3600 - 10
    master.fails = ClusterUnreachable("away")
    assert provider()["access_key_id"] == "key1"
    assert master.limits[-1] < 5, "not waited for"
    master.now += 11
    with pytest.raises(ClusterUnreachable):
        provider()
    assert master.limits[-1] == COMMIT_LIMIT, "waited for, as for a commit"
    master.fails = None
    assert provider()["access_key_id"] == "key2"


def test_those_that_do_not_expire_are_kept(master: Master) -> None:
    provider = MasterCredentials(master, StorageCredentials(values={"token": "a"}), clock=lambda: master.now)
    master.now += 1e9
    assert provider() == {"token": "a", "expires_at": None}


def test_a_folder_asks_nobody(master: Master, tmp_path: Path) -> None:
    assert isinstance(open_storage({"type": "directory", "container_path": str(tmp_path)}, master), DirectoryStorage)
    assert master.limits == []


def made_with(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def make(_block: Any, *, credentials: Any = None) -> Any:
        found.append(credentials)
        return SimpleNamespace(where="s3://b")

    monkeypatch.setattr("detlab.core.task_storage._makers", lambda: {"s3": make})
    return found


def test_the_masters_are_used_where_the_block_has_none(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    found, master.now = made_with(monkeypatch), time.time()
    store = open_storage({"type": "s3", "bucket": "b"}, master)
    assert isinstance(store, ObjectStorage)
    assert store._patience.seconds == AT_ONCE
    assert found[0]()["access_key_id"] == "key1"


@pytest.mark.parametrize("key", ["access_key", "credential"])
def test_those_of_the_block_come_first(master: Master, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    found = made_with(monkeypatch)
    open_storage({"type": "s3", "bucket": "b", "secret_key": "x", key: "mine"}, master)
    assert (found, master.limits) == ([], [])


@pytest.mark.parametrize("older", [True, False])
def test_without_any_the_nodes_are_used(master: Master, monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    found = made_with(monkeypatch)
    master.has_some = False
    if older:
        master.fails = NotFound("no route")
    assert isinstance(open_storage({"type": "s3", "bucket": "b"}, master), ObjectStorage)
    assert found == []
