"""The request layer without I/O: requests, parsing of answers, and retries.

An operation is a generator that yields `Call`s and is sent each call's result; its return value is the
operation's. `detlab.client.transport.session` drives such a `Flow` with blocking or with asynchronous HTTP, so every
operation is written once. Nothing here opens a socket, sleeps or reads a clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError

from detlab.backoff import pause_after
from detlab.errors import (
    ApiError,
    AuthError,
    ConfigError,
    DetlabError,
    Problem,
    Unavailable,
    from_reply,
    master_said,
)
from detlab.schemas.wire import API_PREFIX, PersonRequest, encode_floats

T = TypeVar("T")
Method = Literal["GET", "HEAD", "POST", "PUT", "DELETE"]
Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


class ByteWriter(Protocol):
    """Takes the bytes of a reply."""

    def write(self, data: bytes, /) -> object:
        """Take the next bytes."""


# Statuses that a retry may cure: the proxy without its backend, a master that is starting or draining.
RETRY_STATUSES = frozenset({502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
FOREIGN = "api.foreign"
"""Code of an error that does not come from the master but from the Hub or its proxy."""


@contextmanager
def valid_request(message: str = "the request is not valid") -> Iterator[None]:
    """Make the body of a request within it: what its model refuses is an error of the caller's, field by field.

    Raises:
        ConfigError: Fields cannot have these values; all of them are listed.
    """
    try:
        yield
    except ValidationError as error:
        from detlab.schemas.expconf.checks.translating import from_pydantic

        unknown = [one["loc"] for one in error.errors(include_url=False) if one["type"] == "extra_forbidden"]
        problems = [Problem(".".join(map(str, where)), "is not known here") for where in unknown]
        raise ConfigError([*from_pydantic(error), *problems], message) from error


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came: status and body."""

    status: int
    body: bytes = b""
    location: str | None = None

    @property
    def passing(self) -> bool:
        """Whether the same request may get another answer in a moment."""
        return self.status in RETRY_STATUSES or self.astray

    @property
    def astray(self) -> bool:
        """Whether the Hub answers in place of detlab: its proxy has just restarted and does not know the route yet.

        The Hub then redirects to the same path below its own prefix, where there is nothing; a login page has
        another path.
        """
        path = urlsplit(self.location or "").path
        return self.status in _REDIRECTS and "/hub/" in path and API_PREFIX in path


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request to the master, and how to read its answer.

    Attributes:
        method: HTTP verb.
        path: Below `api/v1/`, without a leading slash.
        params: Query parameters; those that are None are left out.
        json: JSON body (a model or plain data).
        content: Raw body (a bundle) instead of `json`.
        source: A file that is sent as the body, chunk by chunk.
        parse: Turns a 2xx reply into the result.
        accept: Further statuses that are answers rather than errors, such as 404 to a HEAD.
        again: Whether the call may be repeated when it is unknown whether it arrived.
        sink: Opens the file that the reply's body is written to, once per attempt; `parse` then sees no body.
        progress: Called with (bytes sent, bytes in all) while `content` or `source` is sent.
    """

    method: Method
    path: str
    params: Mapping[str, str | int | float | None] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    source: Path | None = None
    parse: Callable[[Reply], Any] = lambda reply: reply.status
    accept: frozenset[int] = frozenset()
    again: bool = True
    sink: Callable[[], AbstractContextManager[ByteWriter]] | None = None
    progress: Progress | None = None

    @property
    def relative_url(self) -> str:
        """The path below the service's base URL."""
        return f"{API_PREFIX}{self.path}"

    def query(self) -> dict[str, str]:
        """Return the parameters that are set, as text."""
        return {key: str(value) for key, value in self.params.items() if value is not None}

    def body(self) -> tuple[bytes | None, str | None]:
        """Return (body, content type)."""
        if self.content is not None:
            return self.content, "application/gzip"
        if self.json is None:
            return None, None
        data: Any = self.json
        if isinstance(data, BaseModel):
            # An older master refuses keys of people that it does not know: only what was asked for is sent.
            data = data.model_dump(mode="json", exclude_defaults=isinstance(data, PersonRequest))
        return json.dumps(encode_floats(data), allow_nan=False).encode(), "application/json"

    def result(self, reply: Reply) -> Any:
        """Return what the reply means.

        Raises:
            DetlabError: The reply is an error; the class follows its code.
        """
        if 200 <= reply.status < 300 or reply.status in self.accept:
            return self.parse(reply)
        raise error_of(reply)


Flow = Generator[Call, Any, T]


