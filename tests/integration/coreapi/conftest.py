"""A task directory and the task API of a master, both real: files, sockets, HTTP; only the other side is ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

PREFIX = "/services/detlab/api/v1/"


@dataclass
class TaskMaster:
    """The `task/*` part of the REST API, in memory."""

    tokens: set[str] = field(default_factory=lambda: {"dttask_one"})
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    best: float | None = None
    acks: int = 0
    calls: list[str] = field(default_factory=list)
    failures: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    """(path prefix, status, body): the next matching request gets it instead of an answer."""
    lost_answers: list[str] = field(default_factory=list)
    """Path prefixes: the next matching request is carried out, but its answer never arrives."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    preempted: bool = False
    stopping: bool = False
    url: str = ""

    def preempt(self) -> None:
        with self.changed:
            self.preempted = True
            self.changed.notify_all()

    def wait_preempt(self, seconds: float) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.preempted or self.stopping, seconds)
            return self.preempted

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        match (method, path.split("/")):
            case ("GET", ["task", "preempt"]):
                return 200, {"preempt": self.wait_preempt(float(query["timeout_seconds"][0])), "reason": "pause"}
            case ("POST", ["task", "preempt", "ack"]):
                self.acks += 1
                return 200, {}
            case ("POST", ["task", "checkpoints"]):
                view = {**body, "trial_id": 7, "experiment_id": 3}
                self.checkpoints[body["uuid"]] = view
                return 200, view
            case ("GET", ["task", "checkpoints", uuid]) if uuid in self.checkpoints:
                return 200, self.checkpoints[uuid]
            case ("DELETE", ["task", "checkpoints", uuid]) if uuid in self.checkpoints:
                del self.checkpoints[uuid]
                return 200, {}
            case ("GET", ["task", "metadata"]):
                return 200, self.metadata
            case ("PUT", ["task", "metadata"]):
                self.metadata = body
                return 200, body
            case ("GET", ["task", "best-validation"]):
                return 200, {"value": self.best}
        return 404, {"code": "not_found", "message": f"no {path}"}

    def taken(self, path: str) -> tuple[int, dict[str, Any]] | None:
        for index, (prefix, status, body) in enumerate(self.failures):
            if path.startswith(prefix):
                del self.failures[index]
                return status, body
        return None


class _Handler(BaseHTTPRequestHandler):
    master: TaskMaster
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        split = urlsplit(self.path)
        path = split.path.removeprefix(PREFIX)
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        self.master.calls.append(f"{self.command} {path}")
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in self.master.tokens:
            self._reply(401, {"code": "auth.denied", "message": "token expired"})
            return
        failure = self.master.taken(path)
        if failure is not None:
            self._reply(*failure)
            return
        status, reply = self.master.answer(self.command, path, parse_qs(split.query), json.loads(raw) if raw else None)
        if any(path.startswith(prefix) for prefix in self.master.lost_answers):
            self.master.lost_answers.clear()
            self.close_connection = True
            return
        self._reply(status, reply)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _reply(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is part of the tests."""


@pytest.fixture
def master() -> Iterator[TaskMaster]:
    state = TaskMaster()
    handler = type("Handler", (_Handler,), {"master": state})
    server = _Server(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}/services/detlab/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield state
    with state.changed:
        state.stopping = True
        state.changed.notify_all()
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Task:
    """A task directory as an agent makes it."""

    root: Path
    checkpoints: Path

    def records(self) -> list[dict[str, Any]]:
        path = self.root / "spool" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def set_info(self, **changes: Any) -> None:
        path = self.root / "info.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def environment(self) -> dict[str, str]:
        base = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
        path = f"{Path(sys.executable).parent}:{base['PATH']}"
        return {**base, "PATH": path, "DET_TASK_DIR": str(self.root), "PYTHONWARNINGS": ""}

    def start(self, code: str | list[str], **extra: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", textwrap.dedent(code)] if isinstance(code, str) else code
        return subprocess.Popen(
            argv,
            env={**self.environment(), **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.root / "work",
        )

    def run(self, code: str | list[str], timeout: float = 60, **extra: str) -> tuple[int, str]:
        process = self.start(code, **extra)
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output


@pytest.fixture
def task(tmp_path: Path, master: TaskMaster) -> Task:
    root = tmp_path / "task"
    for name in ("work", "spool", "tmp"):
        (root / name).mkdir(parents=True)
    checkpoints = tmp_path / "checkpoints"
    info = {
        "master_url": master.url,
        "cluster_id": "c1",
        "agent_id": "a1",
        "slot_ids": [0],
        "task_id": "3.abc",
        "allocation_id": "3.abc.1",
        "task_type": "TRIAL",
        "run": 1,
        "trial_id": 7,
        "experiment_id": 3,
        "trial_seed": 42,
        "hparams": {"increment_by": 2},
        "config": {
            "data": {"who": "me"},
            "searcher": {"name": "single", "metric": "x", "max_length": 20},
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(checkpoints)},
        },
        "container_slot_counts": [1],
    }
    (root / "info.json").write_text(json.dumps(info))
    token = root / "token"
    token.write_text("dttask_one")
    token.chmod(0o600)
    return Task(root, checkpoints)


@pytest.fixture
def in_task(task: Task, monkeypatch: pytest.MonkeyPatch) -> Task:
    """This very process is the task."""
    for name in [name for name in os.environ if re.match(r"DET_", name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DET_TASK_DIR", str(task.root))
    return task


Ranks = Callable[..., list[tuple[int, str]]]


@pytest.fixture
def ranks(task: Task) -> Ranks:
    """Run one piece of code as N ranks of the task and return (exit code, output) of each."""
    head = """
    import os, sys, logging
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    import detlab as det
    rank, size = int(os.environ["R"]), int(os.environ["N"])
    def context(**more):
        args = dict(rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1)
        return det.core.DistributedContext(**{"timeout": 30, **args, **more})
    """

    def run(code: str, size: int, timeout: float = 60, **extra: str) -> list[tuple[int, str]]:
        task.set_info(slot_ids=list(range(size)))
        text = textwrap.dedent(head) + textwrap.dedent(code)
        processes = [task.start(text, R=str(rank), N=str(size), **extra) for rank in range(size)]
        try:
            outputs = [process.communicate(timeout=timeout)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]

    return run
