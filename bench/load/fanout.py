"""The least that many streams cost: for `rest.py`, a server that only writes, the same lines at the same pace.

It knows its readers beforehand, makes each batch of lines once, and sends it to each of them by one call. What it
takes, and what the proxy takes to pass that on, is the floor of a server that looks into a database for what it says.
"""

from __future__ import annotations

import json
import socket
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n"
"""With an empty line: the proxy keeps a head back until something follows."""
EVENT = {"kind": "metrics", "experiment_id": 1, "trial_id": 1, "task_id": None}


def accept(server: socket.socket, streams: int) -> list[socket.socket]:
    """Take in all readers, and say to each that it is heard."""
    found = []
    for _ in range(streams):
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += connection.recv(1 << 16)
        connection.sendall(HEAD)
        found.append(connection)
    return found


def chunk(steps: range, due: float, rate: float) -> bytes:
    """The lines of some reports, of which the first was due at a time, as a chunk."""
    lines = b""
    for number, step in enumerate(steps):
        sent = due + number / rate
        metrics = {"group": "training", "steps_completed": step, "run": 1, "metrics": {"sent": sent}}
        lines += (
            json.dumps({"id": step, **EVENT, "time": sent, "data": metrics}, separators=(",", ":")).encode() + b"\n"
        )
    return b"%x\r\n%s\r\n" % (len(lines), lines)


def main() -> None:
    """Listen, wait for the readers and for a line of input, then write all reports as they become due."""
    streams, count = int(sys.argv[1]), int(sys.argv[2])
    rate, period, parts = float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    with socket.create_server(("127.0.0.1", 0), backlog=streams) as server:
        print(server.getsockname()[1], flush=True)
        readers = accept(server, streams)
    groups = [readers[part::parts] for part in range(parts)]
    told = [0] * parts
    sys.stdin.readline()
    began = time.time()
    turn = 0
    while min(told) < count:
        turn += 1
        time.sleep(max(0.0, began + turn * period / parts - time.time()))
        part = turn % parts
        upto = min(int((time.time() - began) * rate), count)
        data = chunk(range(told[part], upto), began + told[part] / rate, rate)
        told[part] = upto
        for reader in groups[part]:
            reader.sendall(data)
    sys.stdin.readline()  # its CPU is looked at before it ends


if __name__ == "__main__":
    main()
