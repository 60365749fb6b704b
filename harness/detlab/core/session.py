"""The HTTP session of a trial with its master, which survives outages.

The token is read from the task directory for each request, because the launcher renews it. A request is
repeated, with growing pauses, while the master cannot be reached or answers 5xx or 429, up to a limit:
`INTERACTIVE_LIMIT` (5 minutes) for calls whose answer the code waits for, `COMMIT_LIMIT` (a day) for what must not
be lost: committing a checkpoint and acknowledging a preemption. All calls of the task API are idempotent.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from detlab import errors, loopback
from detlab.backoff import Backoff
from detlab.core.quiet_logs import quiet
from detlab.forking import renew_in_children
from detlab.info import ClusterInfo, read_token
from detlab.schemas.wire import API_PREFIX
from detlab.trust import trust_for

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("detlab.core")
T = TypeVar("T")

INTERACTIVE_LIMIT = 300.0
COMMIT_LIMIT = 24 * 3600.0
LOOK, SLOW_LOOK = 0.005, 0.1
"""Seconds between two looks at a file, at first and at most."""
ASK_EVERY = 5.0
"""Seconds of such waiting after which the log says so, and the master is asked whether there is any use in it."""
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_TOKEN_RETRIES = 5
_FILE_SECONDS = 600.0
"""The longest silence while a file comes: the master checks all of it before its first byte."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two attempts to reach the master, at first and at most."""


def decode_reply(url: str, status: int, content: bytes) -> Any:
    """Return the JSON body of a 2xx reply from `url` (None if it has none).

    Raises:
        DetlabError: The master replied with an error; `errors.from_reply` chooses the class.
        ApiError: The body of a 2xx reply is not JSON.
        ClusterUnreachable: The error does not come from the master but from something in front of it: a proxy that
            has just restarted and does not know the route yet, or a Hub that answers in its place.
    """
    if 200 <= status < 300:
        if not content:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise errors.ApiError(
                f"{url} did not answer with JSON: is this the address of the master?", status=status
            ) from error
    said = errors.master_said(content)
    if said is None:
        raise errors.ClusterUnreachable(
            f"a proxy answers instead of the master (status {status}): the master may be starting"
        )
    raise errors.from_reply(status, said)


