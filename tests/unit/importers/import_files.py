"""Folders for the tests of importers: what the real packages have written, and logs of W&B made by hand."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

FILES = Path(__file__).parent / "files"
BLOCK = 32 * 1024


def unpacked(name: str, folder: Path) -> Path:
    """Unpack an archive of `files/`; return the folder."""
    with zipfile.ZipFile(FILES / name) as archive:
        archive.extractall(folder)
    return folder


def mlrun(root: Path, run: str = "a" * 32, **metrics: str) -> Path:
    """Make a folder mlruns/ by hand with one run; `metrics` are the texts of their files. Return the run's folder."""
    write(root / "1" / "meta.yaml", "experiment_id: '1'\nname: hand\nlifecycle_stage: active\n")
    folder = root / "1" / run
    write(folder / "meta.yaml", f"run_id: {run}\nstatus: 3\nstart_time: 5\nend_time: 9\nlifecycle_stage: active\n")
    for key, text in metrics.items():
        write(folder / "metrics" / key, text)
    return folder


def write(path: Path, text: str) -> None:
    """Write a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# --- W&B


def varint(value: int) -> bytes:
    """Encode a number as protobuf does."""
    found = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        found.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(found)


def part(number: int, value: bytes | int) -> bytes:
    """Encode a field: bytes with their length, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def item(key: str, value: object) -> bytes:
    """Encode an item of a row, a config or a summary."""
    return part(1, key.encode()) + part(16, json.dumps(value).encode())


def start(run: str = "r1", project: str = "digits", **config: object) -> bytes:
    """Encode the record that a run begins with."""
    body = part(1, run.encode()) + part(3, project.encode()) + part(8, b"name")
    body += part(4, b"".join(part(1, item(key, value)) for key, value in config.items()))
    return part(1, 1) + part(17, body + part(17, part(1, 1000) + part(2, 5_000_000)))


def row(step: int, **values: object) -> bytes:
    """Encode a row of the history."""
    said = {"_step": step, "_timestamp": 1000 + step, **values}
    return part(2, b"".join(part(1, item(key, value)) for key, value in said.items()))


def exit_record(code: int = 0) -> bytes:
    """Encode the record that a run ends with."""
    return part(18, part(1, code) + part(2, 7))


def log_of(records: Iterable[bytes], version: int = 0) -> bytes:
    """Write records as W&B does."""
    found = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, version))
    for record in records:
        rest, first = record, True
        while True:
            room = BLOCK - len(found) % BLOCK
            if room < 7:
                found += bytes(room)
                room = BLOCK
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            found += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
            if not rest:
                break
    return bytes(found)


def wandb_run(root: Path, data: bytes, name: str = "offline-run-20261130_000000-r1") -> Path:
    """Make a folder of a run of W&B with a log; return it."""
    folder = root / name
    (folder / "files").mkdir(parents=True, exist_ok=True)
    (folder / f"run-{name.rpartition('-')[2]}.wandb").write_bytes(data)
    return folder
