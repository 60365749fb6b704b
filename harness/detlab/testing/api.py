"""A master made of memory, behind real HTTP: for tests of whatever talks to one.

It speaks the wire models of `detlab.schemas.wire` over a real socket and misbehaves on request: it can refuse,
forget to answer after it has acted, and cut a stream in the middle of a line. It schedules nothing: the test says
what happens.

    with FakeMaster() as master:
        client = Client(master.url, master.token)
        master.faults.append(Fault("POST", "experiments", "lose_reply"))
        client.create_experiment({"name": "x"})          # submitted once, answered at the second attempt
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from detlab.schemas.wire import (
    API_PREFIX,
    SERVICE_PREFIX,
    AgentView,
    CheckpointFile,
    CheckpointView,
    ClusterView,
    CreateExperiment,
    CreateExperimentReply,
    CurvesView,
    ErrorView,
    Event,
    ExperimentState,
    ExperimentView,
    LogLine,
    ProblemView,
    SeriesView,
    SlotView,
    TrialState,
    TrialView,
    UserView,
    Wire,
)

FaultKind = Literal["unavailable", "html", "lose_reply", "refuse", "cut", "cut_mid_line"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour, used up by the first request it matches.

    Attributes:
        method: HTTP verb.
        path: Regular expression that matches a path below `api/v1/` from its beginning.
        kind: `unavailable` (503 as a proxy sends it), `html` (502 with a page), `refuse` (close before acting),
            `lose_reply` (act, then close), `cut` and `cut_mid_line` (close a stream after `lines` lines).
        lines: How many lines a cut stream sends before.
    """

    method: str
    path: str
    kind: FaultKind
    lines: int = 0


