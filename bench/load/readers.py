"""Reads many streams at once, for `rest.py`: one process that does nothing but take in what comes, with its time.

What came is looked at when all is over, so that the looking is no part of what is measured.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

MARK = b'"sent":'
"""In each event of a report."""
PATIENCE = 60.0


@dataclass
class Stream:
    """One connection, and what came on it."""

    socket: socket.socket
    count: int
    """Events that are expected."""
    came: list[tuple[float, bytes]] = field(default_factory=list)
    seen: int = 0
    _rest: bytes = b""

    def take(self) -> bool:
        """Read what there is; False when all has come, or the stream has ended."""
        data = self.socket.recv(1 << 18)
        self.came.append((time.time(), data))
        self.seen += (self._rest + data).count(MARK)
        self._rest = data[1 - len(MARK) :]
        return bool(data) and self.seen < self.count

    def lines(self) -> Iterator[tuple[float, bytes]]:
        """The lines of the body, each with the time at which its end came."""
        text = b"".join(data for _, data in self.came)
        ends, place = [], 0
        for at, data in self.came:
            place += len(data)
            ends.append((place, at))
        place = text.index(b"\r\n\r\n") + 4
        line, arrival = b"", iter(ends)
        upto, at = next(arrival)
        while (end := text.find(b"\r\n", place)) >= 0 and (size := int(text[place:end], 16)):
            body = text[end + 2 : end + 2 + size]
            *whole, rest = body.split(b"\n")
            within = end + 2
            for part in whole:
                within += len(part) + 1
                while upto < within:
                    upto, at = next(arrival, (sys.maxsize, at))
                yield at, line + part
                line = b""
            line += rest
            place = end + 2 + size + 2

    def reports(self) -> tuple[list[int], list[float]]:
        """The steps that were reported, and how late each came."""
        steps, late = [], []
        for at, text in self.lines():
            if MARK in text:
                data = json.loads(text)["data"]
                steps.append(data["steps_completed"])
                late.append(at - data["metrics"]["sent"])
        return steps, late


def main() -> None:
    """Open the streams, say so, read until all has come; print how many got all, and how late things were."""
    host, port, path, token, streams, count = sys.argv[1:]
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    found: dict[int, Stream] = {}
    poll = select.epoll()
    for _ in range(int(streams)):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(request)
        found[connection.fileno()] = Stream(connection, int(count))
    for stream in found.values():
        head = stream.socket.recv(1 << 16)
        assert b" 200 " in head.split(b"\r\n")[0], head
        stream.came.append((time.time(), head))
        poll.register(stream.socket, select.EPOLLIN)
    gc.disable()
    print("open", flush=True)
    left = len(found)
    last = time.monotonic()
    while left and time.monotonic() - last < PATIENCE:
        for number, _ in poll.poll(1.0):
            before = found[number].seen
            if not found[number].take():
                poll.unregister(number)
                left -= 1
            if found[number].seen > before:
                last = time.monotonic()
    told = [stream.reports() for stream in found.values()]
    whole = sum(steps == list(range(steps[0], steps[0] + int(count))) if steps else False for steps, _ in told)
    late = sorted(one for _, lates in told for one in lates)
    print(json.dumps({"whole": whole, "late": late[:: max(len(late) // 20000, 1)]}), flush=True)


if __name__ == "__main__":
    main()
