"""Checkpoints of one rank: commit, outages, kill -9 at each point, damage."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import detlab as det
from detlab.core import session as _session
from detlab.core.checkpoint.abandoned import TrialLeftovers
from detlab.errors import CheckpointError, ClusterUnreachable, Forbidden, StaleAttempt, StorageError
from detlab.files import write_atomic
from detlab.schemas.checkpoint_ids import made_for
from detlab.storage import DirectoryStorage
from detlab.storage import files as storage_files
from detlab.testing.master import MasterDouble
from detlab.testing.trial_api import TrialApiFault
from testbed.stores import names_in
from testbed.waiting import until

STORE = {"steps_completed": 10}


@pytest.fixture
def core(in_task: Any) -> Any:
    with det.core.init() as context:
        yield context


def store(core: Any, **files: str) -> str:
    with core.checkpoint.store_path(dict(STORE)) as (path, uuid):
        for name, text in files.items():
            (path / name).write_text(text)
    return uuid


def test_store_and_restore(core: Any, api: MasterDouble, task: Any) -> None:
    uuid = store(core, state="1,2,3")
    view = api.checkpoints[uuid]
    assert view["steps_completed"] == 10
    assert set(view["files"]) == {"state", "metadata.json"}
    assert json.loads((task.checkpoints / uuid / "metadata.json").read_text()) == STORE
    with core.checkpoint.restore_path(uuid) as path:
        assert (path / "state").read_text() == "1,2,3"
    assert core.checkpoint.get_metadata(uuid) == STORE


def test_a_checkpoints_id_says_which_trial_stored_it(core: Any, task: Any, tmp_path: Path) -> None:
    """Who lists the storage before the commit could else commit it first, as another trial's."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "state").write_text("1")
    for uuid in (store(core, state="1"), core.checkpoint.upload(tmp_path / "source", dict(STORE))):
        assert UUID(uuid).version == 8
        assert made_for(uuid, core.info.trial.trial_id)
        assert not made_for(uuid, core.info.trial.trial_id + 1)


