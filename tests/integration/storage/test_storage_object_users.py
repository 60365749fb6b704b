"""Who uses an object store: a task that trains, and the master that reads, checks and removes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import detlab as det
from detlab.core.storage_check import check_storage
from detlab.errors import CheckpointError, NotFound, StorageRefused
from detlab.storage import from_config
from detlab.storage.objects.obstores import s3_objects
from detlab.storage.objects.store import ObjectStorage
from detlab.testing.master import MasterDouble
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.stores import OpenStore
from testbed.objectstores import faultproxy
from testbed.objectstores.faultproxy import FaultProxy
from testbed.objectstores.servers import ObjectServer
from testbed.task_dirs import make_task_dir

STEPS = {"steps_completed": 10}


@pytest.fixture
def block(s3_server: ObjectServer, prefix: str) -> dict[str, Any]:
    """A place in S3."""
    return s3_server.block(prefix)


@pytest.fixture
def api() -> Iterator[MasterDouble]:
    """The master that the task speaks to."""
    with MasterDouble() as server:
        yield server


@pytest.fixture
def task(tmp_path: Path, api: MasterDouble, block: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process is a task whose experiment stores in S3."""
    for name in [name for name in os.environ if name.startswith("DET_")]:
        monkeypatch.delenv(name)
    root = make_task_dir(tmp_path / "task", api.url, storage=block)
    monkeypatch.setenv("DET_TASK_DIR", str(root))
    return root


def objects(block: dict[str, Any]) -> list[str]:
    """Return the keys below a block's prefix, without what says who writes."""
    found = from_config(block)
    assert isinstance(found, ObjectStorage)
    return sorted(info.key for info in found.objects.list("") if not info.key.startswith(".pending/_"))


def test_a_task_stores_and_restores(task: Path, api: MasterDouble, block: dict[str, Any], tmp_path: Path) -> None:
    with det.core.init() as core:
        with core.checkpoint.store_path(dict(STEPS)) as (path, uuid):
            (path / "state").write_text("1,2,3")
        assert set(api.checkpoints[uuid]["files"]) == {"state", "metadata.json"}
        with core.checkpoint.restore_path(uuid) as restored:
            assert (restored / "state").read_text() == "1,2,3"
        assert objects(block) == sorted(f"{uuid}/{name}" for name in ("manifest.json", "metadata.json", "state"))
        core.checkpoint.delete(uuid)
    assert objects(block) == []
    assert not [path for path in (tmp_path / "node").rglob("*") if path.is_file()]


def test_a_block_that_fails_leaves_nothing(task: Path, api: MasterDouble, block: dict[str, Any]) -> None:
    def fail(path: Path) -> None:
        (path / "state").write_text("1")
        raise ZeroDivisionError

    with det.core.init() as core:
        with pytest.raises(ZeroDivisionError), core.checkpoint.store_path(dict(STEPS)) as (path, uuid):
            fail(path)
        assert uuid not in api.checkpoints
    assert objects(block) == []


def test_wrong_keys_end_a_task_before_its_first_step(
    task: Path, block: dict[str, Any], s3_server: ObjectServer
) -> None:
    proxy = FaultProxy(s3_server.port)
    block |= {"secret_key": "never-to-be-shown"}
    try:
        refused = faultproxy.refusing(403, "SignatureDoesNotMatch", "The request signature we calculated differs")
        with (
            proxy.failing(refused),
            pytest.raises(StorageRefused, match="SignatureDoesNotMatch: The request signature") as caught,
            det.core.init(checkpoint_storage={**block, "endpoint_url": proxy.url}),
        ):
            pass
        assert block["secret_key"] not in str(caught.value)
        readonly = _only_reads
        with (
            proxy.failing(readonly),
            pytest.raises(StorageRefused, match="cannot write"),
            det.core.init(checkpoint_storage={**block, "endpoint_url": proxy.url}),
        ):
            pass
    finally:
        proxy.close()


def _only_reads(asked: faultproxy.Asked) -> faultproxy.Answer | None:
    if asked.method == "GET":
        return None
    return faultproxy.refusing(403, "AccessDenied", "not authorized to perform: s3:PutObject")(asked)


