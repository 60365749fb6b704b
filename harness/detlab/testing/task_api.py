"""The task API of a master (`task/*`), over real HTTP, in memory, with faults on demand.

For tests of training code and of the Core API; agents and launchers have `detlab.testing.master`.

    with TaskApi() as api:
        task = make_task_dir(tmp_path, api.url)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from detlab.schemas import wire

TOKEN = "dttask_test"  # noqa: S105  (opens nothing)
_PREFIX = wire.SERVICE_PREFIX + wire.API_PREFIX


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request.

    Attributes:
        path: Prefix of the path below `api/v1/`, such as `task/checkpoints`.
        status: Answered instead of carrying the request out; 0: carried out, but the answer never arrives.
        code: Error code of the answer.
    """

    path: str
    status: int
    code: str = "internal"


class TaskApi:
    """The API of one trial; a context manager that starts and stops its server.

    Attributes:
        tokens: What is accepted as bearer token.
        checkpoints: Committed ones, by uuid, as the replies show them.
        metadata: Of the trial.
        best: Best validation of the experiment.
        acks: Preemption acknowledgements received.
        calls: `METHOD path` of every request.
        faults: Each is used up by the first request that it fits.
    """

    def __init__(self) -> None:
        self.tokens = {TOKEN}
        self.checkpoints: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, Any] = {}
        self.best: float | None = None
        self.acks = 0
        self.calls: list[str] = []
        self.faults: list[Fault] = []
        self._changed = threading.Condition()
        self._preempted = False
        self._stopping = False
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Address of the service."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{wire.SERVICE_PREFIX}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def preempt(self, on: bool = True) -> None:
        """Turn the preemption signal on (or, for the next attempt, off)."""
        with self._changed:
            self._preempted = on
            self._changed.notify_all()

    def wait_for_call(self, call: str, count: int = 1, timeout: float = 20.0) -> None:
        """Wait until `METHOD path` was requested `count` times.

        Raises:
            TimeoutError: It was not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.calls.count(call) >= count, timeout):
                raise TimeoutError(f"{call} was requested {self.calls.count(call)} times in {timeout} s")

    def note(self, call: str) -> Fault | None:
        """Count a request and return what shall go wrong with it."""
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
            path = call.split(" ", 1)[1]
            fault = next((fault for fault in self.faults if path.startswith(fault.path)), None)
            if fault is not None:
                self.faults.remove(fault)
            return fault

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Carry a request out; return status and body."""
        match (method, path.split("/")):
            case ("GET", ["task", "preempt"]):
                return 200, {"preempt": self._poll(float(query["timeout_seconds"][0])), "reason": "pause"}
            case ("POST", ["task", "preempt", "ack"]):
                self.acks += 1
                return 200, {}
            case ("POST", ["task", "checkpoints"]):
                return 200, self._commit(body)
            case ("GET", ["task", "checkpoints", uuid]) if uuid in self.checkpoints:
                return 200, self.checkpoints[uuid]
            case ("DELETE", ["task", "checkpoints", uuid]) if uuid in self.checkpoints:
                return 200, self.checkpoints.pop(uuid)
            case ("GET", ["task", "metadata"]):
                return 200, self.metadata
            case ("PUT", ["task", "metadata"]):
                self.metadata = body
                return 200, body
            case ("GET", ["task", "best-validation"]):
                return 200, wire.BestValidationReply(value=self.best).model_dump()
        return 404, {"code": "not_found", "message": f"no {path}"}

    def _poll(self, seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._preempted or self._stopping, seconds)
            return self._preempted

    def _commit(self, body: Any) -> dict[str, Any]:
        commit = wire.CommitCheckpoint.model_validate(body)
        view = wire.CheckpointView(**commit.model_dump(), trial_id=7, experiment_id=3)
        reply: dict[str, Any] = view.model_dump(mode="json")
        return self.checkpoints.setdefault(commit.uuid, reply)


def make_task_dir(root: Path, url: str, *, storage: dict[str, Any], slots: Sequence[int] = (0,), **info: Any) -> Path:
    """Make a task directory as an agent does.

    Args:
        root: Made; must not exist.
        url: Address of the service.
        storage: The `checkpoint_storage` block.
        slots: Slot numbers.
        info: Other fields of `ClusterInfoWire`.

    Returns:
        `root`.
    """
    for name in ("work", "spool", "tmp"):
        (root / name).mkdir(mode=0o700, parents=True)
    config = {
        "data": {"who": "me"},
        "searcher": {"name": "single", "metric": "x", "max_length": 20},
        "checkpoint_storage": storage,
    }
    fields: dict[str, Any] = {
        "master_url": url,
        "cluster_id": "c1",
        "agent_id": "a1",
        "slot_ids": list(slots),
        "task_id": "3.abc",
        "allocation_id": "3.abc.1",
        "run": 1,
        "trial_id": 7,
        "experiment_id": 3,
        "trial_seed": 42,
        "hparams": {"increment_by": 2},
        "config": config,
        "container_slot_counts": [len(slots)],
    }
    document = wire.ClusterInfoWire(**{**fields, **info})
    (root / "info.json").write_text(document.model_dump_json(), encoding="utf-8")
    (root / "token").write_text(TOKEN, encoding="ascii")
    (root / "token").chmod(0o600)
    return root


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    api: TaskApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        api = self.server.api
        split = urlsplit(self.path)
        path = split.path.removeprefix(_PREFIX)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = api.note(f"{self.command} {path}")
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in api.tokens:
            self._reply(401, {"code": "auth.denied", "message": "the token is not known"})
        elif fault is not None and fault.status:
            self._reply(fault.status, {"code": fault.code, "message": f"fault {fault.status}"})
        else:
            status, body = api.answer(self.command, path, parse_qs(split.query), json.loads(raw) if raw else None)
            if fault is not None:
                self.close_connection = True
            else:
                self._reply(status, body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  (names of the base class)

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

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (name of the base class)
        """Stay silent."""
