"""What a launcher could not deliver, by way of the job's own output: the agent finds it there and delivers it instead.

Batch systems keep what a job writes, also when the job has not reached the master or its machine is gone for good. Each
record is a line that begins with `MARK`; what else is in the output is for people.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from detlab.launch.delivery.spool import open_regular, read_mark
from detlab.launch.taskdir import STREAMS, TaskDir

MARK = "detlab-undelivered"
MOST_BYTES = {"metrics": 3 << 20, "logs": 1 << 20}
"""Of each stream: what batch systems keep of an output is limited, often to 10 MB."""
SAID_LINES, SAID_CHARS = 5, 300
"""Of what the launcher itself has said."""


def leave(task: TaskDir, out: BinaryIO) -> None:
    """Write down what the master has not got: all metrics, if they are not too many, and the newest output."""
    try:
        said = task.launcher_log.read_bytes()[-20_000:].decode("utf-8", errors="replace").splitlines()
    except OSError:
        said = []
    for line in said[-SAID_LINES:]:
        out.write(f"detlab: the launcher: {line[:SAID_CHARS]}\n".encode())
    for stream in STREAMS:
        for record in _newest(task.stream(stream), read_mark(task.acked(stream)), MOST_BYTES[stream]):
            out.write(f"{MARK} {stream} ".encode() + record + b"\n")
    out.flush()


def _newest(path: Path, acked: int, most: int) -> Iterator[bytes]:
    kept: deque[bytes] = deque()
    size = 0
    try:
        with open_regular(path) as file:
            for line in file:
                if not line.endswith(b"\n") or _number(line) <= acked:
                    continue
                kept.append(line.rstrip(b"\n"))
                size += len(line)
                while size > most:
                    size -= len(kept.popleft()) + 1
    except OSError:
        return
    yield from kept


def find(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the records of each stream in a job's output, in their order, and the other lines."""
    found: dict[str, dict[int, str]] = {stream: {} for stream in STREAMS}
    other = []
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        stream, _, record = rest.partition(" ")
        number = _number(record.encode()) if mark == MARK and stream in found else 0
        if number:
            found[stream][number] = record
        elif line.strip():
            other.append(line)
    return {stream: [records[seq] for seq in sorted(records)] for stream, records in found.items()}, other


def _number(line: bytes) -> int:
    """Return the number of a record; 0 if it is none."""
    try:
        seq = json.loads(line)["seq"]
    except (ValueError, TypeError, KeyError, RecursionError):  # the last: nested thousands deep
        return 0
    return seq if isinstance(seq, int) and 0 < seq < 1 << 53 else 0
