"""The thread and the HTTP client around `shipping`: read the spool, send, record what is committed.

The spool is polled by its size every 50 ms: two system calls, no library, works on every file system
(inotify does not see writes of other hosts on network mounts), and keeps metrics well under 0.1 s. Logs are read
at most every 0.2 s, so that a chatty task makes large batches instead of many requests.
"""

from __future__ import annotations

import enum
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self

from detlab import loopback
from detlab.launch.delivery.shipping import (
    MAX_BYTES,
    MAX_RECORDS,
    Failed,
    Fenced,
    Outcome,
    Phase,
    RecordRefusal,
    StreamShipper,
    judge,
)
from detlab.launch.delivery.spool import Damage, SpoolReader
from detlab.launch.delivery.tokens import TokenKeeper, life_of
from detlab.trust import trust_for

if TYPE_CHECKING:
    import ssl

    import httpx

POLL = 0.05
"""Seconds between two looks at the spool."""
READ_PATIENCE = 60.0
"""Seconds of read errors after which a finishing delivery gives a spool up."""
LOG_INTERVAL = 0.2
"""Seconds between two reads of the log spool."""


class TransportError(Exception):
    """The request got no answer: refused, timed out, broken off."""


class Transport(Protocol):
    """POST to the master; the seam that tests and the agent fill in their own way."""

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """Send `body` as JSON to `path` below the API; return status and body.

        Raises:
            TransportError: No answer came.
        """
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class HttpTransport:
    """Talk to the master with httpx, which is imported here only: the user's code has started by then.

    Args:
        api_url: Base of the API, ends with `/api/v1/`.
        trust: Certificates to trust, as httpx takes them; None: those that the task was given.
    """

    def __init__(self, api_url: str, trust: bool | ssl.SSLContext | None = None) -> None:
        import httpx

        self._errors = (httpx.HTTPError, httpx.InvalidURL)
        self._api_url = api_url
        timeout = httpx.Timeout(30.0, connect=10.0)
        verify = trust_for(api_url) if trust is None else trust
        # Redirects are not followed: they would carry the token elsewhere.
        self._client: httpx.Client = httpx.Client(
            timeout=timeout,
            follow_redirects=False,
            verify=verify,
            event_hooks=loopback.hooks(api_url),
            trust_env=False,  # the master may be this very machine; and the agent's WebSocket uses no proxy either
        )

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """See `Transport.post`.

        Raises:
            TransportError: No answer came.
        """
        return self._ask("POST", path, body, {"Content-Type": "application/json"}, token)

    def put_file(self, path: str, file: BinaryIO, size: int, token: str) -> tuple[int, bytes]:
        """See `media.FileTransport.put_file`.

        Raises:
            TransportError: No answer came.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        return self._ask("PUT", path, file, headers, token)

    def _ask(
        self, method: str, path: str, body: bytes | BinaryIO, headers: dict[str, str], token: str
    ) -> tuple[int, bytes]:
        headers = headers | {"Authorization": f"Bearer {token}"}
        try:
            reply = self._client.request(method, self._api_url + path, content=body, headers=headers)
        except self._errors as error:
            raise TransportError(str(error) or type(error).__name__) from error
        return reply.status_code, reply.content

    def close(self) -> None:
        """See `Transport.close`."""
        self._client.close()


class Marks(Protocol):
    """Where the progress of a delivery is noted."""

    def committed(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Note that the master has committed more of a stream."""
        ...

    def refused(self, refusals: Sequence[RecordRefusal]) -> None:
        """Note that the master will never take these records."""
        ...

    def damaged(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Note that something other than its writer has changed the spool; `reader.damage` counts how, in all."""
        ...


@dataclass
class SpoolSource:
    """One spool stream on its way to the master."""

    reader: SpoolReader
    shipper: StreamShipper
    interval: float = 0.0
    """Seconds between two reads while batches are small."""
    read_at: float = field(default=0.0)
    unreadable_since: float | None = field(default=None)
    """Since when the spool cannot be read."""
    damage: Damage = field(default=Damage())
    """The damage that was already reported."""


class Mode(enum.Enum):
    """What a delivery is asked to do."""

    FOLLOW = "ship what comes"
    FINISH = "ship what is there, then end"
    STOP = "end now"


class DeliveryEnding(enum.Enum):
    """How a delivery stands, or how it ended."""

    OPEN = "still open, or ended by an exception"
    DELIVERED = "all is committed"
    FENCED = "a newer attempt writes: nothing of this one counts"
    STOPPED = "it was told to stop"


class Deliverer:
    """Deliver the streams of one allocation in a thread of its own.

    Args:
        open_transport: Makes the transport, in the thread (this may import a library).
        records_path: Path below the API that takes RecordBatch.
        renew_path: Path that renews the token, or None if the token is not ours to renew.
        sources: The streams; earlier ones go first.
        tokens: The token in use.
        marks: Where progress is noted.
        on_token: Called with a renewed token.
        on_fenced: Called once when the master says that a newer attempt writes.
        clock: Seconds, for waiting, backing off and `tokens`; it must never be set back, or all of them would stand
            still for as long.
        wall: Seconds since the epoch, in which older masters give the end of a token.
        pause: Waits for a number of seconds, or until `wake`; a simulation waits in its own way.
    """

    def __init__(
        self,
        open_transport: Callable[[], Transport],
        records_path: str,
        sources: Sequence[SpoolSource],
        tokens: TokenKeeper,
        marks: Marks,
        *,
        renew_path: str | None = None,
        on_token: Callable[[str], None] = lambda token: None,
        on_fenced: Callable[[str], None] = lambda message: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._open_transport = open_transport
        self._records_path = records_path
        self._renew_path = renew_path
        self._sources = sources
        self._tokens = tokens
        self._marks = marks
        self._on_token = on_token
        self._on_fenced = on_fenced
        self._clock = clock
        self._wall = wall
        self._mode = Mode.FOLLOW
        self._wake = threading.Event()
        self._pause = pause or self._wake.wait
        self._thread = threading.Thread(target=self.run, name="deliverer", daemon=True)
        self.ending = DeliveryEnding.OPEN
        """How it ended; still OPEN when the thread is gone: it broke down."""
        self.trouble = ""
        """Why the last attempt failed; empty when it did not."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread still delivers: not ended, not fenced."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Look at the spool now."""
        self._wake.set()

    def finish(self, timeout: float | None = None) -> bool:
        """Ship everything that is spooled, however long the master is away.

        Args:
            timeout: Seconds to wait at most; None waits without a limit.

        Returns:
            Whether everything has been shipped.
        """
        return self._end(Mode.FINISH, timeout)

    def stop(self, timeout: float | None = None) -> bool:
        """End without waiting for the master (a request under way is awaited)."""
        return self._end(Mode.STOP, timeout)

    def ask(self, mode: Mode) -> None:
        """Request a mode without waiting for it; an earlier request to stop prevails."""
        if self._mode is not Mode.STOP:
            self._mode = mode
        self._wake.set()

    def _end(self, mode: Mode, timeout: float | None) -> bool:
        self.ask(mode)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def run(self) -> None:
        """Deliver until the end: the body of the thread."""
        transport = self._open_transport()
        try:
            self._loop(transport)
        finally:
            transport.close()
            for source in self._sources:
                source.reader.close()

    def _loop(self, transport: Transport) -> None:
        eager = False
        while self._mode is not Mode.STOP:
            # Read the mode first: what was spooled before `finish` is then surely seen by this round.
            mode = self._mode
            if mode is Mode.FINISH and not eager:
                eager = True  # one prompt try for batches that wait out a back-off
                for source in self._sources:
                    source.shipper.retry_now()
            if self._renew_path is not None and self._tokens.due(self._clock()):
                self._renew(transport, self._renew_path)
            busy = [self._pump(source, transport, mode) for source in self._sources]
            if any(source.shipper.phase is Phase.FENCED for source in self._sources):
                self.ending = DeliveryEnding.FENCED
                return
            if any(busy):
                continue
            exhausted = [self._exhausted(source) for source in self._sources] if mode is Mode.FINISH else [False]
            if all(exhausted):
                self.ending = DeliveryEnding.DELIVERED
                return
            self._pause(POLL)
            self._wake.clear()
        self.ending = DeliveryEnding.STOPPED

    def _exhausted(self, source: SpoolSource) -> bool:
        """Whether nothing more will come: all is committed, or the disk gave nothing for too long."""
        if source.shipper.phase is not Phase.HUNGRY:
            return False
        broken = source.unreadable_since
        if broken is not None:
            return self._clock() - broken > READ_PATIENCE
        return source.reader.settle() and not self._tell_damage(source)

    def _tell_damage(self, source: SpoolSource) -> bool:
        """Report newly found damage; return whether there was any, and so a line about it to deliver."""
        if source.reader.damage == source.damage:
            return False
        source.damage = source.reader.damage
        self._marks.damaged(source.shipper, source.reader)
        return True

    def _pump(self, source: SpoolSource, transport: Transport, mode: Mode) -> bool:
        """Move one batch of a stream; return whether there may be more right away."""
        now = self._clock()
        shipper = source.shipper
        if shipper.phase is Phase.HUNGRY:
            if mode is Mode.FOLLOW and now < source.read_at:
                return False
            try:
                entries = source.reader.read(MAX_RECORDS, MAX_BYTES)
            except OSError as error:
                self.trouble = str(error)
                source.unreadable_since = source.unreadable_since or now
                return False
            source.unreadable_since = None
            source.read_at = now + source.interval if len(entries) < MAX_RECORDS else now
            shipper.load(entries)
            if self._tell_damage(source) and not entries:
                return True
        batch = shipper.poll(now)
        if batch is None:
            return False
        outcome = self._send(transport, self._records_path, batch.body())
        before = shipper.acked
        shipper.settle(outcome, self._clock())
        self.trouble = shipper.last_failure
        if shipper.refused:
            refusals, shipper.refused = shipper.refused, []
            self._marks.refused(refusals)
        if shipper.acked > before:
            self._marks.committed(shipper, source.reader)
        if isinstance(outcome, Fenced):
            self._on_fenced(outcome.message)
        return shipper.phase in {Phase.READY, Phase.HUNGRY}

    def _send(self, transport: Transport, path: str, body: bytes) -> Outcome:
        try:
            status, reply = transport.post(path, body, self._tokens.token)
        except TransportError as error:
            return Failed(str(error))
        if status == 401:
            self._tokens.refused(self._clock())
        return judge(status, reply)

    def _renew(self, transport: Transport, path: str) -> None:
        now = self._clock()
        try:
            status, reply = transport.post(path, b"", self._tokens.token)
            value = json.loads(reply)
            if status != 200:
                self._tokens.failed(now)
                return
            token, life = str(value["token"]), life_of(value.get("life"), float(value["expires_at"]), self._wall())
        except (TransportError, ValueError, KeyError, TypeError) as error:
            self.trouble = f"token renewal: {error}"
            self._tokens.failed(now)
            return
        self._tokens.renewed(token, now + life, now)
        self._on_token(token)
        for source in self._sources:
            source.shipper.retry_now()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