def test_upload_and_download(core: Any, api: MasterDouble, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a" / "b").write_text("1")
    (source / "log").write_text("2")
    uuid = core.checkpoint.upload(source, dict(STORE), selector=lambda name: not name.startswith("log"))
    assert set(api.checkpoints[uuid]["files"]) == {"a/b", "metadata.json"}
    core.checkpoint.download(uuid, tmp_path / "target", selector=lambda name: name == "a/b")
    assert [p.relative_to(tmp_path / "target").as_posix() for p in (tmp_path / "target").rglob("*")] == ["a", "a/b"]
    assert sorted(p.name for p in source.iterdir()) == ["a", "log"]  # nothing was written into it


def test_metadata_must_have_steps_completed(core: Any, api: MasterDouble, task: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="steps_completed"), core.checkpoint.store_path():
        pass
    with pytest.raises(ValueError, match="steps_completed"):
        core.checkpoint.upload(tmp_path, {"epoch": 1})
    assert not api.checkpoints
    assert names_in(task.checkpoints) == []


def test_an_exception_in_the_block_stores_nothing(core: Any, api: MasterDouble, task: Any) -> None:
    def fail() -> None:
        with core.checkpoint.store_path(dict(STORE)) as (path, _):
            (path / "state").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not api.checkpoints
    assert names_in(task.checkpoints) == []


def test_delete(core: Any, api: MasterDouble, task: Any) -> None:
    uuid = store(core, state="1")
    core.checkpoint.delete(uuid)
    core.checkpoint.delete(uuid)
    assert not api.checkpoints
    assert names_in(task.checkpoints) == []
    with pytest.raises(CheckpointError, match="never committed"):
        core.checkpoint.get_metadata(uuid)


def test_deleting_what_is_another_trials_never_costs_it_whatever_the_next_attempt_hears(
    core: Any, api: MasterDouble, task: Any
) -> None:
    storage = DirectoryStorage(task.checkpoints)
    (storage.stage("foreign") / "state").write_text("1")
    manifest = storage.publish("foreign", STORE)
    api.faults.append(TrialApiFault("task/checkpoints", 403))
    with pytest.raises(Forbidden):
        core.checkpoint.delete("foreign")
    with pytest.raises(Forbidden, match="left alone"):
        core.checkpoint.delete("foreign")  # the master says 404
    assert names_in(task.checkpoints) == ["foreign"], "it is not marked"
    TrialLeftovers(storage, core.info.cluster_id, 7, core.info.run + 1).begin("new")
    with storage.restore_path("foreign", manifest):
        pass


def test_files_that_no_fsync_could_write_are_not_published_by_trying_again(
    core: Any, api: MasterDouble, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped what it could not write; the caller of `store_path` alone can write it anew."""
    plain, failed = storage_files.sync_file, []

    def sync_file(path: Path) -> None:
        if not failed and path.name == "state":
            failed.append(path)
            os.truncate(path, 1)
            raise OSError(errno.EDQUOT, "Disk quota exceeded", str(path))
        plain(path)

    monkeypatch.setattr(storage_files, "sync_file", sync_file)
    with pytest.raises(StorageError, match="quota"):
        store(core, state="1,2,3")
    assert not api.checkpoints
    assert names_in(task.checkpoints) == []
    uuid = store(core, state="1,2,3")
    assert (task.checkpoints / uuid / "state").read_text() == "1,2,3"


@pytest.mark.parametrize("fault", [503, 500, 401, 0])
def test_the_commit_is_repeated_through_an_outage(core: Any, api: MasterDouble, fault: int) -> None:
    api.faults += [TrialApiFault("task/checkpoints", fault)] * 2
    uuid = store(core, state="1")
    assert api.calls.count("POST task/checkpoints") == 3
    assert list(api.checkpoints) == [uuid]


def test_a_newer_attempt_ends_this_one(core: Any, api: MasterDouble) -> None:
    api.faults.append(TrialApiFault("task/checkpoints", 409, "stale_attempt"))
    with pytest.raises(StaleAttempt):
        store(core, state="1")
    assert not api.checkpoints


def test_an_uncommitted_checkpoint_cannot_be_restored(core: Any, api: MasterDouble, task: Any) -> None:
    uuid = store(core, state="1")
    del api.checkpoints[uuid]  # as if this process had died before the master's commit
    assert (task.checkpoints / uuid / "manifest.json").exists()
    with pytest.raises(CheckpointError, match="never committed"), core.checkpoint.restore_path(uuid):
        pass


def test_a_damaged_file_is_named(core: Any, task: Any) -> None:
    uuid = store(core, shard0="a" * 100, shard1="b" * 100)
    (task.checkpoints / uuid / "shard1").write_text("b" * 99 + "c")
    with pytest.raises(CheckpointError, match=f"shard1 of checkpoint {uuid} is altered"):
        core.checkpoint.restore_path(uuid).__enter__()


def test_a_manifest_that_was_replaced_is_refused(core: Any, task: Any) -> None:
    """Damage that is hidden by a matching manifest does not match the master's digest."""
    uuid, other = store(core, state="1"), store(core, state="2")
    text = (task.checkpoints / other / "manifest.json").read_text().replace(other, uuid)
    (task.checkpoints / uuid / "manifest.json").write_text(text)
    (task.checkpoints / uuid / "state").write_text("2")
    with pytest.raises(CheckpointError, match="not the one that was committed"):
        core.checkpoint.restore_path(uuid).__enter__()


KILL = """
import os, pathlib, signal
import detlab as det
from detlab.storage import files, posix
from detlab.core import session as _session
point = os.environ["POINT"]
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
def before(owner, name, when=lambda *_: True):
    real = getattr(owner, name)
    setattr(owner, name, lambda *a, **k: die() if when(*a) else real(*a, **k))
with det.core.init() as core:
    if point == "digest": before(files, "describe")
    if point == "metadata": before(posix, "write_atomic", lambda path, data: path.name == "metadata.json")
    if point == "manifest": before(posix, "write_atomic", lambda path, data: path.name == "manifest.json")
    if point == "half a manifest": before(pathlib.Path, "replace", lambda path, to: to.name == "manifest.json")
    if point == "rename": before(pathlib.Path, "rename")
    if point == "commit": before(_session.TaskSession, "call", lambda session, method, *_: method == "POST")
    with core.checkpoint.store_path({"steps_completed": 20}) as (path, uuid):
        (path / "state").write_text("first")
        if point == "block": die()
        (path / "more").write_text("second")
print("stored", uuid)
"""

POINTS = ["block", "metadata", "digest", "manifest", "half a manifest", "rename", "commit"]


@pytest.mark.parametrize("point", POINTS)
def test_a_checkpoint_torn_at_any_point_is_invisible(task: Any, api: MasterDouble, point: str) -> None:
    """I5: a committed checkpoint is complete or invisible."""
    status, output = task.run(KILL, POINT=point)
    assert status == -signal.SIGKILL, output
    assert not api.checkpoints
    published = [path.name for path in task.checkpoints.iterdir() if not path.name.startswith(".")]
    if point != "commit":
        assert published == []
    for uuid in published:  # complete, but the master does not know it
        code = f"import detlab as det\nwith det.core.init() as c:\n    with c.checkpoint.restore_path({uuid!r}): pass"
        status, output = task.run(code)
        assert status == 1
        assert "never committed" in output
    status, output = task.run(KILL, POINT="nowhere")
    assert status == 0, output
    assert list(api.checkpoints) == [output.split()[-1]]


def test_metrics_are_on_disk_before_the_checkpoint_counts(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that survives a crash of the node must not be ahead of the metrics before it."""
    order: list[str] = []
    monkeypatch.setattr(core.checkpoint._spool, "sync", lambda: order.append("sync"))
    monkeypatch.setattr(core.checkpoint._session, "call", lambda method, path, **_: order.append(f"{method} {path}"))
    store(core, state="1")
    assert order == ["sync", "POST task/checkpoints"]


def test_I4_a_checkpoint_is_committed_only_after_the_reports_before_it(
    core: Any, api: MasterDouble, task: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt goes on behind them; those that still waited in the spool were lost with a lost node."""
    monkeypatch.setattr(_session, "ASK_EVERY", 0.15)
    mark = task.root / "spool" / "metrics.acked"
    mark.write_text("0\n")
    for step in (9, 10):
        core.train.report_training_metrics(step, {"loss": 1.0})
    seen: list[tuple[str, int]] = []

    def deliver() -> None:
        for number in (1, 2):
            time.sleep(0.2)
            until(lambda: core.checkpoint._held_up, "it does not say that it waits", 20, 0.001)
            seen.append((mark.read_text(), len(api.checkpoints)))
            write_atomic(mark, b"%d\n" % number)

    launcher = threading.Thread(target=deliver)
    launcher.start()
    uuid = store(core, state="1")
    launcher.join()
    assert seen == [("0\n", 0), ("1\n", 0)]
    assert list(api.checkpoints) == [uuid]
    assert not core.checkpoint._held_up
    assert [text for text in caplog.messages if "waiting until" in text] == [
        "waiting until the master has the reports before the checkpoint at step 10: is the master away?"
    ]
    began = time.monotonic()
    store(core, state="2")  # all is delivered: nothing to wait for
    assert time.monotonic() - began < 5


def test_a_commit_that_waits_for_its_reports_ends_when_a_newer_attempt_runs(
    core: Any, api: MasterDouble, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher may stand still, and cannot tell it so."""
    monkeypatch.setattr(_session, "ASK_EVERY", 0.1)
    (task.root / "spool" / "metrics.acked").write_text("0\n")
    core.train.report_training_metrics(10, {"loss": 1.0})
    # The watcher of preemption asks the same, and may be told first.
    api.faults += [TrialApiFault("task/preempt", 503), *[TrialApiFault("task/preempt", 409, "stale_attempt")] * 9]
    with pytest.raises(StaleAttempt):
        store(core, state="1")
    assert not api.checkpoints


def test_a_commit_that_waits_for_its_reports_ends_with_its_session(core: Any, api: MasterDouble, task: Any) -> None:
    (task.root / "spool" / "metrics.acked").write_text("0\n")
    core.train.report_training_metrics(10, {"loss": 1.0})
    closing = threading.Timer(0.2, core.checkpoint._session.close)
    closing.start()
    with pytest.raises(ClusterUnreachable, match="reports before the checkpoint at step 10"):
        store(core, state="1")
    assert not api.checkpoints


def test_off_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_TASK_DIR", raising=False)
    with det.core.init(checkpoint_storage=str(tmp_path / "here")) as core:
        uuid = store(core, state="1")
        with core.checkpoint.restore_path(uuid) as path:
            assert (path / "state").read_text() == "1"
        assert core.checkpoint.get_metadata(uuid) == STORE
        core.checkpoint.delete(uuid)
        with pytest.raises(CheckpointError):
            core.checkpoint.get_metadata(uuid)


def test_checkpoints_that_are_reported_as_used_are_noted_in_those_that_follow(in_task: Any, api: MasterDouble) -> None:
    version = SimpleNamespace(checkpoint_uuid="33333333-3333-4333-8333-333333333333")
    uuid = "22222222-2222-4222-8222-222222222222"
    with det.core.init() as core:
        with core.checkpoint.store_path({"steps_completed": 1}) as (path, before):
            (path / "w").write_bytes(b"w")
        core.experimental.report_task_using_checkpoint(uuid)
        core.experimental.report_task_using_model_version(version)
        core.experimental.report_task_using_checkpoint(SimpleNamespace(uuid=uuid))
        with core.checkpoint.store_path({"steps_completed": 2, "a": 1}) as (path, after):
            (path / "w").write_bytes(b"w")
        assert core.checkpoint.get_metadata(before) == {"steps_completed": 1}
        wanted = {"steps_completed": 2, "a": 1, "uses_checkpoints": [uuid, version.checkpoint_uuid]}
        assert core.checkpoint.get_metadata(after) == wanted
        for wrong in (None, 7, "", object()):
            with pytest.raises(ValueError, match="uuid"):
                core.experimental.report_task_using_checkpoint(wrong)
        with pytest.raises(ValueError, match="give a ModelVersion"):
            core.experimental.report_task_using_model_version("digits@1")
