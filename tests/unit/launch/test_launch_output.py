"""The output pump: back-pressure instead of loss, recycling of a delivered spool."""

import json
import os
import threading

import pytest

from detlab.launch.delivery.output import LogSpool, OutputPump


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_both_pipes_are_spooled_and_numbered(tmp_path):
    path = tmp_path / "logs.jsonl"
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    pump = OutputPump({"stdout": out_read, "stderr": err_read}, LogSpool(path))
    pump.start()
    os.write(out_write, b"[rank=1] a\nb")
    os.write(err_write, b"e\n")
    os.close(out_write)
    os.close(err_write)
    assert pump.join(5)
    found = records(path)
    assert [r["seq"] for r in found] == [1, 2, 3]
    assert {(r["stdtype"], r["text"], r.get("rank")) for r in found} == {
        ("stdout", "a", 1),
        ("stdout", "b", None),
        ("stderr", "e", None),
    }


def test_a_full_spool_holds_the_writer_back_until_the_master_has_taken_some(tmp_path):
    path = tmp_path / "logs.jsonl"
    spool = LogSpool(path, max_backlog=200)
    written = threading.Event()

    def write():
        for number in range(10):
            spool.write("stdout", [b"%d" % number * 50])
        written.set()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    assert not written.wait(0.2)
    assert spool.holding
    assert path.stat().st_size < 500
    while not written.wait(0.01):
        spool.committed(path.stat().st_size)
    thread.join(5)
    assert [r["seq"] for r in records(path)] == list(range(1, 11))
    assert not spool.holding


def test_a_delivered_spool_is_emptied_and_goes_on_counting(tmp_path):
    path = tmp_path / "logs.jsonl"
    spool = LogSpool(path, recycle=100)
    spool.write("stdout", [b"x" * 200])
    end = path.stat().st_size
    assert not spool.committed(end - 1)
    assert spool.committed(end)
    assert path.stat().st_size == 0
    spool.write("stdout", [b"y"])
    assert [r["seq"] for r in records(path)] == [2]


@pytest.mark.slow
def test_a_full_disk_delays_output_and_loses_none(tmp_path, monkeypatch):
    path = tmp_path / "logs.jsonl"
    spool = LogSpool(path)
    real, failures = os.pwrite, [OSError(28, "No space left on device")]

    def sometimes(*arguments):
        if failures:
            raise failures.pop()
        return real(*arguments)

    monkeypatch.setattr("detlab.launch.delivery.spool.os.pwrite", sometimes)
    spool.write("stdout", [b"line"])
    told, line, again = records(path)
    assert line["text"] == "line"
    assert told["text"].startswith(f"detlab: disk full: {tmp_path}: No space left on device.")
    assert again["text"] == "detlab: disk has space again"
    assert [r["seq"] for r in (told, line, again)] == [1, 2, 3]
    assert (told["stdtype"], line["stdtype"], again["stdtype"]) == ("launcher", "stdout", "launcher")
