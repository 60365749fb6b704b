"""Spool files: torn lines, truncation, order."""

import json

import pytest

from detlab.launch.delivery.spool import Appender, SpoolReader, open_regular, read_mark


@pytest.fixture
def reader():
    opened = []

    def make(path, after=0):
        opened.append(SpoolReader(lambda: open_regular(path), after))
        return opened[-1]

    yield make
    for source in opened:
        source.close()


def record(seq, **more):
    return {"seq": seq, **more}


def seqs(entries):
    return [entry.seq for entry in entries]


def test_what_is_appended_is_read_in_order(tmp_path, reader):
    path = tmp_path / "s.jsonl"
    appender = Appender(path)
    source = reader(path)
    appender.append([record(1), record(2)])
    assert seqs(source.read(10, 10**6)) == [1, 2]
    assert source.read(10, 10**6) == []
    appender.append([record(3)])
    entries = source.read(10, 10**6)
    assert seqs(entries) == [3]
    assert entries[0].end == path.stat().st_size == appender.size


def test_a_missing_file_is_an_empty_one_until_it_appears(tmp_path, reader):
    source = reader(tmp_path / "s.jsonl")
    assert source.read(10, 100) == []
    Appender(tmp_path / "s.jsonl").append([record(1)])
    assert seqs(source.read(10, 100)) == [1]


def test_an_unfinished_line_waits_for_its_end(tmp_path, reader):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"seq": 1}\n{"se')
    source = reader(path)
    assert seqs(source.read(10, 10**6)) == [1]
    assert source.read(10, 10**6) == []
    with path.open("ab") as file:
        file.write(b'q": 2}\n')
    assert seqs(source.read(10, 10**6)) == [2]


def test_a_torn_line_that_is_cut_off_and_written_anew_is_read_anew(tmp_path, reader):
    """Regression: a buffered reader kept the torn bytes and glued them to the new line."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"seq": 1}\n{"seq": 77, "torn')
    source = reader(path)
    assert seqs(source.read(10, 10**6)) == [1]
    with path.open("r+b") as file:
        file.truncate(11)
        file.seek(11)
        file.write(b'{"seq": 2, "x": 1}\n')
    assert [json.loads(e.line) for e in source.read(10, 10**6)] == [{"seq": 2, "x": 1}]


def test_damaged_lines_are_skipped_and_counted(tmp_path, reader):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"seq": 1}\n{"se{"seq": 2}\n[]\n{"seq": "3"}\n{"seq": 4}\n')
    source = reader(path)
    assert seqs(source.read(10, 10**6)) == [1, 4]
    assert source.skipped == 2


def test_committed_and_repeated_records_are_not_read_again(tmp_path, reader):
    path = tmp_path / "s.jsonl"
    Appender(path).append([record(n) for n in (1, 2, 3, 3, 2, 4)])
    assert seqs(reader(path, after=2).read(10, 10**6)) == [3, 4]


def test_limits_on_records_and_bytes(tmp_path, reader):
    path = tmp_path / "s.jsonl"
    Appender(path).append([record(n, pad="x" * 100) for n in range(1, 11)])
    source = reader(path)
    assert seqs(source.read(3, 10**6)) == [1, 2, 3]
    assert seqs(source.read(10, 250)) == [4, 5]
    assert seqs(source.read(10, 1)) == [6], "one record at least, however long"
    assert seqs(source.read(10, 10**6)) == [7, 8, 9, 10]


def test_a_line_longer_than_a_block_is_read(tmp_path, reader):
    path = tmp_path / "s.jsonl"
    Appender(path).append([record(1, pad="x" * 2_000_000), record(2)])
    source = reader(path)
    assert seqs(source.read(1, 10**7)) == [1]
    assert seqs(source.read(1, 10**7)) == [2]


def test_an_appender_cuts_off_the_torn_line_of_its_predecessor(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"seq": 1}\n{"seq": 2, "lo')
    appender = Appender(path)
    appender.append([record(2)])
    assert path.read_bytes() == b'{"seq": 1}\n{"seq": 2}\n'


def test_an_append_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch, reader):
    appender = Appender(tmp_path / "s.jsonl")
    appender.append([record(1)])
    before = (tmp_path / "s.jsonl").read_bytes()
    real = __import__("os").pwrite
    calls = []

    def half(descriptor, data, offset):
        if calls:
            raise OSError(28, "No space left on device")
        calls.append(real(descriptor, bytes(data)[:4], offset))
        return 4

    monkeypatch.setattr("detlab.launch.delivery.spool.os.pwrite", half)
    with pytest.raises(OSError, match="space"):
        appender.append([record(2)])
    monkeypatch.undo()
    assert (tmp_path / "s.jsonl").read_bytes() == before
    appender.append([record(2)])
    assert seqs(reader(tmp_path / "s.jsonl").read(10, 1000)) == [1, 2]


def test_truncation_starts_the_file_again(tmp_path, reader):
    path = tmp_path / "s.jsonl"
    appender = Appender(path)
    source = reader(path)
    appender.append([record(1), record(2)])
    source.read(10, 1000)
    appender.truncate()
    source.restart()
    appender.append([record(3)])
    assert seqs(source.read(10, 1000)) == [3]


def test_marks(tmp_path):
    assert read_mark(tmp_path / "none") == 0
    (tmp_path / "m").write_text("17\n")
    assert read_mark(tmp_path / "m") == 17
    (tmp_path / "m").write_text("")
    assert read_mark(tmp_path / "m") == 0
