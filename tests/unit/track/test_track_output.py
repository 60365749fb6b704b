"""What a script prints, line by line."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from detlab.track.output import MOST_CHARS, OutputCopy, OutputLines


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        (["a\nb\n"], ["a", "b"]),
        (["a", "b", "\n", "c"], ["ab", "c"]),
        (["\n\n"], ["", ""]),
        (["10%\r", "20%\r", "30%\ndone\n"], ["30%", "done"]),
        (["\r10%", "\r20%", "\r30%"], ["30%"]),
        (["a\r\nb\r\n"], ["a", "b"]),
        ([], []),
    ],
)
def test_a_progress_bar_is_one_line(pieces: list[str], lines: list[str]) -> None:
    made = OutputLines()
    assert [line for piece in pieces for line in made.add(piece)] + made.end() == lines


def test_a_line_without_end_is_several_and_takes_no_memory() -> None:
    made = OutputLines()
    found = [line for _ in range(50) for line in made.add("x" * 1000)] + made.end()
    assert "".join(found) == "x" * 50_000
    assert max(map(len, found)) <= MOST_CHARS


def test_output_is_copied_and_appears_where_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, str]] = []
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    handler = logging.StreamHandler(sys.stderr)  # has kept the stream from before
    copy = OutputCopy(lambda stream, text: taken.append((stream, text)))
    copy.start()
    sys.stdout.write("one\ntw")
    handler.emit(logging.makeLogRecord({"msg": "logged"}))
    sys.stdout.write("o")
    copy.stop()
    sys.stdout.write("three\n")
    for stream in (out, err):
        stream.flush()
    assert taken == [("stdout", "one"), ("stderr", "logged"), ("stdout", "two")]
    assert out.buffer.getvalue() == b"one\ntwothree\n"  # type: ignore[attr-defined]


def test_what_copying_prints_is_not_copied_and_an_error_of_it_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    taken: list[str] = []

    def take(stream: str, text: str) -> None:
        sys.stdout.write("again\n")
        taken.append(text)
        if text == "bad":
            raise OSError("disk")

    copy = OutputCopy(take)
    copy.start()
    sys.stdout.write("one\n")
    sys.stdout.write("bad\n")
    sys.stdout.write("after\n")
    copy.stop()
    assert taken == ["one", "bad"]
