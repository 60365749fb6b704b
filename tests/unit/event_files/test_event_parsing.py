"""Event files as bytes: records, messages and summaries, good and hostile ones."""

from __future__ import annotations

import contextlib
import json
import math
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.core.event_files import records
from detlab.core.event_files.messages import BadEventMessage, fields, numbers, signed
from detlab.core.event_files.records import RecordReader, checksum
from detlab.core.event_files.summaries import LoggedEvent, read_event
from detlab.media import MediaError, kinds
from detlab.media.signals import write_png
from testbed.event_files import event, field, file_of, first, record, scalar, value_of, varint

PNG = write_png(2, 2, 1, [b"ab", b"cd"])


def reader(data: bytes) -> RecordReader:
    return RecordReader(lambda count, offset: data[offset : offset + count])


def read(data: bytes) -> tuple[list[bytes], RecordReader]:
    found = reader(data)
    return list(found.records(len(data))), found


def said(record_: bytes) -> LoggedEvent:
    return read_event(record_, {})


def test_the_checksum_is_the_masked_crc_32c() -> None:
    crc = 0xE3069283  # of RFC 3720's family: the check value of CRC-32C
    assert checksum(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- records ----------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=200), max_size=6), st.integers(min_value=0, max_value=400))
def test_records_are_read_as_they_were_written_wherever_the_file_ends_now(bodies: list[bytes], cut: int) -> None:
    data = b"".join(map(record, bodies))
    found = reader(data)
    so_far = list(found.records(min(cut, len(data))))
    assert so_far == bodies[: len(so_far)]
    assert so_far + list(found.records(len(data))) == bodies
    assert not found.broken


@given(st.binary(max_size=400))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    found, state = read(data)
    assert state.offset <= len(data)
    for one in found:
        with contextlib.suppress(BadEventMessage, OverflowError):
            said(one)


def test_a_damaged_record_is_passed_over_and_the_next_one_is_read() -> None:
    found, state = read(record(b"one") + record(b"two", damaged=True) + record(b"three"))
    assert (found, state.damaged, state.broken) == ([b"one", b"three"], 1, "")


def test_behind_a_damaged_length_nothing_can_be_found() -> None:
    data = bytearray(record(b"one") + record(b"two") + record(b"three"))
    data[len(record(b"one"))] ^= 1
    found, state = read(bytes(data))
    assert found == [b"one"]
    assert "no readable length" in state.broken


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**41, 2**40 + 1])
def test_a_length_that_is_none_ends_the_file_without_memory(length: int) -> None:
    tracemalloc.start()
    try:
        found, state = read(record(b"one") + record(b"x", length=length))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert found == [b"one"]
    assert state.broken


def test_a_large_record_is_passed_over_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_RECORD", 10)
    asked: list[int] = []
    data = record(b"one") + record(b"y" * 1000) + record(b"three")

    def pread(count: int, offset: int) -> bytes:
        asked.append(count)
        return data[offset : offset + count]

    state = RecordReader(pread)
    assert list(state.records(len(data))) == [b"one", b"three"]
    assert state.too_large == 1
    assert max(asked) < 20


def test_a_hole_is_no_record() -> None:
    assert read(bytes(4096))[1].broken


# --- messages ---------------------------------------------------------------------------------------------


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1), st.binary(max_size=50), st.floats(width=64))
def test_fields_are_read_as_they_were_written(number: int, data: bytes, real: float) -> None:
    found = list(fields(field(1, number) + field(300, data) + field(2, real)))
    assert [key for key, _ in found] == [1, 300, 2]
    assert signed(found[0][1]) == number
    assert found[1][1] == data
    assert found[2][1] == struct.pack("<d", real)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(BadEventMessage):
        list(fields(data))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xff" * 11,
        b"\x0a" + varint(2**63) + b"abc",
        b"\x09abc",
        b"\x0b",
        b"\x0f",
        b"\x00\x00",
    ],
    ids=["cut off", "endless", "a length of 2**63", "a cut double", "a group", "an unknown type", "no number"],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadEventMessage):
        list(fields(data))


def test_numbers_are_bounded() -> None:
    with pytest.raises(BadEventMessage):
        numbers(bytes(8 * 11), "d", 10)
    with pytest.raises(BadEventMessage):
        numbers(bytes(7), "d", 10)


# --- what an event says -----------------------------------------------------------------------------------


def tensor(kind: int, *parts: bytes) -> bytes:
    return field(8, field(1, kind) + b"".join(parts))


def plugin(word: str) -> bytes:
    return field(9, field(1, field(1, word)))


def test_numbers_of_both_forms_are_read() -> None:
    found = said(
        event(
            scalar("a", 0.5),
            value_of("b", tensor(1, field(4, struct.pack("<f", 1.5))), plugin("scalars")),
            value_of("c", tensor(2, varint(6 << 3 | 2) + varint(8) + struct.pack("<d", math.inf))),
            value_of("d", tensor(9, field(10, 7))),
            step=-3,
        )
    )
    assert found.values == {"a": 0.5, "b": 1.5, "c": math.inf, "d": 7.0}
    assert found.step == -3


