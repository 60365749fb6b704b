r"""Bytes to lines: however the stream is cut, every line that ends with \n arrives."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.launch.delivery.lines import LineSplitter, OutputLine, parse_line


def split(*pieces, max_line=16_000, now=0.0):
    splitter = LineSplitter(max_line)
    out = []
    for piece in pieces:
        out += splitter.feed(piece, now)
    return out + list(splitter.flush())


def test_lines_across_pieces():
    assert split(b"a", b"b\nc", b"\n\nd") == [b"ab", b"c", b"", b"d"]


def test_crlf_is_one_newline_even_when_cut_between():
    assert split(b"a\r\nb\r", b"\nc\n") == [b"a", b"b", b"c"]


def test_of_a_progress_bar_one_update_a_second_and_the_last_one_arrive():
    splitter = LineSplitter()
    out = []
    for tick in range(40):
        out += splitter.feed(b"\r%d%%" % tick, now=tick * 0.1)
    out += splitter.feed(b"\r100%\n", now=4.0)
    assert out[-1] == b"100%"
    assert 4 <= len(out) <= 6
    assert out == sorted(out, key=lambda text: int(text.rstrip(b"%")))


def test_progress_that_ends_with_the_return():
    assert split(b"1%\r", b"2%\r", b"done\n") == [b"1%", b"done"]


def test_a_line_that_ends_with_the_return_is_there_at_once():
    """Regression: a progress bar that writes its return last was one update late."""
    splitter = LineSplitter()
    assert list(splitter.feed(b"1%\r", 0.0)) == [b"1%"]
    assert list(splitter.feed(b"2%\r", 0.5)) == []
    assert list(splitter.feed(b"3%\r4%\r", 1.5)) == [b"4%"]
    assert list(splitter.feed(b"\n", 3.0)) == []  # the other half of \r\n
    assert list(splitter.feed(b"\n", 3.0)) == [b""]
    assert list(splitter.feed(b"5%\r", 3.0)) == [b"5%"]
    assert list(splitter.feed(b"\r\nend\n", 3.0)) == [b"", b"end"]
    assert list(splitter.flush()) == []


def test_long_lines_are_cut_between_characters():
    text = "äöü€😀" * 50
    pieces = split(text.encode() + b"\n", max_line=64)
    assert all(len(piece) <= 64 for piece in pieces)
    assert b"".join(pieces).decode() == text
    assert "".join(piece.decode() for piece in pieces) == text


def test_an_endless_line_does_not_wait_for_its_end():
    splitter = LineSplitter(max_line=10)
    assert list(splitter.feed(b"x" * 25, 0.0)) == [b"x" * 10, b"x" * 10]
    assert list(splitter.flush()) == [b"x" * 5]


@given(
    lines=st.lists(
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30), max_size=20
    ),
    cuts=st.lists(st.integers(0, 400), max_size=10),
)
def test_any_cut_gives_the_same_lines(lines, cuts):
    data = "".join(line + "\n" for line in lines).encode()
    at = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[a:b] for a, b in pairwise(at)]
    assert split(*pieces) == [line.encode() for line in lines]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_break_it_and_newlines_are_never_lost(pieces):
    data = b"".join(pieces)
    out = split(*pieces)
    assert len(out) >= data.count(b"\n")
    for line in out:
        parse_line(line).text.encode()


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"plain", OutputLine("plain")),
        (b"[rank=3] loss 0.1", OutputLine("loss 0.1", rank=3)),
        (b"[rank=12]", OutputLine("", rank=12)),
        (b"[rank=x] no", OutputLine("[rank=x] no")),
        (b"say [rank=3] inside", OutputLine("say [rank=3] inside")),
        (b"[rank=0] ERROR: bad", OutputLine("ERROR: bad", rank=0, level="ERROR")),
        (b"2026-01-01 WARN something", OutputLine("2026-01-01 WARN something", level="WARNING")),
        (b"INFO:root:x", OutputLine("INFO:root:x", level="INFO")),
        (b"INFORMATION", OutputLine("INFORMATION")),
        (b"\xff\xfe ok", OutputLine("\ufffd\ufffd ok")),
        (b"nul\0byte", OutputLine("nul\ufffdbyte")),
    ],
)
def test_parse(raw, line):
    assert parse_line(raw) == line
