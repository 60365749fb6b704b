"""Event files made by hand, so that they can say what no writer would."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detlab.core.event_files.importing import EventImport
from detlab.core.event_files.records import checksum
from detlab.media import EncodedMedia

BEGAN = 1_000_000.0


def varint(value: int) -> bytes:
    """An integer."""
    value &= (1 << 64) - 1
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def field(number: int, value: int | float | str | bytes) -> bytes:
    """A field: an integer, a double, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def value_of(tag: str, *fields: bytes) -> bytes:
    """A value of a summary."""
    return field(1, tag) + b"".join(fields)


def scalar(tag: str, value: float) -> bytes:
    """A number, as torch writes it."""
    return value_of(tag, varint(2 << 3 | 5) + struct.pack("<f", value))


def event(*values: bytes, step: int = 0, at: float = BEGAN) -> bytes:
    """An event with a summary."""
    summary = b"".join(field(1, value) for value in values)
    return field(1, at) + field(2, step) + (field(5, summary) if values else b"")


def first(at: float = BEGAN) -> bytes:
    """The event with which each file begins."""
    return field(1, at) + field(3, "brain.Event:2")


def record(data: bytes, *, length: int | None = None, damaged: bool = False) -> bytes:
    """An event as it stands in a file."""
    head = struct.pack("<Q", len(data) if length is None else length)
    return head + struct.pack("<I", checksum(head)) + data + struct.pack("<I", checksum(data) ^ damaged)


def file_of(*events: bytes, at: float = BEGAN) -> bytes:
    """A file of events."""
    return record(first(at)) + b"".join(map(record, events))


class Taken:
    """A target that keeps what it is given."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, dict[str, float], float]] = []
        self.objects: list[tuple[str, int, int, EncodedMedia]] = []

    def metrics(self, step: int, values: dict[str, float], at: float) -> None:
        """Keep a report."""
        self.reports.append((step, dict(values), at))

    def media(self, key: str, step: int, place: int, encoded: EncodedMedia) -> None:
        """Keep an object."""
        self.objects.append((key, step, place, encoded))

    @property
    def points(self) -> list[tuple[str, int, float]]:
        """Name, step and value of each number, in order."""
        return [(name, step, value) for step, values, _ in self.reports for name, value in values.items()]


class Importing:
    """An import of a folder, looked at by hand."""

    def __init__(self, folder: Path, since: float = BEGAN, **options: Any) -> None:
        self.taken, self.said = Taken(), list[str]()
        clock: Callable[[], float] = options.pop("clock", lambda: BEGAN + 1000)
        self.work = EventImport(self.taken, [folder], self.said.append, since=since, clock=clock, **options)

    def look(self) -> Importing:
        """Read all that is there."""
        while self.work.look(last=True):
            pass
        return self


def name(number: int = 0, process: int = 2**22 + 1) -> str:
    """The name of an event file, as torch's writer makes it."""
    return f"events.out.tfevents.0001000000.host.{process}.{number}"
