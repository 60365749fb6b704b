"""The launcher's marks: checkpoints wait for that of metrics, so it is there from the start and is never forgotten."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from detlab.launch import task as launcher
from detlab.launch.delivery.output import LogSpool
from detlab.launch.delivery.shipping import StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular
from detlab.launch.taskdir import TaskDir


@pytest.fixture
def task(tmp_path: Path) -> TaskDir:
    (tmp_path / "spool").mkdir()
    return TaskDir(tmp_path)


@pytest.fixture
def marks(task: TaskDir) -> launcher.DirMarks:
    return launcher.DirMarks(task, LogSpool(task.stream("logs")))


def commit(marks: launcher.DirMarks, task: TaskDir, mark: int) -> None:
    reader = SpoolReader(lambda: open_regular(task.stream("metrics")))
    marks.committed(StreamShipper("metrics", acked=mark), reader)


def test_there_is_a_mark_of_metrics_from_the_start_and_one_that_is_there_stays(task: TaskDir) -> None:
    for left in (0, 7):
        marks = launcher.DirMarks(task, LogSpool(task.stream("logs")))
        assert task.acked("metrics").read_text() == f"{left}\n"
        commit(marks, task, 7)
    assert not task.acked("logs").exists()


def test_a_mark_that_a_full_disk_did_not_take_is_written_when_there_is_room(
    task: TaskDir, marks: launcher.DirMarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more may come that would be noted: the trial waits for this very mark."""
    monkeypatch.setattr(launcher, "MARK_AGAIN", 0.02)
    write, full = launcher.write_atomic, [True]

    def refuses(path: Path, data: bytes, **more: Any) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data, **more)

    monkeypatch.setattr(launcher, "write_atomic", refuses)
    for mark in (3, 5):
        commit(marks, task, mark)
    time.sleep(0.1)
    assert task.acked("metrics").read_text() == "0\n"
    full[0] = False
    deadline = time.monotonic() + 10
    while task.acked("metrics").read_text() != "5\n":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.1)
    assert task.acked("metrics").read_text() == "5\n", "what was refused earlier came later"
