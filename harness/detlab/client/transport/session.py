"""The two drivers of the request layer: blocking and asynchronous HTTP over httpx.

httpx is imported when the first request is made, so that `import detlab.client` costs nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from detlab import loopback
from detlab.client.transport.calls import ByteWriter, Call, Flow, Reply, Retries, run_flow
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.interrupts import short_interrupts
from detlab.client.transport.version import USER_AGENT
from detlab.errors import DetlabError, StorageError
from detlab.forking import renew_in_children
from detlab.trust import is_refusal, trust_for

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
CHUNK = 256 * 1024
CONNECT_SECONDS = 5.0
_IDENTITY = {"Accept-Encoding": "identity"}
STREAM_READ_SECONDS = 12.0
"""Over twice the master's keep-alive: silence beyond it means a dead connection. configurable-http-proxy leaves a
stream open whose master was killed, so that this is how long a view may stand still then."""


class _Connection:
    """What both drivers share: address, headers, timeouts, retries."""

    def __init__(self, address: ClusterAddress, *, timeout: float = 60.0, backoff: Retries | None = None) -> None:
        self.address = address
        self.timeout = timeout
        self.backoff = backoff or Retries()

    def forget_connections(self) -> object:
        """Forget what belongs to the parent process; see `detlab.forking`."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "objects of detlab's client cannot be pickled: they hold connections, and a token that belongs in no file."
            " Give the other process the id, and have it fetch the object: client.get_experiment(7),"
            " client.get_trial(12), client.get_checkpoint(uuid)"
        )

    def _options(self) -> dict[str, Any]:
        import httpx

        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if self.address.token:
            headers["Authorization"] = f"Bearer {self.address.token}"
        return {
            "base_url": self.address.url,
            "headers": headers,
            "timeout": httpx.Timeout(self.timeout, connect=CONNECT_SECONDS),
            # A redirect leads to a login page at best, and would carry the token along at worst.
            "follow_redirects": False,
            "verify": trust_for(self.address.url, self.address.certificate),
            "trust_env": self.address.proxied,
        }

    def _arguments(self, call: Call) -> dict[str, Any]:
        arguments: dict[str, Any] = {"params": call.query()}
        if call.source is not None:
            size = str(call.source.stat().st_size)
            arguments["headers"] = {"Content-Type": "application/octet-stream", "Content-Length": size}
            return arguments
        body, kind = call.body()
        if body is not None:
            arguments["headers"] = {"Content-Type": str(kind), "Content-Length": str(len(body))}
        return arguments

    def _stream_timeout(self, limit: float | None) -> httpx.Timeout:
        import httpx

        read = STREAM_READ_SECONDS if limit is None else max(0.05, min(limit, STREAM_READ_SECONDS))
        return httpx.Timeout(self.timeout, connect=CONNECT_SECONDS, read=read)

    def _attempts(self, call: Call) -> _Attempts:
        return _Attempts(call, self.address, self.backoff)


@dataclass
class _Attempts:
    """The attempts at one call, and when there is another."""

    call: Call
    address: ClusterAddress
    backoff: Retries
    failures: int = 0

    def answered(self, reply: Reply) -> float | None:
        """Return how long to wait before the call is repeated, or None if the reply counts."""
        if not reply.passing or reply.status in self.call.accept:
            return None
        return self._pause(refused=False)

    def unanswered(self, error: httpx.TransportError) -> float:
        """Return how long to wait before the call is repeated.

        Raises:
            ClusterUnreachable: It must not be repeated, or has been often enough.
        """
        import httpx

        # A wrong certificate will be the same next time.
        untrusted = is_refusal(error)
        pause = None if untrusted else self._pause(refused=isinstance(error, httpx.ConnectError))
        if pause is not None:
            return pause
        text = str(error) or type(error).__name__
        raise self.address.untrusted() if untrusted else self.address.unreachable(text) from error

    def _pause(self, *, refused: bool) -> float | None:
        self.failures += 1
        return self.backoff.delay(self.failures, refused=refused) if self.call.again or refused else None


def _step(resume: Callable[[], Call]) -> tuple[bool, Any]:
    """Run a flow up to its next call; return (whether it has ended, its result or the call)."""
    try:
        return False, resume()
    except StopIteration as stop:  # which no future and no coroutine may carry
        return True, stop.value


def _chunks(call: Call, body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]
        if call.progress:
            call.progress(min(start + CHUNK, len(body)), len(body))


def _file_chunks(call: Call, path: Path) -> Iterator[bytes]:
    """Yield a file as long as it is now.

    Raises:
        StorageError: It has become shorter.
    """
    sent, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while sent < size:
            chunk = file.read(min(CHUNK, size - sent))
            if not chunk:
                raise StorageError(f"{path} has become shorter while it was sent", hint="Send it when it is complete")
            yield chunk
            sent += len(chunk)
            if call.progress:
                call.progress(sent, size)


def _reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.content, response.headers.get("location"))


