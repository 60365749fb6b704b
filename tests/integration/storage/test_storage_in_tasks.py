"""Object stores as a trial meets them: refused before the first step, away in the middle, slow beside the loop."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.core import DummyDistributedContext, full_disk
from detlab.core.checkpoint.context import CheckpointContext
from detlab.core.task_storage import open_storage
from detlab.pytorch.checkpoint.writer import CheckpointWriter
from detlab.schemas.wire import StorageCredentials
from detlab.storage import from_config
from detlab.storage.objects import obstores
from detlab.storage.objects.store import ObjectStorage
from detlab.testing.master import MasterDouble
from testbed.objectstores.faultproxy import Answer, Asked, FaultProxy
from testbed.objectstores.servers import ObjectServer
from testbed.task_dirs import make_task_dir
from testbed.waiting import until

CODE = """
import detlab as det
with det.core.init() as core:
    print("the first step")
    with core.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
        (path / "state").write_text("x")
    print("stored", uuid)
"""
SECRET = "hunter2-secret"


@pytest.fixture
def api() -> Iterator[MasterDouble]:
    with MasterDouble() as server:
        yield server


def run(folder: Path, api: MasterDouble, storage: dict[str, Any]) -> tuple[int, str]:
    task = make_task_dir(folder / "task", api.url, storage=storage)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CODE)],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder / "node"), "DET_TASK_DIR": str(task), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_bucket_that_does_not_exist_costs_no_step(
    tmp_path: Path, api: MasterDouble, s3_server: ObjectServer, prefix: str
) -> None:
    code, said = run(tmp_path, api, s3_server.block(prefix, bucket="nobodys", secret_key=SECRET))
    assert code == 1
    assert "the first step" not in said
    assert "StorageRefused: checkpoints cannot be stored (checkpoint_storage.bucket)" in said
    assert "NoSuchBucket" in said, "the store's own words"
    assert "det config check" in said
    assert SECRET not in said
    assert sum(line.lstrip().startswith("File ") for line in said.splitlines()) == 1, "the user's own line alone"


def test_a_store_that_knows_no_such_key_costs_no_step(
    tmp_path: Path, api: MasterDouble, s3_proxy: FaultProxy, s3_server: ObjectServer, prefix: str
) -> None:
    words = b"The AWS Access Key Id you provided does not exist."
    body = b"<Error><Code>InvalidAccessKeyId</Code><Message>" + words + b"</Message></Error>"
    with s3_proxy.failing(before=lambda _: Answer(403, {"Content-Type": "application/xml"}, body)):
        code, said = run(tmp_path, api, s3_server.block(prefix, port=s3_proxy.port))
    assert code == 1
    assert "InvalidAccessKeyId: The AWS Access Key Id you provided does not exist" in said
    assert "the first step" not in said


def test_one_may_read_and_not_write(
    tmp_path: Path, api: MasterDouble, s3_proxy: FaultProxy, s3_server: ObjectServer, prefix: str
) -> None:
    """Found out by the first checkpoint otherwise, after an epoch."""

    def read_only(asked: Asked) -> Answer | None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        return Answer(403, {}, body) if asked.method == "PUT" else None

    with s3_proxy.failing(before=read_only):
        code, said = run(tmp_path, api, s3_server.block(prefix, port=s3_proxy.port))
    assert code == 1
    assert "AccessDenied" in said
    assert "the first step" not in said


def test_a_task_stores_with_the_masters_credentials(
    tmp_path: Path, api: MasterDouble, s3_proxy: FaultProxy, s3_server: ObjectServer, prefix: str
) -> None:
    values = {"access_key_id": "ASIAFROMMASTER", "secret_access_key": SECRET, "token": "session-token"}
    api.storage_credentials = StorageCredentials(values=values, expires_at=4e9)
    block = s3_server.block(prefix, port=s3_proxy.port, access_key=None, secret_key=None)
    with s3_proxy.failing():
        code, said = run(tmp_path, api, block)
        headers = [{name.lower(): value for name, value in asked.headers.items()} for asked in s3_proxy.seen]
    assert code == 0, said
    assert SECRET not in said
    assert headers
    assert all("Credential=ASIAFROMMASTER/" in sent["authorization"] for sent in headers)
    assert {sent["x-amz-security-token"] for sent in headers} == {"session-token"}
    (uuid,) = api.checkpoints
    assert SECRET not in str(api.checkpoints[uuid])
    assert from_config(s3_server.block(prefix)).uuids() == [uuid]


class Session:
    """Of a master that takes every checkpoint."""

    held_up = False

    def __init__(self) -> None:
        self.committed: list[str] = []

    def get(self, _path: str, *, limit: float = 0.0) -> Any:
        return {}

    def call(self, _method: str, _path: str, body: Any = None, **_: Any) -> None:
        self.committed.append(body["uuid"])


def quick_store(block: dict[str, Any]) -> ObjectStorage:
    """A task's store, which gives up on a request soon."""
    store = open_storage(block, Session())
    assert isinstance(store, ObjectStorage)
    objects = obstores.s3_objects(block, seconds={"quick": 0.3, "patient": 0.3})
    return ObjectStorage(objects, patience=0.5)


