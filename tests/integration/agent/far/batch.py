"""A batch system: it runs jobs, keeps how they ended, and shares nothing with those who submit but its address.

    python batch.py DIR HIDDEN

It listens on a port of the loopback, written to DIR/port. Each job has a directory, and, where this is root's, a PID
and a mount namespace in which HIDDEN is empty: whatever a job needs of there, it does not find.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Job:
    """One job, and the thread that waits for it."""

    def __init__(self, folder: Path, hidden: Path, command: list[str], environment: dict[str, str]) -> None:
        self.folder, self.killed = folder, False
        self.status: int | None = None
        folder.mkdir()
        (folder / "tmp").mkdir()
        words = [*command, "--exit-file", str(folder / "said")]
        self.apart = os.geteuid() == 0
        if self.apart:
            hide = f'mount -t tmpfs none {hidden} && exec "$0" "$@"'
            words = [*NAMESPACES, "sh", "-c", hide, *words]
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(folder / "tmp"), **environment}
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        status = self.process.wait()
        self.status = 128 + signal.SIGKILL if self.killed else status if status >= 0 else 128 - status

    def pid(self) -> int | None:
        """Of its first process: the child of `unshare`, which passes no signal on."""
        if not self.apart:
            return self.process.pid
        at = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        try:
            words = at.read_text().split()
        except OSError:
            return None
        return int(words[0]) if words else None

    def signal(self, number: int) -> None:
        pid = self.pid()
        if pid is not None and self.status is None:
            self.killed = self.killed or number == signal.SIGKILL  # `unshare` does not say so
            os.kill(pid, number)

    def state(self) -> dict[str, Any]:
        said = self.folder / "said"
        over = self.status is not None
        return {"status": self.status, "said": said.read_text() if over and said.exists() else ""}


class Handler(BaseHTTPRequestHandler):
    """GET /jobs, POST /jobs, GET /jobs/NAME, POST /jobs/NAME/SIGNAL, DELETE /jobs/NAME."""

    jobs: dict[str, Job]
    folder: Path
    hidden: Path

    def log_message(self, *words: Any) -> None:
        """Say nothing."""

    def _reply(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        name = self.path.removeprefix("/jobs").strip("/")
        if not name:
            return self._reply(sorted(self.jobs))
        job = self.jobs.get(name)
        return self._reply({} if job is None else job.state(), 404 if job is None else 200)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/jobs":
            name = body["name"]
            self.jobs[name] = Job(self.folder / name, self.hidden, body["command"], body["environment"])
            return self._reply({})
        _, _, name, number = self.path.split("/")
        if name in self.jobs:
            self.jobs[name].signal(int(number))
        return self._reply({})

    def do_DELETE(self) -> None:
        job = self.jobs.pop(self.path.rpartition("/")[2], None)
        if job is not None:
            job.signal(signal.SIGKILL)
        self._reply({})


def main() -> None:
    Handler.folder, Handler.hidden, Handler.jobs = Path(sys.argv[1]), Path(sys.argv[2]), {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def end(*_: Any) -> None:
        for job in Handler.jobs.values():
            job.signal(signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    partial = Handler.folder / "port.partial"
    partial.write_text(str(server.server_port))
    partial.rename(Handler.folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main()