class Session(_Connection):
    """Blocking HTTP to one master. Threads may share it."""

    def __init__(
        self,
        address: ClusterAddress,
        *,
        timeout: float = 60.0,
        backoff: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(address, timeout=timeout, backoff=backoff)
        self._sleep = sleep
        self._transport = transport
        self._http: httpx.Client | None = None
        self._lock = threading.Lock()
        renew_in_children(self)

    @property
    def http(self) -> httpx.Client:
        """The connection pool, opened on first use."""
        with self._lock:
            if self._http is None:
                import httpx

                self._http = httpx.Client(
                    **self._options(), transport=self._transport, event_hooks=loopback.hooks(self.address.url)
                )
            return self._http

    def forget_connections(self) -> object:
        """Forget what belongs to the parent process; see `detlab.forking`."""
        self._lock = threading.Lock()  # another thread may have held it
        http, self._http = self._http, None
        return http

    def close(self) -> None:
        """Close all connections; the session can be used again afterwards."""
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def run(self, flow: Flow[T]) -> T:
        """Carry out an operation and return its result."""
        return run_flow(flow, self.send)

    def send(self, call: Call) -> Any:
        """Send one call, again where that is safe, and return its result.

        Raises:
            ClusterGuessed: The call could change a cluster that nobody named.
            ClusterUnreachable: No answer, after the retries.
            DetlabError: The master answered with an error.
        """
        import httpx

        self.address.unchanged(call.method)
        attempts = self._attempts(call)
        with short_interrupts(f"stopped waiting for the answer of {self.address.url}"):
            while True:
                try:
                    reply = self._once(call)
                except httpx.TransportError as error:
                    pause = attempts.unanswered(error)
                else:
                    if (again := attempts.answered(reply)) is None:
                        return call.result(reply)
                    pause = again
                self._sleep(pause)

    def _once(self, call: Call) -> Reply:
        if call.sink is not None:
            return self._into_sink(call, call.sink)
        body, _ = call.body()
        content = None if body is None else _chunks(call, body)
        if call.source is not None:
            content = _file_chunks(call, call.source)
        response = self.http.request(call.method, call.relative_url, content=content, **self._arguments(call))
        return _reply(response)

    def _into_sink(self, call: Call, sink: Callable[[], AbstractContextManager[ByteWriter]]) -> Reply:
        with self.http.stream(call.method, call.relative_url, params=call.query(), headers=_IDENTITY) as response:
            if not response.is_success:
                response.read()
                return _reply(response)
            with sink() as file:
                for chunk in response.iter_bytes(CHUNK):
                    file.write(chunk)
            return Reply(response.status_code)

    def open(self, call: Call, *, limit: float | None = None) -> AbstractContextManager[httpx.Response]:
        """Open a streamed reply; reading stops after `limit` seconds of silence."""
        return self.http.stream(
            call.method, call.relative_url, params=call.query(), timeout=self._stream_timeout(limit)
        )


class AsyncSession(_Connection):
    """The same for asyncio. One event loop per session."""

    def __init__(
        self,
        address: ClusterAddress,
        *,
        timeout: float = 60.0,
        backoff: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(address, timeout=timeout, backoff=backoff)
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        renew_in_children(self)

    @property
    def http(self) -> httpx.AsyncClient:
        """The connection pool, opened on first use."""
        if self._http is None:
            import httpx

            self._http = httpx.AsyncClient(
                **self._options(), transport=self._transport, event_hooks=loopback.async_hooks(self.address.url)
            )
        return self._http

    def forget_connections(self) -> object:
        """Forget what belongs to the parent process; see `detlab.forking`."""
        http, self._http = self._http, None
        return http

    async def close(self) -> None:
        """Close all connections; the session can be used again afterwards."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def run(self, flow: Flow[T], *, in_thread: bool = False) -> T:
        """Carry out an operation and return its result.

        Args:
            flow: The operation.
            in_thread: Do what the flow does between its calls (hashing and copying files) in a thread.
        """
        resume: Callable[[], Call] = partial(next, flow)
        try:
            while True:
                ended, given = await asyncio.to_thread(_step, resume) if in_thread else _step(resume)
                if ended:
                    return given
                try:
                    resume = partial(flow.send, await self.send(given))
                except DetlabError as error:
                    resume = partial(flow.throw, error)
        finally:
            flow.close()

    async def send(self, call: Call) -> Any:
        """Send one call, again where that is safe, and return its result.

        Raises:
            ClusterGuessed: The call could change a cluster that nobody named.
            ClusterUnreachable: No answer, after the retries.
            DetlabError: The master answered with an error.
        """
        import httpx

        self.address.unchanged(call.method)
        attempts = self._attempts(call)
        while True:
            try:
                reply = await self._once(call)
            except httpx.TransportError as error:
                pause = attempts.unanswered(error)
            else:
                if (again := attempts.answered(reply)) is None:
                    return call.result(reply)
                pause = again
            await asyncio.sleep(pause)

    async def _once(self, call: Call) -> Reply:
        if call.sink is not None:
            return await self._into_sink(call, call.sink)
        body, _ = call.body()

        async def chunks() -> AsyncIterator[bytes]:
            source = _chunks(call, body or b"") if call.source is None else _file_chunks(call, call.source)
            for chunk in source:
                yield chunk

        content = None if body is None and call.source is None else chunks()
        response = await self.http.request(call.method, call.relative_url, content=content, **self._arguments(call))
        return _reply(response)

    async def _into_sink(self, call: Call, sink: Callable[[], AbstractContextManager[ByteWriter]]) -> Reply:
        stream = self.http.stream(call.method, call.relative_url, params=call.query(), headers=_IDENTITY)
        async with stream as response:
            if not response.is_success:
                await response.aread()
                return _reply(response)
            with sink() as file:
                async for chunk in response.aiter_bytes(CHUNK):
                    await asyncio.to_thread(file.write, chunk)
            return Reply(response.status_code)

    def open(self, call: Call, *, limit: float | None = None) -> AbstractAsyncContextManager[httpx.Response]:
        """Open a streamed reply; reading stops after `limit` seconds of silence."""
        return self.http.stream(
            call.method, call.relative_url, params=call.query(), timeout=self._stream_timeout(limit)
        )
