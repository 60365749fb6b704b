"""A trainer whose checkpoint storage is full: the checkpoint waits, is stored whole, and nobody calls it a hang."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_one_weight import Recorder, newest, train

from detlab.core import DummyCheckpointContext, DummyDistributedContext
from detlab.core.distributed.heartbeat import LoopState
from detlab.pytorch import Batch
from detlab.pytorch.checkpoint.files import read_state
from detlab.pytorch.checkpoint.writer import CheckpointWriter
from detlab.storage import DirectoryStorage
from detlab.storage import files as storage_files
from testbed.small_disks import CannotRun, Disk, small_disk
from testbed.stores import names_in
from testbed.waiting import until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        with small_disk(tmp_path / "store", 8, 0o700) as found:
            yield found
    except CannotRun as error:
        pytest.skip(str(error))


def tree_of(value: float) -> dict[str, Any]:
    return {"models_state_dict": [{"a": torch.full((200_000,), value)}], "callbacks": {"list": [value]}}


def make_writer(disk: Disk, state: LoopState) -> CheckpointWriter:
    context = DummyCheckpointContext(DummyDistributedContext(), DirectoryStorage(disk.folder))
    return CheckpointWriter(context, alive=state.beat)


def test_a_checkpoint_waits_for_room_and_is_then_stored_whole(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    state = LoopState()
    with make_writer(disk, state) as writer:
        disk.fill()
        tree = tree_of(1.0)
        writer.submit(tree, {"steps_completed": 7})
        tree["models_state_dict"][0]["a"].zero_()  # training goes on
        assert not writer.wait(2.5)
        assert writer.poll() == []
        assert state.part > 0, "to the watchdog it is no hang"
        (said,) = (record.getMessage() for record in caplog.records if "disk full" in record.getMessage())
        assert "the checkpoint at step 7 waits" in said
        assert str(disk.folder) in said
        disk.free()
        assert writer.wait(30)
        (finished,) = writer.poll()
    state = read_state(disk.folder / finished.uuid, allow_pickle=False)
    assert state["models_state_dict"][0]["a"].unique().tolist() == [1.0]
    left = [name for name in names_in(disk.folder) if not (disk.folder / name).is_file()]
    assert left == [finished.uuid], "of the attempts before"


def test_a_trainer_that_ends_does_not_wait_for_room(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    writer = make_writer(disk, LoopState())
    disk.fill()
    writer.submit(tree_of(1.0), {"steps_completed": 7})
    until(lambda: "disk full" in caplog.text, seconds=20)
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 10
    assert "the checkpoint at step 7 was dropped" in caplog.text
    assert [name for name in names_in(disk.folder) if not (disk.folder / name).is_file()] == []


def test_files_written_anew_get_what_hooks_add_and_the_last_checkpoint_is_committed(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, failed = storage_files.sync_file, []

    def sync_file(path: Path) -> None:
        if not failed and path.name == "by_callback.txt":
            failed.append(path)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        plain(path)

    monkeypatch.setattr(storage_files, "sync_file", sync_file)
    recorder = Recorder()
    train(storage, fit={"max_length": Batch(4)}, callbacks={"recorder": recorder})
    assert failed
    said = [name for name, *_ in recorder.calls if name in {"write_end", "upload_end"}]
    assert said == ["write_end", "write_end", "upload_end"]
    (uuid,) = names_in(Path(storage))
    assert uuid == newest(storage)
    assert (Path(storage) / uuid / "by_callback.txt").read_text() == "hello"
