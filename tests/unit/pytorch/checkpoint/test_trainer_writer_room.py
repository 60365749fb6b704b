"""The writer of checkpoints when the disk fills while a checkpoint is published."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.core import DummyDistributedContext
from detlab.core.checkpoint.context import CheckpointContext
from detlab.pytorch.checkpoint.files import read_state
from detlab.pytorch.checkpoint.writer import CheckpointWriter
from detlab.storage import DirectoryStorage, posix
from detlab.storage import files as storage_files
from testbed.stores import names_in
from testbed.waiting import until


class Session:
    """Of a master that takes every checkpoint."""

    held_up = False

    def call(self, *_: Any, **__: Any) -> None:
        return None


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path)


@pytest.fixture
def writer(store: DirectoryStorage) -> CheckpointWriter:
    return CheckpointWriter(CheckpointContext(DummyDistributedContext(), store, Session()))  # type: ignore[arg-type]


TREE = {"models_state_dict": [{"a": torch.ones(50_000)}], "callbacks": {}}


@pytest.mark.slow
def test_files_that_an_fsync_failed_for_are_written_anew(
    store: DirectoryStorage, writer: CheckpointWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, failed = storage_files.sync_file, []

    def sync_file(path: Path) -> None:
        if not failed and path.name == "model_0.safetensors":
            failed.append(path)
            os.truncate(path, 4096)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        plain(path)

    monkeypatch.setattr(storage_files, "sync_file", sync_file)
    with writer:
        writer.submit(TREE, {"steps_completed": 7})
        assert writer.wait(60)
        (finished,) = writer.poll()
    assert failed
    assert names_in(store.root) == [finished.uuid]
    state = read_state(store.root / finished.uuid, allow_pickle=False)
    assert state["models_state_dict"][0]["a"].sum() == 50_000


def test_a_trainer_that_ends_does_not_wait_for_room_for_a_manifest(
    store: DirectoryStorage,
    writer: CheckpointWriter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def write(target: Path, data: bytes, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(posix, "write_atomic", write)
    writer.submit(TREE, {"steps_completed": 7})
    until(lambda: "disk full" in caplog.text, seconds=20)
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 10
    assert "the checkpoint at step 7 was dropped" in caplog.text
    assert names_in(store.root) == []