class Refusal(Exception):
    """A reply that is an error."""

    def __init__(self, status: int, code: str, message: str, problems: list[ProblemView] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.view = ErrorView(code=code, message=message, problems=problems or [])


@dataclass
class FakeMaster:
    """The state, the levers, and the server while used as a context manager.

    Attributes:
        token: The one token that is let in.
        faults: Misbehaviours to come.
        requests: (method, path below `api/v1/`) of everything that was asked.
        problems: If set, every submit is refused with them.
        keep_alive: Seconds between the empty lines of a silent stream.
        oldest: Cursors before this get a resync.
    """

    token: str = "a-token"  # noqa: S105  (opens nothing)
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[tuple[str, str]] = field(default_factory=list)
    problems: list[ProblemView] = field(default_factory=list)
    warnings: list[ProblemView] = field(default_factory=list)
    keep_alive: float = 0.05
    oldest: int = 0
    experiments: dict[int, ExperimentView] = field(default_factory=dict)
    trials: dict[int, TrialView] = field(default_factory=dict)
    series: dict[int, list[SeriesView]] = field(default_factory=dict)
    logs: list[LogLine] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    checkpoints: dict[str, CheckpointView] = field(default_factory=dict)
    agents: list[AgentView] = field(default_factory=list)
    bundles: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    submitted: list[CreateExperiment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.closing = False
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    # --- the server ---------------------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """Return the routes, which a subclass may add to."""
        return _ROUTES

    def __enter__(self) -> FakeMaster:
        handler = type("Handler", (_Handler,), {"master": self, "routes": self.routes()})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Address of the Hub."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    # --- what the test makes happen -----------------------------------------------------------------------

    def await_request(self, method: str, path: str, timeout: float = 30.0) -> None:
        """Wait until somebody has asked for exactly this path below `api/v1/`.

        Raises:
            TimeoutError: Nobody has.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: (method, path) in self.requests, timeout):
                raise TimeoutError(f"nobody asked for {method} {path}")

    def publish(self, kind: str, experiment_id: int | None, data: Any, trial_id: int | None = None) -> Event:
        """Append an event and wake the streams."""
        with self.changed:
            event = Event(
                id=len(self.events) + 1,
                kind=kind,
                time=time.time(),
                experiment_id=experiment_id,
                trial_id=trial_id,
                data=data.model_dump(mode="json") if isinstance(data, Wire) else data,
            )
            self.events.append(event)
            self.changed.notify_all()
            return event

    def add_experiment(self, name: str = "digits", **facts: Any) -> ExperimentView:
        """Make an experiment."""
        with self.changed:
            number = len(self.experiments) + 1
            given: dict[str, Any] = {
                "owner": "alice",
                "state": ExperimentState.ACTIVE,
                "searcher": "random",
                "metric": "val_loss",
                "created_at": time.time(),
                "config": {"name": name},
                **facts,
            }
            view = ExperimentView(id=number, name=name, **given)
            self.experiments[number] = view
            self.publish("experiment", number, view)
            return view

    def update_experiment(self, experiment_id: int, **facts: Any) -> None:
        """Change an experiment and tell the streams."""
        with self.changed:
            view = self.experiments[experiment_id].model_copy(update=facts)
            self.experiments[experiment_id] = view
            self.publish("experiment", experiment_id, view.model_copy(update={"config": None}))

    def add_trial(self, experiment_id: int, **facts: Any) -> TrialView:
        """Make a trial."""
        with self.changed:
            number = len(self.trials) + 1
            index = sum(trial.experiment_id == experiment_id for trial in self.trials.values())
            given: dict[str, Any] = {"state": TrialState.ACTIVE, "request_id": uuid.uuid4().hex, **facts}
            view = TrialView(id=number, index=index, experiment_id=experiment_id, **given)
            self.trials[number] = view
            self.publish("trial", experiment_id, view, number)
            return view

    def update_trial(self, trial_id: int, **facts: Any) -> None:
        """Change a trial and tell the streams."""
        with self.changed:
            view = self.trials[trial_id].model_copy(update=facts)
            self.trials[trial_id] = view
            self.publish("trial", view.experiment_id, view, trial_id)

    def log(self, trial_id: int, text: str, **facts: Any) -> None:
        """Append a line of output."""
        with self.changed:
            self.logs.append(LogLine(id=len(self.logs) + 1, trial_id=trial_id, text=text, time=time.time(), **facts))
            self.changed.notify_all()

    def add_checkpoint(self, trial_id: int, files: dict[str, bytes], **facts: Any) -> CheckpointView:
        """Commit a checkpoint with these files."""
        with self.changed:
            manifest = {}
            for path, content in files.items():
                digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
                self.blobs[digest] = content
                manifest[path] = CheckpointFile(size=len(content), digest=digest)
            view = CheckpointView(
                uuid=str(uuid.uuid4()),
                trial_id=trial_id,
                experiment_id=self.trials[trial_id].experiment_id,
                files=manifest,
                size=sum(len(content) for content in files.values()),
                created_at=time.time(),
                **facts,
            )
            self.checkpoints[view.uuid] = view
            self.publish("checkpoint", view.experiment_id, view, trial_id)
            return view

    def add_agent(self, agent_id: str = "node1", slots: int = 2, **facts: Any) -> None:
        """Connect an agent."""
        self.agents.append(AgentView(id=agent_id, slots=[SlotView(id=str(n)) for n in range(slots)], **facts))

    # --- what the routes do -------------------------------------------------------------------------------

    def experiment(self, number: str) -> ExperimentView:
        """Return an experiment or refuse."""
        found = self.experiments.get(int(number))
        if found is None:
            raise Refusal(404, "not_found", f"there is no experiment {number}")
        return found

    def trial(self, number: str) -> TrialView:
        """Return a trial or refuse."""
        found = self.trials.get(int(number))
        if found is None:
            raise Refusal(404, "not_found", f"there is no trial {number}")
        return found

    def checkpoint(self, number: str) -> CheckpointView:
        """Return a checkpoint or refuse."""
        found = self.checkpoints.get(number)
        if found is None:
            raise Refusal(404, "not_found", f"there is no checkpoint {number}")
        return found

    def create(self, body: CreateExperiment) -> CreateExperimentReply:
        """Submit, once per idempotency key."""
        with self.changed:
            if self.problems:
                raise Refusal(422, "config.invalid", "the experiment config cannot be used", self.problems)
            self.submitted.append(body)
            key = body.idempotency_key or uuid.uuid4().hex
            config = body.config or {"text": body.config_yaml}
            if body.dry_run:
                return CreateExperimentReply(created=False, warnings=self.warnings, config=config)
            created = key not in self.keys
            if created:
                state = ExperimentState.ACTIVE if body.activate else ExperimentState.PAUSED
                view = self.add_experiment(
                    str(config.get("name", "unnamed")), state=state, bundle=body.bundle, config=config
                )
                self.keys[key] = view.id
            return CreateExperimentReply(
                experiment=self.experiments[self.keys[key]], created=created, warnings=self.warnings, config=config
            )

    def act(self, number: str, action: str) -> ExperimentView:
        """Pause, activate, cancel or kill."""
        states = {
            "pause": ExperimentState.PAUSED,
            "activate": ExperimentState.ACTIVE,
            "cancel": ExperimentState.CANCELED,
            "kill": ExperimentState.CANCELED,
        }
        with self.changed:
            if self.experiment(number).state.terminal:
                raise Refusal(409, "conflict", f"experiment {number} has ended")
            self.update_experiment(int(number), state=states[action])
            return self.experiment(number)

    def curves(self, number: str) -> CurvesView:
        """Return a snapshot."""
        with self.changed:
            view = self.experiment(number)
            trials = [trial for trial in self.trials.values() if trial.experiment_id == view.id]
            curves = [curve for trial in trials for curve in self.series.get(trial.id, [])]
            return CurvesView(cursor=len(self.events), experiment=view, trials=trials, curves=curves)

    def events_after(self, experiment_id: int, cursor: int) -> Iterator[list[Event]]:
        """Yield what is new, an empty list for a keep-alive, for ever."""
        if cursor < self.oldest:
            yield [Event(id=len(self.events), kind="resync", experiment_id=experiment_id)]
            cursor = len(self.events)
        while not self.closing:
            with self.changed:
                fresh = [event for event in self.events if event.id > cursor]
                if not fresh:
                    self.changed.wait(self.keep_alive)
                    fresh = [event for event in self.events if event.id > cursor]
            cursor = fresh[-1].id if fresh else cursor
            yield [event for event in fresh if event.experiment_id == experiment_id]

    def logs_after(self, trial_id: int, cursor: int) -> Iterator[list[LogLine]]:
        """Yield what is new until the trial has ended."""
        while not self.closing:
            with self.changed:
                fresh = [line for line in self.logs if line.trial_id == trial_id and line.id > cursor]
                ended = self.trials[trial_id].state.terminal
                if not fresh and not ended:
                    self.changed.wait(self.keep_alive)
            cursor = fresh[-1].id if fresh else cursor
            yield list(fresh)
            if ended and not fresh:
                return


class _Handler(BaseHTTPRequestHandler):
    """One request: the token, the fault, the route."""

    master: FakeMaster
    routes: list[Route]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (name of the base class)
        """Say nothing."""

    def do_GET(self) -> None:
        """Serve GET."""
        self._serve()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  (names of the base class)

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path).removeprefix(SERVICE_PREFIX).removeprefix(API_PREFIX)
        self.query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.master.changed:
            self.master.requests.append((self.command, path))
            self.master.changed.notify_all()
        self.fault = self._take_fault(path)
        if self.fault is not None and self.fault.kind in {"refuse", "unavailable", "html"}:
            self._misbehave(self.fault.kind)
            return
        try:
            if not parts.path.startswith(SERVICE_PREFIX):
                raise Refusal(404, "http.404", "not the service")
            if self.headers.get("Authorization") != f"Bearer {self.master.token}":
                raise Refusal(401, "auth.denied", "no valid token came with the request")
            self._route(path)
        except Refusal as refusal:
            self._reply(refusal.status, refusal.view.model_dump_json().encode())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _take_fault(self, path: str) -> Fault | None:
        with self.master.changed:
            for fault in self.master.faults:
                if fault.method == self.command and re.match(fault.path, path):
                    self.master.faults.remove(fault)
                    return fault
        return None

    def _misbehave(self, kind: str) -> None:
        if kind == "refuse":
            self.close_connection = True
        elif kind == "unavailable":
            self._reply(503, b"Service Unavailable", "text/plain")
        else:
            self._reply(502, b"<html><title>Bad gateway</title></html>", "text/html")

    def _route(self, path: str) -> None:
        for method, pattern, serve in self.routes:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                serve(self, *match.groups())
                return
        raise Refusal(404, "http.404", f"no route {self.command} {path}")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        if self.fault is not None and self.fault.kind == "lose_reply":
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def tell(self, value: Any) -> None:
        """Reply with a model or with plain data that may hold models."""
        if isinstance(value, Wire):
            self._reply(200, value.model_dump_json().encode())
            return
        text = json.dumps(value, default=lambda item: item.model_dump(mode="json"))
        self._reply(200, text.encode())

    def send_bytes(self, body: bytes) -> None:
        """Reply with a file."""
        self._reply(200, body, "application/octet-stream")

    def stream(self, batches: Iterator[list[Any]]) -> None:
        """Send lines in chunks until the source ends or the fault says so."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        cut = self.fault.lines if self.fault is not None else None
        sent = 0
        for batch in batches:
            for item in batch:
                if cut is not None and sent >= cut:
                    half = item.model_dump_json().encode()[:20]
                    if self.fault is not None and self.fault.kind == "cut_mid_line":
                        self._chunk(half)
                    self.close_connection = True
                    return
                self._chunk(item.model_dump_json().encode() + b"\n")
                sent += 1
            if not batch:
                self._chunk(b"\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    # --- routes -------------------------------------------------------------------------------------------

    def list_experiments(self) -> None:
        """GET experiments."""
        before = int(self.query.get("before", 10**9))
        found = sorted((v for v in self.master.experiments.values() if v.id < before), key=lambda v: -v.id)
        for key in ("state", "owner"):
            if key in self.query:
                found = [view for view in found if str(getattr(view, key)) == self.query[key]]
        if "name" in self.query:
            found = [view for view in found if self.query["name"] in view.name]
        self._page(found)

    def list_trials(self, number: str) -> None:
        """GET experiments/{id}/trials."""
        self.master.experiment(number)
        after = int(self.query.get("after", 0))
        trials = self.master.trials.values()
        self._page([view for view in trials if view.experiment_id == int(number) and view.id > after])

    def _page(self, found: list[Any]) -> None:
        limit = int(self.query.get("limit", 50))
        page = found[:limit]
        self.tell({"items": page, "next": page[-1].id if len(found) > limit else None})

    def list_logs(self, number: str) -> None:
        """GET trials/{id}/logs."""
        self.master.trial(number)
        after = int(self.query.get("after", 0))
        found = [line for line in self.master.logs if line.trial_id == int(number) and line.id > after]
        if "rank" in self.query:
            found = [line for line in found if line.rank == int(self.query["rank"])]
        if "search" in self.query:
            found = [line for line in found if self.query["search"] in line.text]
        if "tail" in self.query:
            tail = int(self.query["tail"])
            self.tell({"items": found[-tail:] if tail else [], "next": None})
            return
        self._page(found)

    def follow_experiment(self, number: str) -> None:
        """GET experiments/{id}/stream."""
        self.master.experiment(number)
        cursor = int(self.query.get("after", len(self.master.events)))
        self.stream(self.master.events_after(int(number), cursor))

    def follow_logs(self, number: str) -> None:
        """GET trials/{id}/logs/stream."""
        self.master.trial(number)
        self.stream(self.master.logs_after(int(number), int(self.query.get("after", 0))))

    def put_bundle(self, digest: str) -> None:
        """PUT bundles/{digest}."""
        if digest != f"sha256:{hashlib.sha256(self.body).hexdigest()}":
            raise Refusal(422, "bundle.invalid", "the body is not what its digest says")
        self.master.bundles[digest] = self.body
        self.tell({"digest": digest, "created": True})

    def head_bundle(self, digest: str) -> None:
        """HEAD bundles/{digest}."""
        self._reply(200 if digest in self.master.bundles else 404, b"")

    def get_code(self, number: str) -> None:
        """GET experiments/{id}/bundle."""
        digest = self.master.experiment(number).bundle
        if digest is None:
            raise Refusal(404, "not_found", f"experiment {number} has no code")
        self.send_bytes(self.master.bundles[digest])

    def get_file(self, number: str, digest: str) -> None:
        """GET checkpoints/{uuid}/files/{digest}."""
        self.master.checkpoint(number)
        self.send_bytes(self.master.blobs[digest])

    def delete(self, number: str) -> None:
        """DELETE experiments/{id}."""
        if not self.master.experiment(number).state.terminal:
            raise Refusal(409, "conflict", f"experiment {number} has not ended", None)
        del self.master.experiments[int(number)]
        self.tell({"deleted": int(number)})

    def kill_trial(self, number: str) -> None:
        """POST trials/{id}/kill."""
        self.master.trial(number)
        self.master.update_trial(int(number), state=TrialState.CANCELED)
        self.tell(self.master.trial(number))

    def list_checkpoints(self, kind: str, number: str) -> None:
        """GET experiments|trials/{id}/checkpoints."""
        key = "experiment_id" if kind == "experiments" else "trial_id"
        found = [item for item in self.master.checkpoints.values() if getattr(item, key) == int(number)]
        self.tell({"items": found})


Route = tuple[str, str, Callable[..., None]]
_ROUTES: list[Route] = [
    ("GET", r"me", lambda h: h.tell(UserView(name="alice", scopes=["read", "write"]))),
    ("GET", r"cluster", lambda h: h.tell(ClusterView(cluster_id="c1", version="0.0.0-fake"))),
    ("GET", r"agents", lambda h: h.tell(h.master.agents)),
    ("HEAD", r"bundles/(.+)", _Handler.head_bundle),
    ("PUT", r"bundles/(.+)", _Handler.put_bundle),
    ("POST", r"experiments", lambda h: h.tell(h.master.create(CreateExperiment.model_validate_json(h.body)))),
    ("GET", r"experiments", _Handler.list_experiments),
    ("GET", r"experiments/(\d+)", lambda h, n: h.tell(h.master.experiment(n))),
    ("POST", r"experiments/(\d+)/(pause|activate|cancel|kill)", lambda h, n, a: h.tell(h.master.act(n, a))),
    ("DELETE", r"experiments/(\d+)", _Handler.delete),
    ("GET", r"experiments/(\d+)/bundle", _Handler.get_code),
    ("GET", r"experiments/(\d+)/trials", _Handler.list_trials),
    ("GET", r"(experiments|trials)/(\d+)/checkpoints", _Handler.list_checkpoints),
    ("GET", r"experiments/(\d+)/curves", lambda h, n: h.tell(h.master.curves(n))),
    ("GET", r"experiments/(\d+)/stream", _Handler.follow_experiment),
    ("GET", r"trials/(\d+)", lambda h, n: h.tell(h.master.trial(n))),
    ("POST", r"trials/(\d+)/kill", _Handler.kill_trial),
    ("GET", r"trials/(\d+)/metrics", lambda h, n: h.tell({"items": h.master.series.get(int(n), [])})),
    ("GET", r"trials/(\d+)/logs", _Handler.list_logs),
    ("GET", r"trials/(\d+)/logs/stream", _Handler.follow_logs),
    ("GET", r"checkpoints/([^/]+)", lambda h, n: h.tell(h.master.checkpoint(n))),
    ("GET", r"checkpoints/([^/]+)/files/(.+)", _Handler.get_file),
]
