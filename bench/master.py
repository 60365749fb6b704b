"""A master of its own for a bench: one process with one database, a node without processes, and its trials' tokens.

The Hub that knows the people is that of an embedded cluster, which otherwise rests. What is measured is asked over
connections that stay open, by a client that sends each request in one piece and keeps the work of a client small.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import websocket
from measure import cpu_of, memory_of

from detlab.testing.ports import free_port
from testbed.cluster import Cluster

API = "/services/detlab/api/v1/"
PATIENCE = 60.0
IDLE = 2.0
"""Seconds after which a connection is opened anew."""


class Connection:
    """One connection to a service, kept open."""

    def __init__(self, address: str, token: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        self._http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE)
        self._used = 0.0
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send one request and return the body of the answer.

        Raises:
            RuntimeError: The answer is an error.
        """
        if time.monotonic() - self._used > IDLE:
            self._http.close()  # a server may have done so; it opens by itself
        self._http.request(method, path, body, self._headers)
        reply = self._http.getresponse()
        self._used = time.monotonic()
        data = reply.read()
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {data[:500]!r}")
        return data

    def close(self) -> None:
        """Close it."""
        self._http.close()


@dataclass
class Master:
    """A master process; `start` it.

    Args:
        cluster: Whose Hub it asks.
        folder: Its state folder.
        database: Its URL; SQLite in the folder by default.
    """

    cluster: Cluster
    folder: Path
    database: str = ""
    port: int = field(default_factory=free_port)
    more: tuple[str, ...] = ()
    """Further arguments of the master."""
    program: tuple[str, ...] = ()
    """Put before `-m detlab_hub`: what looks at it while it runs."""
    process: subprocess.Popen[bytes] | None = None
    enrolment: str = field(default_factory=lambda: f"dtenrol_{secrets.token_hex(32)}")

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def cpu(self) -> float:
        """CPU seconds that it has taken."""
        return cpu_of([self.pid])

    @property
    def memory(self) -> float:
        """Its resident memory, MB."""
        return memory_of([self.pid])

    def start(self) -> float:
        """Start it; return the seconds until it is healthy."""
        self.folder.mkdir(exist_ok=True)
        token = self.folder / "enrolment_token"
        token.write_text(self.enrolment, encoding="ascii")
        command = [
            sys.executable,
            *self.program,
            "-m",
            "detlab_hub",
            f"--DetHub.state_dir={self.folder}",
            f"--DetHub.port={self.port}",
        ]
        command += [f"--DetHub.hub_api_url=http://127.0.0.1:{self.cluster.plan['hub_port']}/hub/api"]
        command += [f"--DetHub.service_token_file={self.cluster.folder / 'secrets' / 'service_token'}"]
        command += [f"--DetHub.enrolment_token_file={token}", *self.more]
        command += [f"--DetHub.db_url={self.database}"] if self.database else []
        began = time.perf_counter()
        with (self.folder / "master.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.cluster.environment)
        while not self.healthy():
            if self.process.poll() is not None or time.perf_counter() - began > PATIENCE:
                raise SystemExit(f"the master did not start:\n{(self.folder / 'master.log').read_text()[-3000:]}")
            time.sleep(0.01)
        return time.perf_counter() - began

    def healthy(self) -> bool:
        """Whether it answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/services/detlab/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal and wait for that."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, number)
            self.process.wait(PATIENCE)

    def person(self) -> Connection:
        """A connection of the operator."""
        return Connection(self.address, self.cluster.token)


@dataclass
class Node:
    """An agent without processes: it takes what it is given to run, and says that it runs.

    Attributes:
        launches: What the master told it to run, by allocation.
        ended: What has ended of it.
    """

    master: Master
    slots: int
    name: str = "bench"
    launches: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    _socket: websocket.WebSocket = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _saying: threading.Lock = field(default_factory=threading.Lock)

    def connect(self) -> None:
        """Enrol and connect."""
        enrolling = Connection(self.master.address, self.master.enrolment)
        key = json.loads(enrolling.ask("POST", f"{API}agents/enrol", json.dumps({"agent_id": self.name}).encode()))[
            "token"
        ]
        enrolling.close()
        address = f"{self.master.address.replace('http', 'ws', 1)}{API}agents/connect"
        self._socket = websocket.create_connection(
            address, header=[f"Authorization: Bearer {key}"], timeout=PATIENCE, suppress_origin=True
        )
        slots = [{"id": f"cpu{number}"} for number in range(self.slots)]
        self.say({"type": "hello", "agent_id": self.name, "slots": slots, "uids": {}})
        threading.Thread(target=self._hear, daemon=True).start()

    def say(self, message: dict[str, Any]) -> None:
        """Send a message."""
        with self._saying:
            self._socket.send(json.dumps(message))

    def exited(self, allocation: str) -> None:
        """Say that a task has ended well."""
        run = self.launches[allocation]["run"]
        self.ended.add(allocation)
        self.say({"type": "task_exited", "allocation_id": allocation, "run": run, "exit_code": 0})

    def await_launches(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many tasks were launched in all; return them in their order."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.launches) >= count, PATIENCE):
                raise SystemExit(f"{len(self.launches)} of {count} trials were launched")
            return list(self.launches.values())

    def _hear(self) -> None:
        with suppress(OSError, websocket.WebSocketException):
            while data := self._socket.recv():
                message = json.loads(data)
                match message["type"]:
                    case "launch" if message["allocation_id"] not in self.launches:
                        with self._changed:
                            self.launches[message["allocation_id"]] = message
                            self._changed.notify_all()
                        one = {"allocation_id": message["allocation_id"], "run": message["run"]}
                        self.say({"type": "task_started", **one})
                    case "heartbeat":
                        self.say({"type": "heartbeat", "time": time.time()})

    def hang_up(self) -> None:
        """Close the connection."""
        with suppress(OSError, websocket.WebSocketException):
            self._socket.close()


@contextmanager
def running_master(
    cluster: Cluster, folder: Path, database: str = "", *, slots: int = 8, more: tuple[str, ...] = ()
) -> Iterator[tuple[Master, Node]]:
    """A master with a node; both are gone at the end."""
    master = Master(cluster, folder, database, more=more)
    try:
        master.start()
        node = Node(master, slots)
        node.connect()
        yield master, node
        node.hang_up()
    finally:
        master.end(signal.SIGKILL)


def submit(master: Master, config: dict[str, Any]) -> dict[str, Any]:
    """Submit an experiment as the operator; return its view."""
    person = master.person()
    body = json.dumps({"config": {"entrypoint": "true", "max_restarts": 0, **config}}).encode()
    view: dict[str, Any] = json.loads(person.ask("POST", f"{API}experiments", body))["experiment"]
    person.close()
    return view


def running_trials(master: Master, node: Node, count: int) -> list[dict[str, Any]]:
    """Submit a search of so many trials that run at the same time; return their launches."""
    before = len(node.launches)
    searcher = {"name": "random", "metric": "loss", "max_trials": count, "max_concurrent_trials": count}
    space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
    submit(master, {"name": "bench", "searcher": searcher, "hyperparameters": space})
    return node.await_launches(before + count)[before:]
