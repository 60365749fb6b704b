"""Protocol buffers' wire format, as far as event files need it: fields with their numbers, never nested by itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST_VARINT = 10
"""Bytes of an integer of 64 bits."""

Field = int | bytes
"""A varint as an unsigned integer; everything else as its bytes: 8, 4, or as many as it says."""


class BadEventMessage(ValueError):
    """Bytes that are no message."""


def fields(data: bytes) -> Iterator[tuple[int, Field]]:
    """Yield the number and the value of each field.

    Raises:
        BadEventMessage: They are no message: cut off, of an unknown type, or with a length beyond their end.
    """
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if not number:
            raise BadEventMessage("a field has no number")
        if kind == VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == BYTES:
            length, place = _varint(data, place)
        elif kind in {FIXED64, FIXED32}:
            length = 8 if kind == FIXED64 else 4
        else:
            raise BadEventMessage(f"a field has the unknown type {kind}")
        if length > end - place:
            raise BadEventMessage("a field goes beyond the end")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count in range(_MOST_VARINT):
        if place >= len(data):
            raise BadEventMessage("an integer is cut off")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place
    raise BadEventMessage("an integer has more than 64 bits")


def signed(value: Field) -> int:
    """Return an integer of 64 bits with its sign.

    Raises:
        BadEventMessage: The field is none.
    """
    if not isinstance(value, int):
        raise BadEventMessage("a field is no integer")
    return value - (1 << 64) if value >= 1 << 63 else value


def raw(value: Field) -> bytes:
    """Return the bytes of a field.

    Raises:
        BadEventMessage: It is an integer.
    """
    if isinstance(value, int):
        raise BadEventMessage("a field is an integer, and should not be")
    return value


def text(value: Field) -> str:
    """Return a text, without what no name and no page can have."""
    return raw(value).decode("utf-8", errors="replace").replace("\0", "\ufffd")


def number(value: Field) -> float:
    """Return a number of floating point, of 4 or 8 bytes.

    Raises:
        BadEventMessage: It has another size.
    """
    data = raw(value)
    if len(data) not in {4, 8}:
        raise BadEventMessage(f"a number has {len(data)} bytes")
    return float(struct.unpack("<d" if len(data) == 8 else "<f", data)[0])


def numbers(value: Field, code: str, most: int) -> list[float]:
    """Return numbers that stand one behind the other.

    Args:
        value: The field.
        code: Of one number, as `struct` has it.
        most: How many there may be.

    Raises:
        BadEventMessage: They are too many, or the last one is cut off.
    """
    data, size = raw(value), struct.calcsize(f"<{code}")
    if len(data) % size or len(data) // size > most:
        raise BadEventMessage(f"{len(data)} bytes are not at most {most} numbers of {size} bytes")
    return [float(one) for one in struct.unpack(f"<{len(data) // size}{code}", data)]


def integers(value: Field, most: int) -> list[float]:
    """Return integers that stand one behind the other, or the one that there is."""
    if isinstance(value, int):
        return [float(signed(value))]
    found: list[float] = []
    place = 0
    while place < len(value):
        if len(found) >= most:
            raise BadEventMessage(f"there are more than {most} integers")
        one, place = _varint(value, place)
        found.append(float(signed(one)))
    return found
