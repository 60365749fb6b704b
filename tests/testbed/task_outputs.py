"""A task's directory and a master that takes outputs, for tests of what runs inside tasks: both of our own seam."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote


class Taker(http.server.ThreadingHTTPServer):
    """Takes PUT task/outputs/{name}; `replies` are given first, in order, instead of 200.

    A body of more than `most` bytes is refused before it is read, and the connection closed.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: dict[str, bytes] = {}
        self.history: list[tuple[str, bytes]] = []
        self.tokens: list[str] = []
        self.replies: list[tuple[int, dict[str, Any]]] = []
        self.most: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/services/detlab/"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Taker

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.tokens.append(self.headers["Authorization"])
        if self.server.most is not None and size > self.server.most:
            self.close_connection = True
            self.send_error(413)
            return
        data = self.rfile.read(size)
        status, body = self.server.replies.pop(0) if self.server.replies else (200, {})
        if status == 200:
            name = unquote(self.path.rpartition("/task/outputs/")[2])
            self.server.taken[name] = data
            self.server.history.append((name, data))
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def taking_outputs() -> Iterator[Taker]:
    """Run such a master."""
    server = Taker()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_cell_dir(folder: Path, url: str) -> Path:
    """Write what the agent writes before a task starts; return its work folder."""
    (folder / "work").mkdir(parents=True)
    (folder / "token").write_text("dttask_x")
    info = {
        "master_url": url,
        "cluster_id": "c",
        "agent_id": "a",
        "slot_ids": [0],
        "task_id": "cell-1",
        "allocation_id": "cell-1.1",
        "task_type": "CELL",
        "run": 1,
        "trial_id": 0,
        "experiment_id": 0,
        "trial_seed": 0,
    }
    (folder / "info.json").write_text(json.dumps(info))
    return folder / "work"