def run_flow(flow: Flow[T], send: Callable[[Call], Any]) -> T:
    """Drive a flow with a blocking `send`; its errors are thrown into the flow."""
    try:
        call = next(flow)
        while True:
            try:
                result = send(call)
            except DetlabError as error:
                call = flow.throw(error)
            else:
                call = flow.send(result)
    except StopIteration as stop:
        return stop.value
    finally:
        flow.close()  # after an interrupt its files are put away now, not when the garbage is collected


def error_of(reply: Reply) -> DetlabError:
    """Return the exception for a non-2xx reply, whether the master or a proxy on the way wrote it."""
    if reply.astray:
        return Unavailable(
            "the Hub answers, but has no route to detlab's service yet",
            status=reply.status,
            hint="Hub, proxy or service may be starting. Check it with: det status",
        )
    if reply.status in _REDIRECTS:
        return AuthError(
            f"the address answered with a redirect to {reply.location or 'somewhere else'}: "
            "it refused the token, or it is not detlab's service",
            status=reply.status,
            hint="Check DET_URL and the token (det user whoami), or log in again: det login URL",
        )
    said = master_said(reply.body)
    if said is not None:
        error = from_reply(reply.status, said)
    elif reply.status in RETRY_STATUSES:
        # A HEAD's answer has no body: then nobody knows whether the proxy wrote it or the master.
        what = "the proxy answers, but the master behind it does not" if reply.body else "the cluster is not ready"
        error = Unavailable(
            f"{what} (HTTP status {reply.status})",
            status=reply.status,
            hint="It may be starting. Check it with: det status",
        )
    else:
        error = from_reply(reply.status, {"message": _foreign(reply), "code": FOREIGN})
    if isinstance(error, AuthError) and error.hint is None:
        error.hint = "The token is wrong or has expired. Log in again: det login URL"
    return error


def _foreign(reply: Reply) -> str:
    text = " ".join(reply.body[:200].decode("utf-8", "replace").split())
    if "<" in text:  # a proxy's or the Hub's HTML page says nothing that helps
        text = ""
    return f"HTTP status {reply.status}" + (f": {text}" if text else " from something that is not detlab's service")


def model(cls: Any) -> Callable[[Reply], Any]:
    """Return a parser of a JSON body into `cls`, which may be a model or a type such as `list[AgentView]`."""

    def parse(reply: Reply) -> Any:
        try:
            return TypeAdapter(cls).validate_json(reply.body)
        except ValidationError as error:
            raise _not_understood(error) from error

    return parse


def field_of(name: str, cls: Any) -> Callable[[Reply], Any]:
    """Return a parser of one key of a JSON object into `cls`."""

    def parse(reply: Reply) -> Any:
        try:
            return TypeAdapter(cls).validate_python(json.loads(reply.body)[name])
        except (ValueError, KeyError, TypeError) as error:
            raise _not_understood(error) from error

    return parse


def page_of(cls: Any, edge: str = "next") -> Callable[[Reply], Any]:
    """Return a parser of `{"items": […], "next": id|null}` into (items, next), or with another edge."""

    def parse(reply: Reply) -> Any:
        try:
            data = json.loads(reply.body)
            return TypeAdapter(list[cls]).validate_python(data["items"]), data.get(edge)
        except (ValueError, KeyError, TypeError) as error:
            raise _not_understood(error) from error

    return parse


def plain(reply: Reply) -> Any:
    """Return a JSON body as plain data.

    Raises:
        ApiError: The body is not JSON.
    """
    try:
        return json.loads(reply.body)
    except ValueError as error:
        raise _not_understood(error) from error


def raw(reply: Reply) -> bytes:
    """Return the body's bytes."""
    return reply.body


def _not_understood(error: Exception) -> ApiError:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ApiError(
        f"the answer of the master is invalid: {first}",
        status=200,
        hint="Client and master may be of different versions: compare det version",
    )


@dataclass(frozen=True, slots=True)
class Retries:
    """When to try again: pauses that double, and how often.

    Attributes:
        first: Upper bound of the pause before the first repetition, in seconds.
        cap: Upper bound of every pause, in seconds.
        attempts: How many repetitions before giving up.
        refused: The same when nothing listens at the address: a proxy that is down stays down.
    """

    first: float = 0.25
    cap: float = 5.0
    attempts: int = 8
    refused: int = 2

    def delay(self, failures: int, *, refused: bool = False) -> float | None:
        """Return the seconds to wait after the n-th failure in a row (from 1), or None to give up."""
        if failures > (self.refused if refused else self.attempts):
            return None
        return self.pause(failures)

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after the n-th failure, for what never gives up."""
        return pause_after(failures, self.first, self.cap)
