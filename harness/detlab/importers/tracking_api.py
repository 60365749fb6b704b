"""MLflow's tracking protocol, spoken to the server that is read and to the master that is written.

Replies are read up to a limit, no redirect is followed, and what may pass is asked again.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from detlab.client.transport.calls import Retries
from detlab.errors import ApiError, ClusterUnreachable

if TYPE_CHECKING:
    import httpx

TRACKING, ARTIFACTS = "api/2.0/mlflow/", "api/2.0/mlflow-artifacts/artifacts/"
MOST_BYTES = 256 * 1024**2
"""Of a reply that is read into memory."""
MOST_PAGES = 100_000
IN_MEMORY = 8 * 1024**2
"""Bytes of a file on its way that are kept in memory; more of it lies in a temporary file."""
_CHUNK = 1024**2
_PASSING = frozenset({429, 502, 503, 504})
_STOPPED_SECONDS = 0.25
LONGEST_WAIT = 60
"""Seconds that a server may ask to wait; what takes longer, such as a limit per day, ends the import."""


class TrackingRefusal(ApiError):
    """A server of the tracking protocol has answered with an error.

    Attributes:
        error_code: MLflow's name of it.
        server: The name of the server.
    """

    default_code = "import.refused"

    def __init__(self, message: str, *, server: str, status: int, error_code: str, hint: str | None = None) -> None:
        super().__init__(message, status=status, hint=hint)
        self.server, self.error_code = server, error_code

    @property
    def absent(self) -> bool:
        """Whether there is no such thing, or no such route."""
        return self.status == 404

    def ends(self, source: str) -> bool:
        """Whether nothing more can be copied: it is about a token, a right here, a quota, and not about one run.

        Args:
            source: The name of the server that is read, which may keep single things to itself.
        """
        if self.status == 403:
            return self.server != source
        return self.status in {401, 429, 503} or self.error_code == "RESOURCE_EXHAUSTED"


class Stopped(Exception):
    """The import was interrupted; its threads end by this."""


class TrackingApi:
    """One server. Threads may share it.

    Args:
        http: With the server's address and whom it is spoken to as.
        name: What the server is called in messages.
        prefix: Of all paths.
        retries: When to ask again.
        sleep: Waits.
    """

    def __init__(
        self,
        http: httpx.Client,
        name: str,
        *,
        prefix: str = "",
        retries: Retries | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._http, self.name, self._prefix = http, name, prefix
        self._retries = retries or Retries()
        self._sleep = sleep
        self.stopped = threading.Event()

    def get(self, path: str, /, **params: Any) -> dict[str, Any]:
        """Ask for something of the tracking API."""
        return self.ask("GET", TRACKING + path, params=params)

    def post(self, path: str, body: Mapping[str, Any], *, again: bool = True) -> dict[str, Any]:
        """Change something by the tracking API.

        Args:
            path: Below `api/2.0/mlflow/`.
            body: The message.
            again: Whether to ask again where it is not known whether the request has arrived.
        """
        return self.ask("POST", TRACKING + path, body=body, again=again)

    def pages(self, verb: str, path: str, key: str, /, **fields: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page."""
        token = ""
        for _ in range(MOST_PAGES):
            asked = {**fields, **({"page_token": token} if token else {})}
            if verb == "GET":
                reply = self.ask(verb, TRACKING + path, params=asked)
            else:
                reply = self.ask(verb, TRACKING + path, body=asked)
            items = reply.get(key) or []
            if not isinstance(items, list):
                raise self._odd(path)
            yield from (one for one in items if isinstance(one, dict))
            following = str(reply.get("next_page_token") or "")
            if not following:
                return
            if following == token:
                raise self._odd(path)
            token = following

    def ask(
        self, verb: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None, again: bool = True
    ) -> dict[str, Any]:
        """Send a request; return the JSON object of its reply.

        Raises:
            ClusterUnreachable: No answer, after the repetitions.
            TrackingRefusal: The server says no.
        """
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        data = self._send(verb, path, params=params, content=lambda: content, headers=headers, again=again)
        try:
            found = json.loads(data or b"{}")
        except (ValueError, RecursionError) as error:
            raise self._odd(path) from error
        if not isinstance(found, dict):
            raise self._odd(path)
        return found

    def put_file(self, path: str, file: BinaryIO, size: int) -> None:
        """Upload a file.

        Args:
            path: Below the server's artifacts.
            file: It; read again for each attempt.
            size: Its bytes.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}

        def content() -> Iterator[bytes]:
            file.seek(0)
            while chunk := file.read(_CHUNK):
                yield chunk

        self._send("PUT", f"{ARTIFACTS}{quote(path)}", content=content, headers=headers)

    @contextmanager
    def fetched(self, path: str, params: Mapping[str, Any], most: int) -> Iterator[tuple[BinaryIO, int]]:
        """Download a file into a temporary one.

        Args:
            path: Below the server's address.
            params: Of the request.
            most: Bytes that are read.

        Yields:
            The file, and how many bytes it has; more than `most` says that it has more.
        """
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:

            def sink(chunk: bytes) -> None:
                if file.tell() <= most:
                    file.write(chunk)

            def begin() -> None:
                file.seek(0)
                file.truncate()

            self._send("GET", path, params=params, sink=sink, begin=begin, most=most)
            size = file.tell()
            file.seek(0)
            yield file, size  # type: ignore[misc]  # a SpooledTemporaryFile is one for readers

    def _send(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: Callable[[], Any] = lambda: None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
        begin: Callable[[], object] = lambda: None,
        sink: Callable[[bytes], object] | None = None,
        most: int | None = None,
    ) -> bytes:
        import httpx

        failures = 0
        while True:
            if self.stopped.is_set():
                raise Stopped
            begin()
            try:
                with self._http.stream(
                    verb, self._prefix + path, params=params or None, content=content(), headers=headers
                ) as reply:
                    if reply.is_success:
                        return self._taken(reply, path, sink, MOST_BYTES if most is None else most)
                    refusal = self._refusal(reply, path)
                    wait = _seconds(reply.headers.get("Retry-After")) if reply.status_code in _PASSING else None
            except httpx.TransportError as error:
                failures += 1
                pause = self._retries.delay(failures, refused=isinstance(error, httpx.ConnectError)) if again else None
                if pause is None:
                    raise self._unreachable(error) from error
            else:
                failures += 1
                pause = None if wait is None or wait > LONGEST_WAIT else self._retries.delay(failures)
                if pause is None:
                    raise refusal
                pause = max(pause, float(wait or 0))
            self.wait(pause)

    def _taken(self, reply: httpx.Response, path: str, sink: Callable[[bytes], object] | None, most: int) -> bytes:
        found, size = bytearray(), 0
        for chunk in reply.iter_bytes(_CHUNK if sink else None):
            size += len(chunk)
            if sink is not None:
                sink(chunk)
                if size > most:
                    break
            elif size > most:
                raise self._odd(path, f"has over {most // 1024**2} MiB")
            else:
                found += chunk
        return bytes(found)

    def wait(self, seconds: float) -> None:
        """Wait, or less if the import is stopped."""
        if self._sleep is not None:
            self._sleep(seconds)
            return
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.stopped.wait(min(left, _STOPPED_SECONDS)):
            pass

    def _refusal(self, reply: httpx.Response, path: str) -> TrackingRefusal:
        said = bytearray()
        for chunk in reply.iter_bytes():
            said += chunk
            if len(said) > 64 * 1024:
                break
        try:
            found = json.loads(bytes(said))
        except ValueError:
            found = None
        status = reply.status_code
        if isinstance(found, dict) and found.get("error_code"):
            code, text = str(found["error_code"]), str(found.get("message") or "")
        else:
            code, text = "", f"HTTP status {status} for {path.partition('?')[0]}"
        hint = None
        if status == 401:
            hint = "Is the token right, and for this server? MLFLOW_TRACKING_TOKEN, or for the cluster: det user whoami"
        if 300 <= status < 400:
            text = f"the address leads elsewhere (HTTP status {status}): no login page is followed"
        message = f"{self.name} answered: {text[:2000]}"
        return TrackingRefusal(message, server=self.name, status=status, error_code=code, hint=hint)

    def _odd(self, path: str, what: str = "is none of MLflow's") -> TrackingRefusal:
        hint = "Is the address that of a tracking server, without a page of it?"
        message = f"the answer of {self.name} to {path.partition('?')[0]} {what}"
        return TrackingRefusal(message, server=self.name, status=200, error_code="", hint=hint)

    def _unreachable(self, error: Exception) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"{self.name} does not answer: {str(error) or type(error).__name__}",
            hint="Once it does, run the same command again: it goes on where it stopped.",
        )


def _seconds(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0
