"""Reports the last use of a server of the Hub to the master, which decides when it is idle.

A notebook is in use while a kernel is busy, a browser is connected to one, or a program runs in a terminal; else it
was last used when its API was. A TensorBoard was last used at its last request. Only the standard library is used.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from detlab.launch.host import procfs
from detlab.loopback.connections import LoopbackHandler
from detlab.trust import tls_context

PERIOD = 30.0
"""Seconds between two reports, unless the idle timeout is so short that more are needed."""
SHORTEST = 1.0
CALL_SECONDS = 10.0
REQUEST_MARK = "last_request"
"""File in the task's directory whose time is that of TensorBoard's last request."""
_BUSY = {"busy", "starting", "restarting"}


@dataclass(frozen=True)
class Activity:
    """What was seen: when it was last used, and whether it is in use now."""

    last: float
    busy: bool = False
    detail: str = ""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CALL_SECONDS)
        self._path = path

    def connect(self) -> None:
        """See `HTTPConnection.connect`."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CALL_SECONDS)
        self.sock.connect(str(self._path))


class IdleWatch:
    """Looks at one server and reports, until the process ends.

    Args:
        kind: notebook, shell or tensorboard.
        env: The server's environment.
        pid: Of the server.
        path: Its Unix socket in a private folder, so that no other user can receive the token that is sent there.
    """

    def __init__(self, kind: str, env: Mapping[str, str], pid: int, path: Path) -> None:
        self._kind = kind
        self._path = path
        self._prefix = urlsplit(env["JUPYTERHUB_SERVICE_URL"]).path
        self._hub_token = env.get("JUPYTERHUB_API_TOKEN", "")
        self._report_url = f"{env['DET_MASTER'].rstrip('/')}/api/v1/task/activity"
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            LoopbackHandler(),
            urllib.request.HTTPSHandler(context=tls_context(self._report_url)),
        )
        self._task_dir = Path(env["DET_TASK_DIR"])
        self._pid = pid
        self._started = time.time()
        self._period = PERIOD

    def run(self) -> None:
        """Report for as long as the process lives; a failed report is skipped."""
        pause = threading.Event()
        wait = SHORTEST  # the first reply says how often is enough
        while True:
            pause.wait(wait)
            wait = self._period if self.once() else min(2 * wait, PERIOD)

    def once(self) -> bool:
        """Look and report once; return whether the master has it."""
        try:
            seen = self.look()
            reply = self._report(seen)
        except (OSError, ValueError, KeyError, TypeError):
            return False
        timeout = reply.get("idle_timeout")
        # four looks before the end: a use between two of them is never overlooked
        self._period = max(SHORTEST, min(PERIOD, timeout / 4)) if timeout else PERIOD
        return True

    def look(self) -> Activity:
        """Return what the server is doing.

        Raises:
            OSError: The server does not answer.
        """
        if self._kind == "tensorboard":
            try:
                return Activity((self._task_dir / REQUEST_MARK).stat().st_mtime)
            except FileNotFoundError:
                return Activity(self._started)
        status = self._ask("api/status")
        kernels = self._ask("api/kernels")
        last = datetime.fromisoformat(str(status["last_activity"]).replace("Z", "+00:00")).timestamp()
        running = [kernel for kernel in kernels if kernel.get("execution_state") in _BUSY]
        connected = sum(int(kernel.get("connections") or 0) for kernel in kernels)
        programs = terminal_programs(self._pid)
        detail = ", ".join(
            text
            for count, text in (
                (len(running), f"{len(running)} busy kernel(s)"),
                (connected, f"{connected} connection(s)"),
                (len(programs), f"{len(programs)} program(s) in terminals"),
            )
            if count
        )
        return Activity(last, bool(detail), detail)

    def _ask(self, path: str) -> Any:
        connection = _UnixConnection(self._path)
        try:
            headers = {"Authorization": f"token {self._hub_token}"}
            connection.request("GET", f"{self._prefix}{path}?no_track_activity=1", headers=headers)
            reply = connection.getresponse()
            if reply.status != http.HTTPStatus.OK:
                raise OSError(f"{path}: HTTP {reply.status}")
            return json.load(reply)
        except http.client.HTTPException as error:
            raise OSError(f"{path}: {error}") from error
        finally:
            connection.close()

    def _report(self, seen: Activity) -> dict[str, Any]:
        token = (self._task_dir / "token").read_text(encoding="ascii").strip()
        body = json.dumps({"last_activity": seen.last, "busy": seen.busy, "detail": seen.detail}).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310  (so does it here)
            self._report_url, data=body, headers=headers, method="POST"
        )
        with self._opener.open(request, timeout=CALL_SECONDS) as reply:
            answer = json.load(reply)
        return answer if isinstance(answer, dict) else {}


def terminal_programs(server: int) -> list[int]:
    """Return the processes that run in the server's terminals beside the shells themselves.

    A shell leads the session of its terminal; everything else in such a session was started there.
    """
    family = procfs.descendants(server)
    shells = {process.pid for process in family if process.session == process.pid and has_terminal(process.pid)}
    return [process.pid for process in family if process.session in shells and process.pid not in shells]


def has_terminal(pid: int) -> bool:
    """Whether a process has a controlling terminal."""
    try:
        text = (procfs.PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    fields = text[text.rindex(")") + 2 :].split()
    return fields[4] != "0"
