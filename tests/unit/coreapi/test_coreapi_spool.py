"""The metrics spool in one process: numbering, repair, refusals."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from detlab.core import RecordsRefused, SpoolError
from detlab.core.metrics.spool import MAX_RECORD, Spool
from detlab.schemas.wire import RecordBatch


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", clock=lambda: 123.5)


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "spool" / "metrics.jsonl").read_text().splitlines()]


def test_records_are_numbered_from_one_and_are_what_the_master_takes(spool: Spool, tmp_path: Path) -> None:
    assert spool.append("metrics", {"group": "training", "steps_completed": 1, "metrics": {"x": 1.0}}) == 1
    assert spool.append("progress", {"progress": 0.5}) == 2
    assert spool.append("status", {"status": "busy"}) == 3
    assert spool.append("early_exit", {"reason": "INVALID_HP"}) == 4
    batch = RecordBatch.model_validate({"stream": "metrics", "records": lines(tmp_path)})
    assert [record.seq for record in batch.records] == [1, 2, 3, 4]
    assert {record.time for record in batch.records} == {123.5}


def test_numbering_goes_on_in_a_new_process(spool: Spool, tmp_path: Path) -> None:
    spool.append("status", {"status": "a"})
    assert Spool(tmp_path / "spool").append("status", {"status": "b"}) == 2


def test_non_finite_numbers_are_strict_json(spool: Spool, tmp_path: Path) -> None:
    spool.append("metrics", {"group": "g", "steps_completed": 0, "metrics": {"a": float("nan"), "b": [float("inf")]}})
    assert lines(tmp_path)[0]["metrics"] == {"a": "NaN", "b": ["Infinity"]}


@pytest.mark.parametrize("torn", [b'{"kind":"sta', b"\x00\xff", b'{"kind":"status","seq":2,"time":1.0,"status":"x"}'])
def test_a_torn_last_line_is_cut_and_its_number_given_again(spool: Spool, tmp_path: Path, torn: bytes) -> None:
    spool.append("status", {"status": "a"})
    with (tmp_path / "spool" / "metrics.jsonl").open("ab") as stream:
        stream.write(torn)
    assert spool.append("status", {"status": "b"}) == 2
    assert [line["status"] for line in lines(tmp_path)] == ["a", "b"]


def test_a_torn_first_line_is_cut(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "spool" / "metrics.jsonl").write_bytes(b'{"kind":')
    assert spool.append("status", {"status": "a"}) == 1
    assert len(lines(tmp_path)) == 1


def test_numbering_goes_on_after_the_launcher_emptied_the_file(spool: Spool, tmp_path: Path) -> None:
    for text in "abc":
        spool.append("status", {"status": text})
    os.truncate(tmp_path / "spool" / "metrics.jsonl", 0)
    assert spool.append("status", {"status": "d"}) == 4


@pytest.mark.parametrize("content", [b"", b"garbage", b"1\n"])
def test_the_number_file_may_lag_or_be_damaged(spool: Spool, tmp_path: Path, content: bytes) -> None:
    for text in "abc":
        spool.append("status", {"status": text})
    (tmp_path / "spool" / "metrics.seq").write_bytes(content)
    assert spool.append("status", {"status": "d"}) == 4


def test_long_records(spool: Spool, tmp_path: Path) -> None:
    """The last line is found though it is longer than one block read from the end."""
    for number in (1, 2, 3):
        assert spool.append("status", {"status": "x" * 200_000}) == number
    with pytest.raises(ValueError, match=str(MAX_RECORD)):
        spool.append("status", {"status": "x" * (MAX_RECORD + 1)})
    assert spool.append("status", {"status": "y"}) == 4


def test_a_report_waits_for_room_on_a_full_disk_and_leaves_nothing_behind_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[list[object]] = []

    def wait(seconds: float) -> None:
        waits.append([line["status"] for line in lines(tmp_path)])
        if len(waits) == 3:
            monkeypatch.undo()

    spool = Spool(tmp_path / "spool", sleep=wait)
    spool.append("status", {"status": "a"})
    real = os.write
    monkeypatch.setattr("detlab.core.metrics.spool.os.write", lambda fd, data: real(fd, data[:7]))
    assert spool.append("status", {"status": "b"}) == 2
    assert waits == [["a"]] * 3
    assert [line["status"] for line in lines(tmp_path)] == ["a", "b"]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, "once at the beginning, once at the end"
    assert "7 of" in said[0]
    assert str(tmp_path) in said[0]


@pytest.mark.soak
def test_a_disk_that_stays_full_for_a_day_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    spool = Spool(tmp_path / "spool", sleep=slept.append)
    real = os.write
    monkeypatch.setattr("detlab.core.metrics.spool.os.write", lambda fd, data: real(fd, data[:7]))
    with pytest.raises(SpoolError, match="7 of"):
        spool.append("status", {"status": "b"})
    assert sum(slept) == 24 * 3600
    assert lines(tmp_path) == []


def test_a_failing_disk_is_an_error_at_once(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fd: int, data: bytes) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("detlab.core.metrics.spool.os.write", fails)
    with pytest.raises(SpoolError, match="Input/output"):
        spool.append("status", {"status": "b"})


def test_a_report_is_there_once_although_its_number_had_no_room(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("detlab.core.metrics.spool.os.pwrite", full)
    assert [spool.append("status", {"status": text}) for text in "ab"] == [1, 2]
    monkeypatch.undo()
    assert spool.append("status", {"status": "c"}) == 3
    assert [line["seq"] for line in lines(tmp_path)] == [1, 2, 3]


def test_refusals_are_raised_once(spool: Spool, tmp_path: Path) -> None:
    refused = tmp_path / "spool" / "refused.jsonl"
    spool.raise_refusals()
    refused.write_text('{"seq": 3, "code": "bad.group", "message": "group is too long"}\n{"seq": 4, "co')
    with pytest.raises(RecordsRefused, match="report 3: group is too long") as caught:
        spool.raise_refusals()
    assert [record.seq for record in caught.value.refused] == [3]
    spool.raise_refusals()
    refused.write_text(refused.read_text() + 'de": "too.large", "message": "m"}\n')
    with pytest.raises(RecordsRefused, match="report 4"):
        spool.raise_refusals()


def test_sync_without_a_file_is_harmless(spool: Spool) -> None:
    spool.sync()
    spool.append("status", {"status": "a"})
    spool.sync()


def test_reports_go_on_in_a_new_file_when_theirs_is_removed(
    spool: Spool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text in "abc":
        spool.append("status", {"status": text})
    (tmp_path / "spool" / "metrics.jsonl").unlink()
    assert spool.append("status", {"status": "d"}) == 4
    assert [line["status"] for line in lines(tmp_path)] == ["d"]
    assert "metrics.jsonl was removed" in caplog.text
    assert spool.append("status", {"status": "e"}) == 5
    assert len(caplog.records) == 1


def test_reports_go_to_the_file_that_was_put_in_place_of_theirs(spool: Spool, tmp_path: Path) -> None:
    spool.append("status", {"status": "a"})
    copy = tmp_path / "copy"
    copy.write_bytes((tmp_path / "spool" / "metrics.jsonl").read_bytes())
    copy.replace(tmp_path / "spool" / "metrics.jsonl")
    assert spool.append("status", {"status": "b"}) == 2
    assert [line["status"] for line in lines(tmp_path)] == ["a", "b"]


def test_no_number_is_given_twice_though_the_files_forget_them(spool: Spool, tmp_path: Path) -> None:
    for text in "abc":
        spool.append("status", {"status": text})
    for name in ("metrics.jsonl", "metrics.seq"):
        os.truncate(tmp_path / "spool" / name, 0)
    assert spool.append("status", {"status": "d"}) == 4
    for name in ("metrics.jsonl", "metrics.seq", "metrics.lock"):
        (tmp_path / "spool" / name).unlink()
    assert spool.append("status", {"status": "e"}) == 5


def test_a_removed_directory_is_an_error_not_silence(spool: Spool, tmp_path: Path) -> None:
    spool.append("status", {"status": "a"})
    shutil.rmtree(tmp_path / "spool")
    for _ in range(2):
        with pytest.raises(SpoolError, match="No such file"):
            spool.append("status", {"status": "b"})
    (tmp_path / "spool").mkdir()
    assert spool.append("status", {"status": "c"}) >= 1
    assert [line["status"] for line in lines(tmp_path)] == ["c"]
