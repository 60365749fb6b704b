"""What a user sends to the master of a real cluster, and what it costs the master."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from testbed.cluster import Cluster
from testbed.waiting import until

SCOPES = ("custom:detlab:read", "custom:detlab:write")
SLEEPER = {
    "name": "sleeper",
    "entrypoint": ["sleep", "600"],
    "searcher": {"name": "single", "metric": "loss"},
    "resources": {"slots_per_trial": 0},
    "max_restarts": 0,
}


def master_port(cluster: Cluster) -> int:
    """Where the master listens on loopback, which every task of the node can reach."""
    return int(cluster.plan["master_port"])


def api(cluster: Cluster, token: str, timeout: float = 60.0) -> httpx.Client:
    """A client of the master itself, without the proxy."""
    base = f"http://127.0.0.1:{master_port(cluster)}/services/detlab/api/v1/"
    return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=timeout)


@dataclass
class Memory:
    """The memory of the master."""

    pid: int

    def now(self) -> int:
        """Resident bytes."""
        return self._field("VmRSS")

    def peak(self) -> int:
        """The most resident bytes since `reset`."""
        return self._field("VmHWM")

    def reset(self) -> int:
        """Forget the peak; return the resident bytes."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")
        return self.now()

    def _field(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(f"{name}:"))


def memory_of(cluster: Cluster) -> Memory:
    """The memory of a cluster's master."""
    pid = cluster.pid("master")
    assert pid is not None
    return Memory(pid)


def submit(client: httpx.Client, **more: Any) -> int:
    """Submit an experiment that sleeps; return its id."""
    reply = client.post("experiments", json={"config": {**SLEEPER, **more}})
    assert reply.status_code == 200, reply.text
    return int(reply.json()["experiment"]["id"])


def task_of(cluster: Cluster, client: httpx.Client, experiment: int) -> tuple[int, str]:
    """The trial of an experiment that runs, and its task token, as the trial itself has it."""

    def running() -> dict[str, Any] | None:
        trials = client.get(f"experiments/{experiment}/trials").json()["items"]
        return next((one for one in trials if one["allocation_state"] == "RUNNING"), None)

    trial = until(running, "the trial did not start")
    folders = cluster.folder / "agent" / "tasks"

    def token() -> str | None:
        for folder in folders.glob("*/"):
            info = folder / "info.json"
            if info.exists() and f'"trial_id":{trial["id"]},' in info.read_text().replace(" ", ""):
                return (folder / "token").read_text().strip()
        return None

    return int(trial["id"]), until(token, "the task has no token") or ""


def report(task: httpx.Client, count: int, *, metrics: int = 20, at_once: int = 1000) -> None:
    """Report as a trial does: so many reports of so many metrics."""
    for first in range(0, count, at_once):
        records = [
            {
                "kind": "metrics",
                "seq": number + 1,
                "time": 1.0,
                "group": "training",
                "steps_completed": number + 1,
                "metrics": {f"metric_{place}": number / (place + 1) for place in range(metrics)},
            }
            for number in range(first, min(first + at_once, count))
        ]
        reply = task.post("task/records", json={"stream": "metrics", "records": records})
        assert reply.status_code == 200, reply.text


def say(task: httpx.Client, count: int, *, at_once: int = 1000) -> None:
    """Print as a trial does: so many lines of 200 characters."""
    for first in range(0, count, at_once):
        records = [
            {"kind": "log", "seq": 1000 + number, "time": 1.0, "text": f"{number:06} {'x' * 193}"}
            for number in range(first, min(first + at_once, count))
        ]
        reply = task.post("task/records", json={"stream": "logs", "records": records})
        assert reply.status_code == 200, reply.text


def times_logged(cluster: Cluster, text: str) -> int:
    """How often the master's log says something."""
    return (cluster.folder / "logs" / "master.log").read_text(errors="replace").count(text)


@contextlib.contextmanager
def unread(cluster: Cluster, token: str, path: str, count: int) -> Iterator[list[socket.socket]]:
    """Open so many streams and read nothing of them."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", master_port(cluster)))
            head = f"GET /services/detlab/api/v1/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
            connection.sendall(head.encode())
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.close()


@dataclass
class Bystander:
    """Another user, who asks the master for something small all the time."""

    client: httpx.Client
    took: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def _ask(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            try:
                reply = self.client.get("experiments", params={"limit": 5})
                if reply.status_code != 200:
                    self.failed.append(reply.text)
            except httpx.HTTPError as error:
                self.failed.append(repr(error))
            self.took.append(time.monotonic() - began)
            self._over.wait(0.05)

    @contextlib.contextmanager
    def asking(self) -> Iterator[Bystander]:
        """Ask in a thread until the block ends."""
        thread = threading.Thread(target=self._ask)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()

    @property
    def p95(self) -> float:
        """Seconds within which 19 of 20 answers came."""
        return statistics.quantiles(self.took, n=20)[-1]
