"""Following the master's streams without I/O: cursor, duplicates, keep-alives, resync, reconnecting.

A feed takes the bytes that arrive and the end of a connection; it returns new events, the next request and how long to
wait. However often the connection breaks, every event is delivered once and in order: a line counts only when it is
complete, and the next connection starts after the last one that counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pydantic import ValidationError

from detlab.client.transport.calls import FOREIGN, Call, Reply, Retries, error_of
from detlab.errors import ApiError, DetlabError, NotFound
from detlab.schemas.wire import Event, ExperimentState, LogLine

Item = TypeVar("Item", Event, LogLine)
MOST_LINE_BYTES = 64 * 1024 * 1024


@dataclass
class Lines:
    """Cuts bytes into lines at `\\n` only.

    JSON text may hold U+2028, U+0085 and other characters that `str.splitlines` (and httpx's `iter_lines`) takes
    for the end of a line.
    """

    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield each complete line without its end; keep the rest.

        Raises:
            ApiError: A line is longer than `MOST_LINE_BYTES`.
        """
        self._rest += chunk
        if b"\n" not in chunk:
            if len(self._rest) > MOST_LINE_BYTES:
                raise ApiError("the master sent a stream line that never ends", status=200)
            return
        *complete, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        yield from complete


@dataclass
class EventFeed(Generic[Item]):
    """One stream followed over as many connections as it takes.

    Attributes:
        cls: Model of a line.
        path: Of the stream, below `api/v1/`.
        params: Query besides the cursor.
        cursor: Id of the last item that counted, or None before the first.
        ends: Tells whether an item is the last one of the stream.
        backoff: Delays between connections; without progress for `patience` failures in a row it gives up.
        patience: Connections in a row that may fail before the error is raised; the default is about an hour
            without one answer.
    """

    cls: type[Item]
    path: str
    params: dict[str, str | int | float | None] = field(default_factory=dict)
    cursor: int | None = None
    ends: Callable[[Item], bool] = lambda item: False
    backoff: Retries = field(default_factory=Retries)
    patience: int = 900
    failures: int = 0
    resyncs: int = 0
    silent: bool = False
    """A keep-alive came: time to ask whether what is followed has ended."""
    silences: int = 0
    """Keep-alives of the present connection."""
    closing: bool = False
    """It has ended. Keep-alives may have waited on the way longer than the end took, so that only the silence of
    a connection made after that says that all has been read."""
    jumped: bool = False
    """The cursor was moved from outside: the present connection is of no more use."""
    finished: bool = False

    def call(self) -> Call:
        """Return the request of the next connection."""
        self.silences = 0
        return Call("GET", self.path, params={**self.params, "after": self.cursor})

    def check(self, reply: Reply) -> None:
        """Check the status of a reply.

        Raises:
            DetlabError: The reply is an error that will not go away by waiting.
            Reconnect: The reply is an error that may go away by waiting.
        """
        if 200 <= reply.status < 300:
            return
        error = error_of(reply)
        # A proxy that was started anew knows no routes at first, and says so in its own words.
        if reply.passing or (reply.status == NotFound.default_status and error.code == FOREIGN):
            raise Reconnect(error)
        raise error

    def line(self, data: bytes) -> Item | None:
        """Return the item of one line if it is new, else None.

        Raises:
            ApiError: The line is not a valid item.
        """
        if not data.strip():
            self.silent = True
            self.silences += 1
            return None
        try:
            item = self.cls.model_validate_json(data)
        except ValidationError as error:
            raise ApiError(
                f"a line of the stream {self.path} is invalid: {str(error).splitlines()[0]}",
                status=200,
                hint="Client and master may be of different versions: compare det version",
            ) from error
        self.failures = 0
        number: int = item.id
        restart = isinstance(item, Event) and item.kind == "resync"
        if restart:
            self.resyncs += 1
            return item
        self.resyncs = 0
        if self.cursor is not None and number <= self.cursor:
            return None
        self.cursor = number
        if isinstance(item, Event) and item.kind == "cursor":
            return None
        if self.ends(item):
            self.finished = True
        return item

    def resume_from(self, cursor: int) -> None:
        """Continue, on a new connection, after another cursor: that of a fresh snapshot."""
        self.cursor = cursor
        self.jumped = True

    @property
    def done_here(self) -> bool:
        """Whether the present connection is of no more use."""
        return self.finished or self.jumped

    def checked(self, ended: bool) -> None:
        """Take the answer to whether what is followed has ended, asked because `silent` was on."""
        self.silent = False
        if self.closing:
            # Twice: a slow master sends one keep-alive before it has looked for what is new.
            self.finished = self.silences >= 2
        elif ended:
            self.closing = self.jumped = True

    def jump(self) -> float:
        """Return how long to wait before the connection after a jump; more if it is one of many in a row."""
        self.jumped = False
        return 0.0 if self.resyncs <= 1 else self.backoff.pause(self.resyncs - 1)

    def ended_early(self) -> DetlabError:
        """Return the error for a connection that the other side closed before its time."""
        return ApiError(f"the stream {self.path} was closed", status=200)

    def lost(self, error: DetlabError) -> float:
        """Return how long to wait before connecting again.

        Raises:
            DetlabError: `error`, when it has failed too often in a row.
        """
        self.failures += 1
        if self.failures > self.patience:
            raise error
        return self.backoff.pause(self.failures)


class Reconnect(Exception):
    """The stream broke in a way that a new connection may cure."""

    def __init__(self, error: DetlabError) -> None:
        super().__init__(str(error))
        self.error = error


def event_feed(
    experiment_id: int,
    after: int | None,
    *,
    names: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
) -> EventFeed[Event]:
    """Return the feed of one experiment's events; it ends with the experiment."""
    return EventFeed(
        Event,
        f"experiments/{int(experiment_id)}/stream",
        {"names": _texts(names), "groups": _texts(groups)},
        cursor=after,
        ends=ends_experiment,
    )


def listed(names: str | None) -> tuple[str, ...]:
    """Return the names of a text that has commas between them."""
    return tuple(name for name in (names or "").split(",") if name)


def _texts(texts: tuple[str, ...]) -> str | None:
    """Write a list for a query: with commas between, or as JSON where a text holds one."""
    plain = not any("," in text or text.startswith('["') for text in texts)
    return (",".join(texts) if plain else json.dumps(texts)) or None


def log_feed(trial_id: int, after: int | None) -> EventFeed[LogLine]:
    """Return the feed of one trial's log lines; the master closes it when the trial has ended."""
    return EventFeed(LogLine, f"trials/{int(trial_id)}/logs/stream", cursor=after)


def ends_experiment(event: Event) -> bool:
    """Tell whether an event says that its experiment has ended."""
    if event.kind != "experiment":
        return False
    try:
        return ExperimentState(str(event.data.get("state"))).terminal
    except ValueError:
        return False
