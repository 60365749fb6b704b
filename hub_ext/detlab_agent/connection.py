"""The agent's one connection: the agent dials out, again and again, and sends only once it is authenticated."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from tornado.httpclient import HTTPClientError, HTTPRequest, _RequestProxy
from tornado.httputil import HTTPHeaders
from tornado.iostream import IOStream, SSLIOStream, StreamClosedError
from tornado.tcpclient import TCPClient
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketError

from detlab import loopback
from detlab.backoff import Backoff
from detlab.errors import DetlabError
from detlab.governance.attestation import attest
from detlab.schemas import wire
from detlab.schemas.wire.governance.attestation import Attestation
from detlab_agent.endpoints import Endpoints
from detlab_agent.enrolment import KeyRing, MasterAway, NotEnrolled
from detlab_agent.gpu_watch import GpuWatch
from detlab_agent.hellos import in_parts, warn_of_older_master
from detlab_agent.tasks import TaskTable

_log = logging.getLogger(__name__)

HEARTBEAT = 5.0
"""Seconds between two heartbeats of the agent."""
SILENCE = 20.0
"""Seconds without a message from the master after which the connection counts as dead."""
GPU_REPORT = 10.0
"""Seconds between two reports of what GPUs do."""
_MAX_MESSAGE = 64 << 20

_master_message: TypeAdapter[wire.MasterMessage] = TypeAdapter(wire.MasterMessage)


async def dial(url: str, token: str, context: ssl.SSLContext | None = None) -> WebSocketClientConnection:
    """Open the connection at a WebSocket address, authenticated by the agent's key.

    Args:
        url: The address.
        token: The key.
        context: Decides which certificates are trusted, with TLS.
    """
    request = HTTPRequest(
        url,
        headers=HTTPHeaders({"Authorization": f"Bearer {token}"}),
        connect_timeout=10.0,
        request_timeout=30.0,
        validate_cert=True,
        ssl_options=context,
        follow_redirects=False,
    )
    proxied = cast("HTTPRequest", _RequestProxy(request, HTTPRequest._DEFAULTS))
    return await _LookingConnection(proxied).connect_future


class _LookingClient(TCPClient):
    """Opens connections, and checks who answers before anything is sent."""

    async def connect(self, *arguments: Any, **named: Any) -> IOStream:
        """Connect.

        Raises:
            OSError: There is no answer, or it comes from another user of this machine.
        """
        stream = await super().connect(*arguments, **named)
        try:
            if not isinstance(stream, SSLIOStream):  # a certificate says who answers
                loopback.check_peer(stream.socket)
        except BaseException:
            stream.close()
            raise
        return stream


class _LookingConnection(WebSocketClientConnection):
    """A WebSocket over such a connection; `websocket_connect` has no argument for that."""

    def __init__(self, request: HTTPRequest) -> None:
        super().__init__(request, max_message_size=_MAX_MESSAGE)
        self.tcp_client = _LookingClient()  # it is used when this has returned


class ConnectionLost(Exception):
    """The connection broke or the peer is not a master; the message says which."""


@dataclass
class Connector:
    """Keep a connection to the master and pass messages between it and the task table.

    Args:
        endpoints: The master.
        keys: The agent's key.
        table: The tasks.
        hello: Makes the first message of a connection.
        backoff: Pauses between attempts.
        heartbeat: Seconds between heartbeats.
        silence: Seconds of silence that end a connection.
        dial: Opens the connection; a simulation gives its own network.
        clock: Seconds since the epoch.
        queue: What the batch system behind this agent is like now; None: there is none.
        warm: Digests of the code that warm processes have loaded.
        gpus: Measures the GPUs of this node; None: there is nothing to measure.
    """

    endpoints: Endpoints
    keys: KeyRing
    table: TaskTable
    hello: Callable[[], wire.Hello]
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.5, cap=15.0))
    heartbeat: float = HEARTBEAT
    silence: float = SILENCE
    dial: Callable[..., Awaitable[WebSocketClientConnection]] = dial
    clock: Callable[[], float] = time.time
    queue: Callable[[], wire.QueueHello | None] = lambda: None
    warm: Callable[[], Collection[str]] = tuple
    gpus: GpuWatch | None = None
    _connection: WebSocketClientConnection | None = None
    _again: bool = False
    _challenge: tuple[str, str] = ("", "")
    """The master's cluster, and the nonce that it wants answered."""
    _attested: Attestation | None = None
    """The last answer on this connection."""

    def introduce_again(self) -> None:
        """Connect again, because the content of the Hello has changed (a runtime came or went)."""
        if self._connection is not None:
            self._again = True
            self._connection.close()

    async def run(self) -> None:
        """Connect, serve, and connect again; ends only by cancellation."""
        said = ""
        while True:
            try:
                trouble = await self._attempt()
            except (NotEnrolled, MasterAway, ConnectionLost, DetlabError) as error:
                trouble = str(error)
            except (OSError, StreamClosedError, WebSocketClosedError, WebSocketError, TimeoutError) as error:
                trouble = f"{self.endpoints.base}: {error or type(error).__name__}"
            if self._again:
                self._again = False
                continue
            if self.backoff.failures == 0:
                said = ""  # there was a connection in between: this is a new trouble
            if trouble != said:  # once, not every few seconds of an outage
                _log.warning("not connected: %s; reconnecting", trouble)
                said = trouble
            await asyncio.sleep(self.backoff.next_pause())

    async def _attempt(self) -> str:
        """Try one connection; return what ended it.

        Raises:
            DetlabError: The pin's file is damaged, which may show while another error is handled.
        """
        try:
            token = await self.keys.ensure()
            await self._session(token)
        except HTTPClientError as error:
            return await self._on_refusal(error)
        except ssl.SSLCertVerificationError:
            return str(self.endpoints.refused())
        return "the master closed the connection"

    async def _on_refusal(self, error: HTTPClientError) -> str:
        """Handle an HTTP error in answer to the upgrade; replace a key that the master does not know."""
        if error.code not in {401, 403}:
            return f"{self.endpoints.connect}: {error}"
        if self.keys.enrolment_token_file is None:
            return "the master does not know this agent's key; give --enrolment-token-file to enrol again"
        try:
            await self.keys.enrol()
        except (NotEnrolled, MasterAway) as trouble:
            return f"the master does not know this agent's key, and {trouble}"
        return "the master did not know this agent's key; enrolled again with a new key"

    async def _session(self, token: str) -> None:
        """Run one connection from the handshake to its end."""
        context = self.endpoints.context()
        connection = await self.dial(self.endpoints.connect, token, *([context] if context is not None else []))
        self._connection = connection
        try:
            hello, rest = in_parts(self.hello())
            await connection.write_message(hello.model_dump_json())
            welcome = await self._read(connection)
            if isinstance(welcome, wire.Refused):
                raise ConnectionLost(f"the master refuses this agent: {welcome.message}")
            if not isinstance(welcome, wire.Welcome):
                why = f"{connection.close_code or ''} {connection.close_reason or ''}".strip()
                raise ConnectionLost(f"the master did not welcome this agent: {why or 'no reason given'}")
            self.backoff.reset()
            _log.info("connected to cluster %s at %s", welcome.cluster_id, self.endpoints.base)
            if rest and not welcome.takes_more:
                warn_of_older_master(rest, len(hello.nodes))
            for part in rest if welcome.takes_more else ():
                await connection.write_message(part.model_dump_json())
            await self._serve(connection, welcome)
        finally:
            self._connection = None
            self.table.detach()
            connection.close()

    async def _serve(self, connection: WebSocketClientConnection, welcome: wire.Welcome) -> None:
        outbox: asyncio.Queue[str] = asyncio.Queue()
        self.table.welcome(welcome)
        self._challenge, self._attested = (welcome.cluster_id, welcome.nonce), None
        if (answer := await self._attest()) is not None:
            outbox.put_nowait(wire.Heartbeat(time=self.clock(), attestation=answer).model_dump_json())
        self.table.attach(lambda message: outbox.put_nowait(message.model_dump_json()))
        jobs = [
            asyncio.create_task(self._write_all(connection, outbox)),
            asyncio.create_task(self._beat(outbox)),
            asyncio.create_task(self._attest_again(outbox)),
        ]
        if self.gpus is not None:
            jobs.append(asyncio.create_task(self._measure(self.gpus, outbox)))
        try:
            while (message := await self._read(connection)) is not None:
                await self._dispatch(message)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _read(self, connection: WebSocketClientConnection) -> wire.MasterMessage | None:
        """Return the next message that we understand; None once the master has closed the connection."""
        while True:
            async with asyncio.timeout(self.silence):
                data = await connection.read_message()
            if data is None:
                return None
            try:
                return _master_message.validate_json(data)
            except ValidationError as error:
                # A newer master may say more than we know; by the wire's rule that is passed over.
                _log.warning("invalid message: %s", error)

    async def _dispatch(self, message: wire.MasterMessage) -> None:
        match message:
            case wire.Launch():
                self.table.launch(message)
            case wire.Kill():
                self.table.kill(message.allocation_id, message.run, message.grace, message.node)
            case wire.ExitAck():
                await self.table.acknowledged(message)
            case wire.Welcome():
                self.table.welcome(message)
            case wire.Heartbeat():
                if message.nonce:
                    self._challenge = self._challenge[0], message.nonce
            case wire.Refused():
                pass

    async def _attest(self) -> Attestation | None:
        """Return the answer to the master's challenge, if it is another than the last one."""
        cluster_id, nonce = self._challenge
        if not nonce:
            return None
        keys = self.keys
        try:
            answer = partial(
                attest, nonce, cluster_id=cluster_id, agent_id=keys.agent_id, token=keys.token(), warm=self.warm
            )
            said = await asyncio.to_thread(answer)
        except (NotEnrolled, OSError) as error:  # as while packages are installed: it is tried again soon
            _log.warning("what this agent enforces cannot be attested: %s", error)
            return None
        if said == self._attested:
            return None
        self._attested = said
        return said

    async def _attest_again(self, outbox: asyncio.Queue[str]) -> None:
        """Answer anew when the challenge has changed, or what is answered. Heartbeats wait for no thread."""
        while True:
            await asyncio.sleep(self.heartbeat)
            if (answer := await self._attest()) is not None:
                outbox.put_nowait(wire.Heartbeat(time=self.clock(), attestation=answer).model_dump_json())

    async def _measure(self, gpus: GpuWatch, outbox: asyncio.Queue[str]) -> None:
        """Report what GPUs do, beside the heartbeats, which wait for no driver."""
        while True:
            measured = dict(await gpus.measure(GPU_REPORT))
            outbox.put_nowait(wire.Heartbeat(time=self.clock(), gpus=measured).model_dump_json())

    async def _write_all(self, connection: WebSocketClientConnection, outbox: asyncio.Queue[str]) -> None:
        while True:
            message = await outbox.get()
            try:
                await connection.write_message(message)
            except (WebSocketClosedError, StreamClosedError):
                return  # the reader sees the end too; all of it is said again to the next connection

    async def _beat(self, outbox: asyncio.Queue[str]) -> None:
        told: wire.QueueHello | None = None
        while True:
            await asyncio.sleep(self.heartbeat)
            queue = self.queue()
            beat = wire.Heartbeat(time=self.clock(), queue=None if queue == told else queue)
            told = queue
            outbox.put_nowait(beat.model_dump_json())
            self.table.repeat_exits()


async def run_until(connector: Connector, stop: asyncio.Event) -> None:
    """Run the connector until `stop` is set."""
    job = asyncio.create_task(connector.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({job, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if job in done:
            job.result()  # it never ends by itself: whatever it raised is a defect to be seen
    finally:
        for task in (job, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
