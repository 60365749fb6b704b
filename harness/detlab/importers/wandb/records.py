"""The few protobuf messages of W&B's log that are needed, read field by field; all others are passed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

HISTORY, SUMMARY, CONFIG, STATS, ARTIFACT, RUN, EXIT = 2, 3, 5, 7, 8, 17, 18
"""Numbers of the fields of a `Record` that say what it is."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VALUE = 16
"""`value_json` in each item."""


class BadMessage(ValueError):
    """Bytes that are no such message."""


Field = tuple[int, int | bytes]


def fields(data: bytes) -> Iterator[Field]:
    """Yield (number, value) of the fields of a message: numbers of fixed size as their bytes.

    Raises:
        BadMessage: It is none.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in {_FIXED32, _FIXED64}:
            size = 4 if wire == _FIXED32 else 8
        else:
            raise BadMessage(f"a field of the unknown kind {wire}")
        if size > end - at:
            raise BadMessage("a field that is longer than its message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        try:
            byte = data[at]
        except IndexError:
            raise BadMessage("a message that ends within a number") from None
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise BadMessage("a number of over ten bytes")


def message(data: bytes) -> tuple[int, bytes] | None:
    """Return which of the messages above a record has, and its bytes; None for all others.

    Raises:
        BadMessage: It is no record.
    """
    for number, value in fields(data):
        if isinstance(value, bytes) and number in _WANTED:
            return number, value
    return None


_WANTED = frozenset({HISTORY, SUMMARY, CONFIG, STATS, ARTIFACT, RUN, EXIT})


@dataclass(frozen=True, slots=True)
class RunStart:
    """`RunRecord`: what a run is. The time in milliseconds."""

    run_id: str = ""
    entity: str = ""
    project: str = ""
    config: bytes = b""
    group: str = ""
    job_type: str = ""
    name: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    sweep: str = ""
    host: str = ""
    started_ms: int = 0
    remote: str = ""
    commit: str = ""


_RUN_TEXTS = {
    1: "run_id",
    2: "entity",
    3: "project",
    6: "group",
    7: "job_type",
    8: "name",
    9: "notes",
    12: "sweep",
    13: "host",
}


def run_start(data: bytes) -> RunStart:
    """Read a `RunRecord`."""
    texts: dict[str, str] = {}
    tags: list[str] = []
    config, started, remote, commit = b"", 0, "", ""
    for number, value in fields(data):
        if not isinstance(value, bytes):
            continue
        if number in _RUN_TEXTS:
            texts[_RUN_TEXTS[number]] = _text(value)
        elif number == 4:
            config = value
        elif number == 10:
            tags.append(_text(value))
        elif number == 17:
            started = moment_ms(value)
        elif number == 21:
            git = dict(fields(value))
            remote, commit = _text(git.get(1)), _text(git.get(2))
    return RunStart(**texts, config=config, tags=tuple(tags), started_ms=started, remote=remote, commit=commit)


def moment_ms(data: bytes) -> int:
    """Read a `Timestamp` as milliseconds since the epoch."""
    found = dict(fields(data))
    seconds, nanos = found.get(1, 0), found.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise BadMessage("a time that is none")
    return seconds * 1000 + nanos // 1_000_000


@dataclass(slots=True)
class Items:
    """Items of a message by their key, in JSON as they stand there; those of `remove` by key alone."""

    update: dict[str, bytes] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    step: int | None = None
    time_ms: int = 0


def items(kind: int, data: bytes) -> Items:
    """Read a message of items: a row of the history, a summary, a config, or system metrics."""
    found = Items()
    for number, value in fields(data):
        if kind == STATS:
            if number == 2 and isinstance(value, bytes):
                found.time_ms = moment_ms(value)
            elif number == 3 and isinstance(value, bytes):
                _add(found.update, value)
        elif number == 1 and isinstance(value, bytes):
            _add(found.update, value)
        elif number == 2 and isinstance(value, bytes):
            if kind == HISTORY:
                step = dict(fields(value)).get(1, 0)
                found.step = _signed(step) if isinstance(step, int) else None
            else:
                removed: dict[str, bytes] = {}
                _add(removed, value)
                found.remove += removed
    return found


def _add(into: dict[str, bytes], data: bytes) -> None:
    key, nested, value = "", [], b""
    for number, said in fields(data):
        if not isinstance(said, bytes):
            continue
        if number == 1:
            key = _text(said)
        elif number == 2:
            nested.append(_text(said))
        elif number == _VALUE:
            value = said
    name = key or ".".join(nested)
    if name:
        into[name] = value


def exit_code(data: bytes) -> tuple[int, int]:
    """Read a `RunExitRecord`: exit status, and seconds that the run took."""
    found = dict(fields(data))
    code, runtime = found.get(1, 0), found.get(2, 0)
    return (_signed(code) if isinstance(code, int) else 0), (runtime if isinstance(runtime, int) else 0)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