def test_training_goes_on_while_the_store_is_away(
    s3_proxy: FaultProxy, s3_server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_disk, "PAUSE", 0.2)
    session, alive = Session(), list[int]()
    store = quick_store(s3_server.block(prefix, port=s3_proxy.port))
    context = CheckpointContext(DummyDistributedContext(), store, session)  # type: ignore[arg-type]
    back = threading.Event()
    tree = {"models_state_dict": [{"a": torch.full((200_000,), 3.0)}], "callbacks": {}}
    with (
        s3_proxy.failing(before=lambda _: None if back.is_set() else Answer(503)),
        CheckpointWriter(context, alive=lambda: alive.append(1)) as writer,
    ):
        writer.submit(tree, {"steps_completed": 7})
        assert not writer.wait(4.0)
        assert alive
        back.set()
        assert writer.wait(60)
        (finished,) = writer.poll()
    assert session.committed == [finished.uuid]
    manifest = store.manifest(finished.uuid)
    with store.restore_path(finished.uuid, manifest) as folder:
        assert (folder / "model_0.safetensors").stat().st_size > 800_000


def test_a_writer_that_is_closed_while_the_store_is_away_ends_soon(
    s3_proxy: FaultProxy, s3_server: ObjectServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = quick_store(s3_server.block(prefix, port=s3_proxy.port))
    context = CheckpointContext(DummyDistributedContext(), store, Session())  # type: ignore[arg-type]
    tree = {"models_state_dict": [{"a": torch.ones(1000)}], "callbacks": {}}
    with s3_proxy.failing(before=lambda _: Answer(503)):
        writer = CheckpointWriter(context)
        writer.submit(tree, {"steps_completed": 7})
        until(lambda: "is away" in caplog.text, seconds=30)
        closer = threading.Thread(target=writer.close)
        closer.start()
        closer.join(15)
        assert not closer.is_alive()
    assert from_config(s3_server.block(prefix)).uuids() == []


def test_the_loop_stalls_as_little_as_for_a_folder(s3_proxy: FaultProxy, s3_server: ObjectServer, prefix: str) -> None:
    """On a link of 4 MB/s: the loop waits for a copy in memory, not for the upload."""
    store = open_storage(s3_server.block(prefix, port=s3_proxy.port), Session())
    context = CheckpointContext(DummyDistributedContext(), store, Session())  # type: ignore[arg-type]
    tree = {"models_state_dict": [{"a": torch.ones(2_000_000)}], "callbacks": {}}
    with s3_proxy.failing(), CheckpointWriter(context) as writer:
        s3_proxy.rate = 4e6
        writer.prepare(tree)
        writer.submit(tree, {"steps_completed": 1})
        assert writer.busy
        assert writer.stall_s < 1.0, "the upload takes 2 s"
        assert writer.wait(60)
    assert len(store.uuids()) == 1
