"""Records on disk, and in memory while the disk has no room."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from detlab.core.metrics.spool import SpoolError
from detlab.track.records import MOST_HELD, LoggedRecords, has_ended, newest


class Disk:
    """The disk below a spool, which may have no room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self._write = os.write
        monkeypatch.setattr("detlab.core.metrics.spool.os.write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(fd, data)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_full_disk_holds_up_nothing_and_what_was_logged_meanwhile_comes_when_there_is_room(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    wall, pauses = Clock(), Clock()
    records = LoggedRecords(tmp_path, clock=wall, pause_clock=pauses)
    records.append("metrics", {"step": 0, "values": {"a": 0.0}})
    disk.full = True
    for step in range(1, 6):
        wall.now += 1
        records.append("metrics", {"step": step, "values": {"a": 1.0}})
    assert [one["step"] for one in lines(tmp_path)] == [0]
    disk.full = False
    records.append("metrics", {"step": 6, "values": {"a": 1.0}})  # the disk is not tried again for a while
    pauses.now += 10
    records.append("metrics", {"step": 7, "values": {"a": 1.0}})
    assert [(one["seq"], one["step"]) for one in lines(tmp_path)] == [(n + 1, n) for n in range(8)]
    assert [one["time"] for one in lines(tmp_path)][:6] == [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]
    assert records.lost == 0
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 1


def test_a_disk_that_stays_full_costs_records_and_no_memory_without_end(tmp_path: Path, disk: Disk) -> None:
    records = LoggedRecords(tmp_path)
    records.append("metrics", {"step": 0, "values": {}})
    disk.full = True
    for step in range(MOST_HELD + 7):
        records.append("metrics", {"step": step, "values": {}})
    assert records.lost == 7
    assert not records.flush()


def test_who_asks_for_it_is_told_by_an_error(tmp_path: Path, disk: Disk) -> None:
    records = LoggedRecords(tmp_path, strict=True)
    disk.full = True
    with pytest.raises(SpoolError, match="No space left"):
        records.append("metrics", {"step": 0, "values": {}})


def test_ten_megabytes_of_parameters_are_told_and_end_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = LoggedRecords(tmp_path)
    records.append("config", {"values": {"huge": "x" * 10_000_000}})
    records.append("metrics", {"step": 0, "values": {"a": 1.0}})
    assert [one["kind"] for one in lines(tmp_path)] == ["metrics"]
    assert "3900000 bytes" in caplog.text
    assert records.lost == 1


def test_a_process_killed_in_the_middle_of_a_line_costs_that_line(tmp_path: Path) -> None:
    LoggedRecords(tmp_path).append("metrics", {"step": 0, "values": {"a": 1.0}})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind":"metrics","seq":2,"ti')
    assert [one["seq"] for one in newest(tmp_path)] == [1]
    LoggedRecords(tmp_path).append("exit", {"status": "FAILED", "reason": "killed"})
    assert [(one["seq"], one["kind"]) for one in lines(tmp_path)] == [(1, "metrics"), (2, "exit")]
    assert has_ended(tmp_path)


def test_a_folder_without_records_has_not_ended(tmp_path: Path) -> None:
    assert not has_ended(tmp_path / "nothing")
