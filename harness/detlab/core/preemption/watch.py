"""Watching for the preemption signal.

`PreemptionWatch` decides, without I/O, clock or thread, what to do next; `PreemptionWatcher` is the thread around it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, assert_never

from detlab import errors, loopback
from detlab.backoff import Backoff
from detlab.core.preemption.long_poll import PlainPoll, PollClosed
from detlab.core.quiet_logs import quiet
from detlab.core.session import FIRST_PAUSE, LONGEST_PAUSE, api_base, decode_reply
from detlab.info import ClusterInfo, read_token
from detlab.schemas.wire import PreemptReply
from detlab.trust import trust_for

if TYPE_CHECKING:
    import asyncio

    import httpx

logger = logging.getLogger("detlab.core")

POLL_SECONDS = 60.0
_ANSWER_GRACE = 30.0
_SETTLE = 0.2
"""Seconds between the first answer and the first long question, which a trial that soon ends need not ask."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask the master, which may take `seconds` to answer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait `seconds` before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StopAsking:
    """Nothing more to ask."""


@dataclass(slots=True)
class PreemptionWatch:
    """What is known about the preemption of this allocation.

    Feed it with `replied` and `failed`; do what `next_step` says.

    Attributes:
        reply: The last answer, None before the first.
        fatal: Set when this attempt is no longer the trial's: the process should end.
    """

    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE, LONGEST_PAUSE))
    reply: PreemptReply | None = None
    fatal: errors.DetlabError | None = None
    _pause: float | None = None

    @property
    def preempted(self) -> bool:
        """Whether the signal is on; it never goes off."""
        return self.reply is not None and self.reply.preempt

    def next_step(self) -> Poll | Pause | StopAsking:
        """Return what to do now: the first poll answers at once, later ones when there is news."""
        if self.preempted or self.fatal is not None:
            return StopAsking()
        if self._pause is not None:
            pause, self._pause = self._pause, None
            return Pause(pause)
        return Poll(0.0 if self.reply is None else POLL_SECONDS)

    def replied(self, reply: PreemptReply) -> None:
        """Take an answer."""
        if not self.preempted:
            self.reply = reply
        self.backoff.reset()

    def failed(self, error: errors.DetlabError) -> None:
        """Take a failed poll: back off, unless a newer attempt of this trial runs."""
        if isinstance(error, errors.StaleAttempt):
            self.fatal = error
            return
        self._pause = self.backoff.next_pause()
        logger.log(
            logging.WARNING if self._pause > 5 else logging.DEBUG,
            "cannot query preemption, next attempt in %.1f s: %s",
            self._pause,
            error.message,
        )


class PreemptionWatcher(threading.Thread):
    """Polls `task/preempt` until the signal comes or it is closed.

    Args:
        info: The task.
        transport: For tests.
    """

    def __init__(self, info: ClusterInfo, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(name="detlab-preemption", daemon=True)
        self._info = info
        self._transport = transport
        self._watch = PreemptionWatch()
        self._changed = threading.Condition()
        self._address = api_base(info.master_url)
        self._plain: PlainPoll | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        if transport is None and self._address.startswith("http:"):
            self._plain = PlainPoll(self._address)
        else:
            import asyncio

            with quiet():
                self._loop = asyncio.new_event_loop()
            self._closing = asyncio.Event()

    def should_preempt(self, first_answer: float = 5.0) -> bool:
        """Return whether the signal is on, waiting only for the very first answer, at most `first_answer` seconds.

        Raises:
            StaleAttempt: A newer attempt of this trial runs: end this process.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._watch.reply or self._watch.fatal, first_answer)
            if self._watch.fatal is not None:
                raise self._watch.fatal
            return self._watch.preempted

    def close(self) -> None:
        """Stop polling at once."""
        if self._plain is not None:
            self._plain.close()
            if self.ident is not None:
                self.join(timeout=1.0)  # it may be waiting for a connection, which nothing ends early
            return
        assert self._loop is not None
        assert self._closing is not None
        if self.ident is None:
            self._loop.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: the thread has ended by itself
            self._loop.call_soon_threadsafe(self._closing.set)
        self.join(timeout=5.0)

    def run(self) -> None:
        """Poll; the body of the thread."""
        if self._plain is not None:
            self._poll_plainly(self._plain)
            return
        assert self._loop is not None
        try:
            with quiet():
                self._loop.run_until_complete(self._poll_until_closed())
        finally:
            self._loop.close()

    def _poll_plainly(self, poll: PlainPoll) -> None:
        try:
            settled = False
            while not poll.closed.is_set():
                if self._watch.reply is not None and not settled:
                    settled = True
                    poll.closed.wait(_SETTLE)
                    continue
                step = self._watch.next_step()
                match step:
                    case StopAsking():
                        return
                    case Pause():
                        poll.closed.wait(step.seconds)
                    case Poll():
                        self._ask_plainly(poll, step.seconds)
                    case _:
                        assert_never(step)
        except PollClosed:
            return
        finally:
            poll.drop()

    def _ask_plainly(self, poll: PlainPoll, seconds: float) -> None:
        path = f"task/preempt?timeout_seconds={seconds:g}"
        try:
            headers = {"Authorization": f"Bearer {read_token(self._info.task_dir)}"}
            status, body = poll.get(path, headers, seconds + _ANSWER_GRACE)
            self._note(PreemptReply.model_validate(decode_reply(self._address + path, status, body)))
        except errors.DetlabError as error:
            self._note(error)
        except (OSError, HTTPException, ValueError) as error:
            self._note(errors.ClusterUnreachable(f"{type(error).__name__}: {error}"))

    async def _poll_until_closed(self) -> None:
        import asyncio

        assert self._closing is not None
        polling = asyncio.ensure_future(self._poll())
        closing = asyncio.ensure_future(self._closing.wait())
        await asyncio.wait({polling, closing}, return_when=asyncio.FIRST_COMPLETED)
        for task in (polling, closing):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _poll(self) -> None:
        import asyncio

        import httpx

        address = self._address
        trust = trust_for(address)
        async with httpx.AsyncClient(
            base_url=address,
            transport=self._transport,
            trust_env=False,
            verify=trust,
            event_hooks=loopback.async_hooks(address),
        ) as client:
            while True:
                step = self._watch.next_step()
                match step:
                    case StopAsking():
                        return
                    case Pause():
                        await asyncio.sleep(step.seconds)
                    case Poll():
                        await self._ask(client, step.seconds)
                    case _:
                        assert_never(step)

    async def _ask(self, client: httpx.AsyncClient, seconds: float) -> None:
        import httpx

        try:
            headers = {"Authorization": f"Bearer {read_token(self._info.task_dir)}"}
            response = await client.get(
                "task/preempt",
                params={"timeout_seconds": f"{seconds:g}"},
                headers=headers,
                timeout=httpx.Timeout(seconds + _ANSWER_GRACE, connect=10.0),
            )
            body = decode_reply(str(response.request.url), response.status_code, response.content)
            reply = PreemptReply.model_validate(body)
        except errors.DetlabError as error:
            self._note(error)
        except (httpx.HTTPError, ValueError) as error:
            self._note(errors.ClusterUnreachable(f"{type(error).__name__}: {error}"))
        else:
            self._note(reply)

    def _note(self, news: PreemptReply | errors.DetlabError) -> None:
        with self._changed:
            if isinstance(news, PreemptReply):
                self._watch.replied(news)
            else:
                self._watch.failed(news)
            self._changed.notify_all()