def test_a_plugin_that_was_said_once_holds_for_the_file() -> None:
    known: dict[str, str] = {}
    read_event(event(value_of("x", tensor(7, field(8, b"one")), plugin("text"))), known)
    assert list(read_event(event(value_of("x", tensor(7, field(8, b"two")))), known).values) == ["x"]


def encoded(value: Any) -> Any:
    (one,) = value
    return one.encode()


def test_media_are_read_in_both_forms() -> None:
    image = field(1, 2) + field(2, 2) + field(3, 1) + field(4, PNG)
    found = said(
        event(
            value_of("old", field(4, image)),
            value_of("new", tensor(7, field(8, b"2"), field(8, b"2"), field(8, PNG), field(8, PNG)), plugin("images")),
            value_of("said/text_summary", tensor(7, field(8, "é\0".encode())), plugin("text")),
            value_of("sound", field(6, field(4, b"RIFF\0\0\0\0WAVEfmt "))),
        )
    ).values
    assert encoded(found["old"]).body == PNG
    assert len(found["new"]) == 2  # type: ignore[arg-type]
    assert encoded(found["said"]).body == "é\ufffd".encode()
    assert encoded(found["sound"]).media_type == kinds.WAV


def packed(number: int, *values: float) -> bytes:
    return field(number, struct.pack(f"<{len(values)}d", *values))


def histogram(low: float, high: float, limits: list[float], counts: list[float]) -> bytes:
    return field(5, field(1, low) + field(2, high) + packed(6, *limits) + packed(7, *counts))


def test_a_histogram_has_the_edges_of_what_is_in_it() -> None:
    found = said(event(value_of("h", histogram(-1.0, 2.0, [-0.5, 1.0, 1.7e308], [1.0, 2.0, 3.0])))).values["h"]
    told = json.loads(encoded(found).body)
    assert told == {"edges": [-1.0, -0.5, 1.0, 2.0], "counts": [1.0, 2.0, 3.0], "not_finite": 0}


def test_a_histogram_of_one_value_has_one_bin() -> None:
    found = said(event(value_of("h", histogram(3.0, 3.0, [2.0, 3.0], [0.0, 9.0])))).values["h"]
    told = json.loads(encoded(found).body)
    assert told["counts"] == [9.0]
    assert told["edges"][0] < 3.0 < told["edges"][1]


def test_a_histogram_of_many_bins_keeps_all_counts() -> None:
    limits = [float(one) for one in range(1, 5001)]
    found = said(event(value_of("h", histogram(0.0, 5000.0, limits, [1.0] * 5000)))).values["h"]
    told = json.loads(encoded(found).body)
    assert len(told["counts"]) <= 512
    assert sum(told["counts"]) == 5000


def test_a_histogram_of_tensorflow_2_is_read() -> None:
    content = struct.pack("<6f", 0, 1, 5, 1, 2, 6)
    found = said(event(value_of("h", tensor(1, field(4, content)), plugin("histograms")))).values["h"]
    assert json.loads(encoded(found).body) == {"edges": [0.0, 1.0, 2.0], "counts": [5.0, 6.0], "not_finite": 0}


@pytest.mark.parametrize(
    "value",
    [
        histogram(0.0, 1.0, [1.0], [1.0, 2.0]),
        histogram(math.nan, 1.0, [1.0], [1.0]),
        histogram(0.0, 1.0, [1.0], [math.inf]),
        field(5, b""),
        tensor(1, field(4, bytes(4 * 100_001))),
        tensor(7, *[field(8, b"")] * 100_001),
    ],
    ids=["uneven", "nan", "inf", "empty", "too many numbers", "too many strings"],
)
def test_a_value_that_is_none_is_refused(value: bytes) -> None:
    with pytest.raises(BadEventMessage):
        said(event(value_of("x", value, plugin("histograms"))))


def test_a_shape_makes_no_values() -> None:
    shape = field(2, field(2, field(1, 2**40)) + field(2, field(1, 2**40)))
    found = said(event(value_of("x", tensor(1, shape, varint(5 << 3 | 5) + struct.pack("<f", 1)), plugin("scalars"))))
    assert found.values == {"x": 1.0}


def test_an_image_bomb_is_refused_by_its_header() -> None:
    bomb = bytearray(PNG)
    bomb[16:24] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
    found = said(event(value_of("x", field(4, field(4, bytes(bomb))))))
    with pytest.raises(MediaError, match="pixels"):
        encoded(found.values["x"])


def test_what_is_not_imported_is_named() -> None:
    found = said(event(value_of("x", tensor(1, field(4, bytes(8))), plugin("mesh"))))
    assert not found.values
    assert found.left_out == {"mesh"}


@settings(max_examples=300)
@given(st.data())
def test_no_change_of_a_file_makes_reading_fail(data: st.DataObject) -> None:
    image = value_of("i", field(4, field(4, PNG)))
    whole = event(scalar("a", 1.0), image, value_of("h", histogram(0.0, 1.0, [0.5, 1.0], [1.0, 1.0])), step=5)
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        changed[data.draw(st.integers(min_value=0, max_value=len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadEventMessage, OverflowError):
        for value in said(bytes(changed)).values.values():
            for one in value if isinstance(value, list) else []:
                with contextlib.suppress(MediaError):
                    one.encode()
    assert read(file_of(whole))[0] == [first(), whole]