def test_a_store_that_is_away_at_the_start_does_not_end_a_task(
    block: dict[str, Any], s3_server: ObjectServer, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = FaultProxy(s3_server.port)
    try:
        place = {**block, "endpoint_url": proxy.url}
        found = ObjectStorage(s3_objects(place, seconds={"quick": 0, "patient": 0}))
        with proxy.failing(faultproxy.busy(10_000)), caplog.at_level(logging.WARNING):
            check_storage(found, place, patience=0.0)
        assert "still away: training begins" in caplog.text
    finally:
        proxy.close()


def test_the_next_attempt_removes_what_a_dead_one_left(
    task: Path, api: MasterDouble, block: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = from_config(block)
    with det.core.init() as core:
        assert core.info is not None
        owner = core.checkpoint._leftovers._owner  # type: ignore[attr-defined]  # the name under which it looks
        uuid = "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"
        core.checkpoint._leftovers._run = 2  # type: ignore[attr-defined]  # this is the second attempt
        dead.mark(uuid, owner, 1)
        (dead.stage(uuid) / "half").write_text("1")
        dead.seal(uuid)
        assert f"{uuid}/half" in objects(block)
        with core.checkpoint.store_path(dict(STEPS)) as (path, new):
            (path / "state").write_text("1")
    assert objects(block) == sorted(f"{new}/{name}" for name in ("manifest.json", "metadata.json", "state"))


# --- the master


@pytest.fixture(params=["s3", "gcs", "azure"])
def stored(request: pytest.FixtureRequest, prefix: str, tmp_path: Path) -> tuple[dict[str, Any], str, Any]:
    """A checkpoint in a store of each kind: block, uuid, manifest."""
    server: ObjectServer = request.getfixturevalue(f"{request.param}_server")
    place, uuid = server.block(prefix), "0b8d1c6e-6c0c-4d0a-9d6f-0a1b2c3d4e5f"
    folder = tmp_path / "folder"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(bytes(range(256)) * 8192)
    (folder / "state").write_bytes(b"state")
    store = from_config(place)
    return place, uuid, store.publish(uuid, STEPS, store.upload(folder, uuid))


def test_the_master_serves_checks_and_removes(stored: tuple[dict[str, Any], str, Any]) -> None:
    block, uuid, manifest = stored
    here = OpenStore(block)
    entry = manifest.files["model/weights"]
    size = entry.size
    with files.open_found(here, uuid, "model/weights", size, owner=0) as file:
        for _ in files.verifying(file, uuid, "model/weights", entry.digest, size):
            pass
        assert file.read() == bytes(range(256)) * 8192
        assert file.seek(-1, os.SEEK_END) == size - 1
        assert file.read() == b"\xff"
    files.check_sizes(here, uuid, {name: found.size for name, found in manifest.files.items()})
    with pytest.raises(CheckpointError, match="2,097,152 bytes in the storage"):
        files.check_sizes(here, uuid, {"model/weights": 7})
    with pytest.raises(NotFound):
        files.open_found(here, uuid, "other", 1)
    with pytest.raises(CheckpointError):
        files.open_found(here, uuid, "state", 6)
    names = sorted(manifest.files)
    assert not files.are_gone(here, uuid, dict.fromkeys(names, 1))
    assert files.remove(here, uuid, names, ["model/weights"], None) == ""
    assert files.are_gone(here, uuid, dict.fromkeys(names, 1))
    assert files.remove(here, uuid, names, None, None) == ""
    assert files.remove(here, uuid, names, None, None) == ""
    store = from_config(block)
    assert store.uuids() == []


def test_the_master_says_that_what_it_cannot_reach_stays(
    stored: tuple[dict[str, Any], str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    block, uuid, manifest = stored
    place = "container" if block["type"] == "azure" else "bucket"
    failure = files.remove(OpenStore({**block, place: "nowhere"}), uuid, sorted(manifest.files), None, None)
    assert "nowhere" in failure
    assert f"files of checkpoint {uuid} stay: {failure}" in caplog.text
    assert str(block.get("secret_key") or block.get("credential")) not in caplog.text