class TaskSession:
    """Calls to the task API of one allocation.

    Args:
        master_url: Base of the service.
        task_dir: Where the token is.
        transport: For tests.
        sleep: Pauses between attempts; wakes early when the session closes.
        clock: Monotonic seconds.

    Attributes:
        held_up: Whether a call waits for its next attempt, because the master is away.
    """

    def __init__(
        self,
        master_url: str,
        task_dir: Path,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base_url = api_base(master_url)
        self.task_dir = task_dir
        self.held_up = False
        self._closed = threading.Event()
        self._sleep = sleep or self._closed.wait
        self._clock = clock
        self._transport = transport
        self._http: httpx.Client | None = None
        self._opening = threading.Lock()
        renew_in_children(self)
        # Now, not with the first call from a thread: what it imports draws from `random` while the trial may be seeded.
        importlib.import_module("httpx")

    def forget_connections(self) -> object:
        """Forget what belongs to the parent process; see `detlab.forking`."""
        self._opening = threading.Lock()
        http, self._http = self._http, None
        return http

    @classmethod
    def from_info(cls, info: ClusterInfo) -> TaskSession:
        """Return the session of the current task."""
        return cls(info.master_url, info.task_dir)

    def close(self) -> None:
        """Close connections; a call that waits for its next attempt fails at once."""
        with self._opening:
            self._closed.set()
            http, self._http = self._http, None
        if http is not None:
            with quiet():
                http.close()

    def get(self, path: str, *, limit: float = INTERACTIVE_LIMIT) -> Any:
        """GET `path` and return the decoded reply. Raises as `call` does."""
        return self.call("GET", path, limit=limit)

    def call(self, method: str, path: str, *, body: Any = None, limit: float = INTERACTIVE_LIMIT) -> Any:
        """Send one request, repeating it through an outage of at most `limit` seconds.

        Raises:
            ClusterUnreachable: The master did not answer within `limit`.
            StaleAttempt: A newer attempt of this trial runs: end this process.
            AuthError: The token was refused, even after it was reloaded.
            DetlabError: The master replied with any other error.
        """
        return self._repeated(lambda: self._once(method, path, body), f"{method} {path}", limit)

    def download(self, path: str, target: Path, *, limit: float = INTERACTIVE_LIMIT) -> None:
        """GET `path` into a file; after an outage it begins anew. Raises as `call` does.

        Raises:
            StorageError: The file cannot be written.
        """
        self._repeated(lambda: self._into(path, target), f"GET {path}", limit)

    def _repeated(self, attempt: Callable[[], T], what: str, limit: float) -> T:
        give_up = self._clock() + limit
        denials = 0
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            pause = backoff.next_pause()
            try:
                return attempt()
            except errors.AuthError:
                denials += 1
                if denials > _TOKEN_RETRIES or self._clock() + pause > give_up:
                    raise
                reason = "the token was refused: reloading it"
            except errors.ClusterUnreachable as error:
                if self._closed.is_set() or self._clock() + pause > give_up:
                    raise
                reason = error.message
            logger.warning("%s: %s; next attempt in %.1f s", what, reason, pause)
            self._hold_up(pause)

    def wait_until(self, done: Callable[[], bool], what: str, *, limit: float) -> None:
        """Look until `done`, often at first: what the master has to take comes to it on another way than our calls.

        The process that delivers it may hang, or have been refused: from time to time this one asks the master itself
        whether this attempt still counts.

        Args:
            done: Looks.
            what: What is waited for, for the log and the error.
            limit: Seconds after which it is given up.

        Raises:
            ClusterUnreachable: It was not done within `limit`, or the session was closed.
            StaleAttempt: A newer attempt of this trial runs: end this process.
        """
        began = self._clock()
        ask_at = began + ASK_EVERY
        while not done():
            waited = self._clock() - began
            if self._closed.is_set() or waited > limit:
                raise errors.ClusterUnreachable(f"timeout after {waited:.0f} s of waiting until {what}")
            if self._clock() >= ask_at:
                if waited < 2 * ASK_EVERY:
                    logger.warning("waiting until %s: is the master away?", what)
                self._ask_whether_we_count()
                ask_at = self._clock() + ASK_EVERY
            self._hold_up(min(max(LOOK, waited / 4), SLOW_LOOK))

    def _ask_whether_we_count(self) -> None:
        with contextlib.suppress(errors.ClusterUnreachable, errors.AuthError):
            self._once("GET", "task/preempt?timeout_seconds=0", None)

    def _hold_up(self, seconds: float) -> None:
        self.held_up = True
        try:
            self._sleep(seconds)
        finally:
            self.held_up = False

    def _once(self, method: str, path: str, body: Any) -> Any:
        with self._answers():
            response = self._client().request(method, path, json=body, headers=self._headers())
        self._refuse_transient(response.status_code)
        return decode_reply(str(response.request.url), response.status_code, response.content)

    def _into(self, path: str, target: Path) -> None:
        import httpx

        patience = httpx.Timeout(_FILE_SECONDS, connect=10.0)
        with self._answers(), self._client().stream("GET", path, headers=self._headers(), timeout=patience) as response:
            self._refuse_transient(response.status_code)
            if response.status_code != 200:
                decode_reply(str(response.request.url), response.status_code, response.read())
            try:
                with target.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
            except OSError as error:
                raise errors.StorageError(f"{target} cannot be written: {error}") from error

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {read_token(self.task_dir)}"}

    @contextlib.contextmanager
    def _answers(self) -> Iterator[None]:
        import httpx

        try:
            with quiet():
                yield
        except (httpx.TransportError, RuntimeError) as error:  # RuntimeError: the client was closed
            raise errors.ClusterUnreachable(
                f"the master at {self.base_url} does not answer: {error or type(error).__name__}"
            ) from error

    def _refuse_transient(self, status: int) -> None:
        if status in _TRANSIENT:
            raise errors.ClusterUnreachable(f"the master at {self.base_url} is unavailable (status {status})")

    def _client(self) -> httpx.Client:
        """Return the client, made for the first call: many a trial has none, and the library takes 100 ms.

        Raises:
            RuntimeError: The session is closed.
        """
        import httpx

        with self._opening:
            if self._closed.is_set():
                raise RuntimeError("the session is closed")
            if self._http is None:
                self._http = httpx.Client(
                    base_url=self.base_url,
                    timeout=httpx.Timeout(30.0, connect=10.0),
                    transport=self._transport,
                    verify=trust_for(self.base_url),
                    event_hooks=loopback.hooks(self.base_url),
                    trust_env=False,  # a proxy setting of the user must not catch calls to the master
                )
            return self._http


def api_base(master_url: str) -> str:
    """Return the address under which the REST API of a master lies, with a trailing slash."""
    return master_url.rstrip("/") + "/" + API_PREFIX
