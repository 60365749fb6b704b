"""A master to test agents, launchers and the code of trials against: the real HTTP seam, no database, faults on demand.

`MasterDouble` speaks what `docs/explanation/architecture.md` (sections 2 to 4) says to agents and tasks: enrolment,
the agents' WebSocket, bundles, records with high-water marks, token renewal, and the task API of a trial
(`detlab.testing.trial_api`). It runs in a thread of its own on a
loopback port that stays the same over `stop` and `start`, and it can answer with errors, drop replies after
committing them, or fence an allocation.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from pydantic import TypeAdapter
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from detlab.schemas import wire
from detlab.schemas.wire.governance.attestation import Attestation
from detlab.testing.bundles import files_digest, packed_digest
from detlab.testing.ports import free_port
from detlab.testing.trial_api import TrialApi

_agent_message: TypeAdapter[wire.AgentMessage] = TypeAdapter(wire.AgentMessage)
_PREFIX = wire.SERVICE_PREFIX + wire.API_PREFIX


@dataclass
class FakeAllocation:
    """What the double knows of one allocation."""

    launch: wire.Launch
    token: str
    marks: dict[str, int] = field(default_factory=lambda: {"metrics": 0, "logs": 0})
    records: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"metrics": [], "logs": []})
    started: int = 0
    starts: list[wire.TaskStarted] = field(default_factory=list)
    stages: list[wire.TaskStage] = field(default_factory=list)
    exits: list[wire.TaskExited] = field(default_factory=list)
    acknowledge: bool = True
    fenced: bool = False
    arrivals: list[float] = field(default_factory=list)
    """When each committed batch came."""


class MasterDouble(TrialApi):
    """The double; a context manager that starts and stops it.

    Args:
        token_life: Life of task tokens, seconds.
        address: Where it listens.
    """

    def __init__(self, token_life: float = 3600.0, address: str = "127.0.0.1") -> None:
        super().__init__()
        self.token_life = token_life
        self.address = address
        self.enrolment_token = f"dtenrol_{secrets.token_hex(32)}"
        self.agent_tokens: dict[str, str] = {}
        self.allocations: dict[str, FakeAllocation] = {}
        self.bundles: dict[str, bytes] = {}
        self.in_its_stead: dict[str, deque[int]] = {"enrol": deque(), "bundle": deque()}
        """Statuses with which a proxy or a Hub answers the next requests of a kind, in words of their own."""
        self.hellos: list[wire.Hello] = []
        self.nonce = ""
        """The challenge that agents are to answer; empty: an older master, which makes none."""
        self.attestations: list[Attestation] = []
        self.takes_more = True
        """Whether it takes `MoreNodes`, which are added to the last Hello; else it is like an older master."""
        self.unauthorised: list[str] = []
        """Paths that were asked for without a valid token."""
        self.renewals: Counter[str] = Counter()
        self.refuse_records: Callable[[dict[str, Any]], str | None] = lambda record: None
        self.keep_on_welcome = True
        self.uids_from = 23_000
        """The uid of the first owner; those after get the following ones."""
        self.uids: dict[str, int] = {}
        self.polls = ThreadPoolExecutor(64, "polls-of-the-double")
        self.port = free_port()
        self._connections: dict[str, _Connect] = {}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    # --- life ------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Address of the service."""
        return f"http://{self.address}:{self.port}{wire.SERVICE_PREFIX}"

    def start(self) -> None:
        """Start to listen, in a thread.

        Raises:
            RuntimeError: It does not listen within 10 seconds.
        """
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        if not ready.wait(10.0):
            raise RuntimeError("the double does not listen")

    def stop(self) -> None:
        """Break every connection and listen no more; what was committed stays."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10.0)
        self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._stop = asyncio.Event()
        routes: list[Any] = [
            (_PREFIX + "agents/enrol", _Enrol),
            (_PREFIX + "agents/connect", _Connect),
            (_PREFIX + "agents/records", _AgentRecords),
            (_PREFIX + "bundles/(.+)", _Bundle),
            (_PREFIX + "task/records", _TaskRecords),
            (_PREFIX + "task/token", _TaskToken),
            (_PREFIX + "task/(.+)", _TrialCall),
        ]
        application = Application(routes, double=self, log_function=lambda handler: None)
        server = HTTPServer(application, max_body_size=1 << 30)
        server.add_sockets(bind_sockets(self.port, self.address, reuse_port=False))
        ready.set()
        await self._stop.wait()
        server.stop()
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()
        await server.close_all_connections()

    # --- what tests ask for ------------------------------------------------------------------------------------

    def add_bundle(self, data: bytes) -> str:
        """Keep a bundle; return its digest: of its bytes, if nobody could unpack them."""
        digest = files_digest(data) or packed_digest(data)
        self.bundles[digest] = data
        return digest

    def allocate(
        self,
        entrypoint: str | Sequence[str],
        *,
        allocation_id: str = "",
        run: int = 1,
        owner: str = "alice",
        slots: Sequence[str] = ("cpu0",),
        environment: dict[str, str] | None = None,
        bundle: str | None = None,
        config: dict[str, Any] | None = None,
        **more: Any,
    ) -> FakeAllocation:
        """Make an allocation with its token and Launch message (`more`: its further fields), without sending it."""
        number = len(self.allocations) + 1
        name = allocation_id or f"{number}.{secrets.token_hex(8)}.{run}"
        token = f"dttask_{secrets.token_hex(32)}"
        info = wire.ClusterInfoWire(
            master_url=self.url,
            cluster_id="double",
            agent_id="agent",
            slot_ids=list(range(len(slots))),
            task_id=f"task-{number}",
            allocation_id=name,
            run=run,
            trial_id=number,
            experiment_id=1,
            trial_seed=7,
            hparams={"lr": 0.1},
            config=config or {},
            owner=owner,
        )
        launch = wire.Launch(
            allocation_id=name,
            run=run,
            owner=owner,
            slots=list(slots),
            entrypoint=entrypoint if isinstance(entrypoint, str) else list(entrypoint),
            environment=environment or {},
            bundle=bundle,
            info=info,
            task_token=token,
            token_expires_at=time.time() + self.token_life,
            token_life=self.token_life,
            **{"uid": self.uids.setdefault(owner, self.uids_from + len(self.uids)), **more},
        )
        allocation = FakeAllocation(launch, token)
        self.allocations[name] = allocation
        return allocation

    def send(self, message: wire.Launch | wire.Kill | wire.ExitAck, agent: str = "agent") -> None:
        """Send a message to a connected agent.

        Raises:
            RuntimeError: The double is stopped.
        """
        loop = self._loop
        if loop is None:
            raise RuntimeError("the double is stopped")
        data = message.model_dump_json()
        asyncio.run_coroutine_threadsafe(self._send(agent, data), loop).result(10.0)

    async def _send(self, agent: str, data: str) -> None:
        await self._connections[agent].write_message(data)

    def launch(self, entrypoint: str | Sequence[str], **options: Any) -> FakeAllocation:
        """Allocate and send the Launch; options as of `allocate`."""
        allocation = self.allocate(entrypoint, **options)
        self.send(allocation.launch)
        return allocation

    def send_kill(self, allocation: FakeAllocation, grace: float = 5.0) -> None:
        """Ask the agent to end a task."""
        name, run = allocation.launch.allocation_id, allocation.launch.run
        self.send(wire.Kill(allocation_id=name, run=run, grace=grace, node=allocation.launch.node))

    def wait_for(self, condition: Callable[[], Any], timeout: float = 20.0, what: str = "") -> Any:
        """Wait until `condition` is true of the double's state; return its value.

        Raises:
            TimeoutError: It did not become true.
        """
        with self.changed:
            value = self.changed.wait_for(condition, timeout)
        if not value:
            raise TimeoutError(f"not within {timeout} s: {what or condition}")
        return value

    def connected(self, agent: str = "agent") -> bool:
        """Whether the agent is connected and welcomed."""
        return agent in self._connections

    def texts(self, allocation: FakeAllocation, stdtype: str | None = None) -> list[str]:
        """Return the log lines that are committed, in the order of commit."""
        return [r["text"] for r in allocation.records["logs"] if stdtype in {None, r.get("stdtype", "stdout")}]

    # --- inside ------------------------------------------------------------------------------------------------

    def note(self) -> None:
        """Tell the waiting test that something changed."""
        with self.changed:
            self.changed.notify_all()

    def commit(self, allocation: FakeAllocation, body: bytes) -> wire.RecordAck:
        """Take a batch as the master does: in order, each seq once."""
        batch = json.loads(body)
        wire.RecordBatch.model_validate(batch)
        stream = batch["stream"]
        refused = []
        with self.changed:
            for record in batch["records"]:
                if record["seq"] <= allocation.marks[stream]:
                    continue
                allocation.marks[stream] = record["seq"]
                problem = self.refuse_records(record)
                if problem:
                    refused.append(wire.RefusedRecord(seq=record["seq"], code="bad_record", message=problem))
                else:
                    allocation.records[stream].append(record)
            allocation.arrivals.append(time.time())
            self.changed.notify_all()
        return wire.RecordAck(acked=allocation.marks[stream], refused=refused)


class _Handler(RequestHandler):
    @property
    def double(self) -> MasterDouble:
        double: MasterDouble = self.settings["double"]
        return double

    def bearer(self) -> str:
        return self.request.headers.get("Authorization", "").removeprefix("Bearer ")

    def prepare(self) -> None:
        path = self.request.path.removeprefix(_PREFIX)
        self.fault = self.double.note_call(f"{self.request.method} {path}")

    def fail(self, status: int, code: str) -> None:
        if status == 401:
            self.double.unauthorised.append(self.request.path)
        self.set_status(status)
        self.finish(wire.ErrorView(code=code, message=code).model_dump_json())

    def break_off(self) -> None:
        """Close the connection instead of a reply."""
        stream = self.request.connection.detach()  # type: ignore[union-attr]  # over HTTP/1 there is one
        stream.close()
        self._finished = True

    def is_astray(self, kind: str) -> bool:
        """Answer as something before the master would, if it is to."""
        statuses = self.double.in_its_stead[kind]
        if not statuses:
            return False
        self.set_status(statuses.popleft())
        self.set_header("Location", f"/hub{self.request.path}")
        self.finish("<html>Not the master</html>")
        return True


class _Enrol(_Handler):
    def post(self) -> None:
        if self.is_astray("enrol"):
            return None
        if self.bearer() != self.double.enrolment_token:
            return self.fail(401, "bad_token")
        request = wire.EnrolRequest.model_validate_json(self.request.body)
        token = f"dtagent_{secrets.token_hex(32)}"
        self.double.agent_tokens[token] = request.agent_id
        self.finish(wire.EnrolReply(agent_id=request.agent_id, token=token).model_dump_json())
        return None


class _Bundle(_Handler):
    def get(self, digest: str) -> None:
        if self.is_astray("bundle"):
            return None
        tasks = {one.token for one in self.double.allocations.values() if one.launch.bundle == unquote(digest)}
        if self.bearer() not in self.double.agent_tokens and self.bearer() not in tasks:
            return self.fail(401, "bad_token")
        data = self.double.bundles.get(unquote(digest))
        if data is None:
            return self.fail(404, "not_found")
        self.finish(data)
        return None


class _Records(_Handler):
    def take(self, allocation: FakeAllocation | None) -> None:
        if allocation is None:
            return self.fail(401, "bad_token")
        if allocation.fenced:
            return self.fail(409, "stale_attempt")
        if self.fault is not None and self.fault.status:
            return self.fail(self.fault.status, self.fault.code)
        try:
            ack = self.double.commit(allocation, self.request.body)
        except ValueError:
            return self.fail(422, "invalid")
        if self.fault is not None:
            return self.break_off()
        self.finish(ack.model_dump_json())
        return None


class _TaskRecords(_Records):
    def post(self) -> None:
        bearer = self.bearer()
        self.take(next((a for a in self.double.allocations.values() if a.token == bearer), None))


class _AgentRecords(_Records):
    def post(self) -> None:
        known = self.bearer() in self.double.agent_tokens
        self.take(self.double.allocations.get(self.get_argument("allocation_id")) if known else None)


class _TaskToken(_Handler):
    def post(self) -> None:
        bearer = self.bearer()
        allocation = next((a for a in self.double.allocations.values() if a.token == bearer), None)
        if allocation is None:
            return self.fail(401, "bad_token")
        allocation.token = f"dttask_{secrets.token_hex(32)}"
        self.double.renewals[allocation.launch.allocation_id] += 1
        life = self.double.token_life
        reply = wire.TokenReply(token=allocation.token, expires_at=time.time() + life, life=life)
        self.finish(reply.model_dump_json())
        self.double.note()
        return None


class _TrialCall(_Handler):
    async def _serve(self, path: str) -> None:
        double, bearer = self.double, self.bearer()
        if bearer not in double.tokens and all(bearer != one.token for one in double.allocations.values()):
            return self.fail(401, "auth.denied")
        if self.fault is not None and self.fault.status:
            return self.fail(self.fault.status, self.fault.code)
        if (self.request.method, path) == ("GET", "preempt"):
            seconds = float(self.get_query_argument("timeout_seconds"))
            poll = functools.partial(double.poll_preemption, seconds)
            status, reply = 200, await asyncio.get_running_loop().run_in_executor(double.polls, poll)
        else:
            body = json.loads(self.request.body) if self.request.body else None
            status, reply = double.answer(str(self.request.method), path, body)
        if self.fault is not None:
            return self.break_off()
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        try:
            await self.finish(json.dumps(reply))
        except (StreamClosedError, RuntimeError):  # the trial has hung up meanwhile
            return None
        return None

    get = post = put = delete = _serve


class _Connect(WebSocketHandler):
    agent_id = ""

    @property
    def double(self) -> MasterDouble:
        double: MasterDouble = self.settings["double"]
        return double

    async def get(self, *args: Any, **kwargs: Any) -> None:
        bearer = self.request.headers.get("Authorization", "").removeprefix("Bearer ")
        if bearer not in self.double.agent_tokens:
            self.double.unauthorised.append(self.request.path)
            self.set_status(401)
            await self.finish()
            return
        await super().get(*args, **kwargs)

    def check_origin(self, origin: str) -> bool:
        return False

    async def on_message(self, message: str | bytes) -> None:
        try:
            await self._answer(_agent_message.validate_json(message))
        except (WebSocketClosedError, StreamClosedError):
            return
        finally:
            self.double.note()

    async def _answer(self, message: wire.AgentMessage) -> None:
        double = self.double
        match message:
            case wire.MoreNodes():
                said = double.hellos[-1]
                more = {"nodes": [*said.nodes, *message.nodes], "tasks": [*said.tasks, *message.tasks]}
                double.hellos[-1] = said.model_copy(update=more)
            case wire.Hello():
                self.agent_id = message.agent_id
                double.hellos.append(message)
                tasks = [task.allocation_id for task in message.tasks]
                keep = [name for name in tasks if double.keep_on_welcome and name in double.allocations]
                kill = [name for name in tasks if name not in keep]
                welcome = wire.Welcome(
                    cluster_id="double", keep=keep, kill=kill, takes_more=double.takes_more, nonce=double.nonce
                )
                await self.write_message(welcome.model_dump_json())
                double._connections[message.agent_id] = self
            case wire.TaskStarted():
                if message.allocation_id in double.allocations:
                    double.allocations[message.allocation_id].started += 1
                    double.allocations[message.allocation_id].starts.append(message)
            case wire.TaskStage():
                if message.allocation_id in double.allocations:
                    double.allocations[message.allocation_id].stages.append(message)
            case wire.TaskExited():
                await self._on_exit(message)
            case wire.Heartbeat():
                if message.attestation is not None:
                    double.attestations.append(message.attestation)
                await self.write_message(wire.Heartbeat(time=time.time(), nonce=double.nonce).model_dump_json())

    async def _on_exit(self, message: wire.TaskExited) -> None:
        allocation = self.double.allocations.get(message.allocation_id)
        if allocation is not None:
            allocation.exits.append(message)
        if allocation is None or allocation.acknowledge:
            ack = wire.ExitAck(allocation_id=message.allocation_id, run=message.run, node=message.node)
            await self.write_message(ack.model_dump_json())

    def on_close(self) -> None:
        if self.double._connections.get(self.agent_id) is self:
            del self.double._connections[self.agent_id]
        self.double.note()
