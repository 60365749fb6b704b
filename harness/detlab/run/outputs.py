"""Uploading output files from inside a task: PUT task/outputs/{name}, with the standard library alone.

Outputs outlive the task. An upload is retried while the master does not answer; the token is read for each attempt,
since the launcher renews it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from detlab.errors import DetlabError, NotInCluster, StorageError, from_reply
from detlab.info import ClusterInfo, get_cluster_info, read_token
from detlab.trust import tls_context

PATIENCE = 600.0
"""Seconds for which an upload is repeated while the master does not answer."""
_REQUEST_SECONDS = 60.0
REPEATED = frozenset({401, 429, 500, 502, 503, 504})
"""401 too: the token may just have been renewed."""


class OutputRefused(StorageError):
    """The master will not take the file, however often it is sent."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


class _Told:
    """A connection that reads the answer even if the other end stopped reading the body: that answer says why."""

    def send(self, data: Any) -> None:
        """Send; what no longer can be sent has been answered already, or `getresponse` raises."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().send(data)  # type: ignore[misc]  # mixed into a connection


class _Plain(_Told, http.client.HTTPConnection):
    pass


class _Secure(_Told, http.client.HTTPSConnection):
    pass


class _Opener(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Plain, request)


class _SecureOpener(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._trusted = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Secure, request, context=self._trusted)


class TaskOutputs:
    """The files that this task hands over.

    Args:
        info: What the task knows about itself; None looks for it.
        patience: Seconds for which an upload is repeated.

    Raises:
        NotInCluster: This process is not part of a task.
    """

    def __init__(self, info: ClusterInfo | None = None, *, patience: float = PATIENCE) -> None:
        found = info or get_cluster_info()
        if found is None:
            raise NotInCluster("outputs can be uploaded only from inside a task: DET_TASK_DIR is not set")
        self._info = found
        self._patience = patience
        self._opener = opener_for(found.master_url)

    @property
    def task_id(self) -> str:
        """The task that this process belongs to."""
        return str(self._info.task_id)

    @property
    def task_dir(self) -> Path:
        """Its directory, which is removed after it."""
        return Path(self._info.task_dir)

    def put(self, name: str, data: bytes | Path) -> None:
        """Hand over a file; one of the same name is replaced.

        Args:
            name: Of the file; no slashes.
            data: Its bytes, or the file that has them.

        Raises:
            Refused: The master does not take the file: it is too large, for example.
            StorageError: It did not answer in time.
        """
        give_up = time.monotonic() + self._patience
        pause = 0.2
        while True:
            try:
                self._send(name, data)
            except urllib.error.HTTPError as error:
                problem: Exception = explained(error)
                if error.code not in REPEATED:
                    raise OutputRefused(f"{name} was refused: {problem}", hint=_hint(problem)) from error
            except (OSError, http.client.HTTPException) as error:
                problem = error
            else:
                return
            if time.monotonic() + pause > give_up:
                raise StorageError(f"{name} could not be uploaded: {problem}") from problem
            time.sleep(pause)
            pause = min(5.0, pause * 2)

    def _send(self, name: str, data: bytes | Path) -> None:
        url = f"{self._info.master_url.rstrip('/')}/api/v1/task/outputs/{quote(name, safe='')}"
        headers = {
            "Authorization": f"Bearer {read_token(self._info.task_dir)}",
            "Content-Type": "application/octet-stream",
            "Content-Length": str(data.stat().st_size if isinstance(data, Path) else len(data)),
        }
        with contextlib.ExitStack() as stack:
            body = stack.enter_context(data.open("rb")) if isinstance(data, Path) else data
            request = urllib.request.Request(url, data=body, headers=headers, method="PUT")  # noqa: S310  (the agent's)
            stack.enter_context(self._opener.open(request, timeout=_REQUEST_SECONDS)).read()


class TaskRequests:
    """Requests of a task's program to the master, in JSON, repeated while it does not reply.

    Args:
        info: What the task knows about itself.
    """

    timeout = _REQUEST_SECONDS

    def __init__(self, info: ClusterInfo) -> None:
        self._info = info
        self._opener = opener_for(info.master_url)

    def request(self, path: str, body: Any = None) -> dict[str, Any]:
        """Get, or post if there is a body.

        Raises:
            DetlabError: The master refuses it.
        """
        pause = 0.2
        while True:
            try:
                return self._once(path, body)
            except urllib.error.HTTPError as error:
                problem: Exception = explained(error)
                if error.code not in REPEATED:
                    raise problem from error
            except (OSError, http.client.HTTPException) as error:
                problem = error
            time.sleep(pause)
            pause = min(5.0, pause * 2)

    def _once(self, path: str, body: Any) -> dict[str, Any]:
        url = f"{self._info.master_url.rstrip('/')}/api/v1/{path}"
        headers = {"Authorization": f"Bearer {read_token(self._info.task_dir)}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - the agent's own
        with self._opener.open(request, timeout=self.timeout) as reply:
            found: dict[str, Any] = json.load(reply)
            return found


def say(text: str) -> None:
    """Print a line to the task's log."""
    sys.stderr.write(f"detlab: {text}\n")
    sys.stderr.flush()


def opener_for(master_url: str) -> urllib.request.OpenerDirector:
    """Return what sends requests to the master, by no proxy of the environment: it may be this very machine."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        _NoRedirect(),
        _Opener(),
        _SecureOpener(tls_context(master_url)),
    )


def explained(error: urllib.error.HTTPError) -> DetlabError:
    """Return the master's own words about a request that it refused."""
    try:
        body = json.loads(error.read())
    except (ValueError, OSError, http.client.HTTPException):
        body = {}
    return from_reply(error.code, body if isinstance(body, dict) else {})


def _hint(problem: Exception) -> str | None:
    return problem.hint if isinstance(problem, DetlabError) else None


class LatestUpload:
    """Hands over the newest state of one file from a thread, at most every so often.

    A state that could not be handed over is tried again. One that the master refused is not, and no larger one is: only
    a smaller one, and at the end the last one.

    Args:
        put: Hands over (name, bytes).
        name: Of the file.
        interval: Seconds between two uploads at least.
        failed: Called with the error of each upload that failed.
    """

    def __init__(
        self,
        put: Callable[[str, bytes], None],
        name: str,
        *,
        interval: float = 2.0,
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._put = put
        self._name = name
        self._interval = interval
        self._failed = failed
        self._changed = threading.Condition()
        self._newest: bytes | None = None
        self._refused: int | None = None
        """Bytes of the smallest state that the master refused."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="outputs", daemon=True)
        self._thread.start()

    def offer(self, data: bytes) -> None:
        """Set the newest state; an older one that was not sent yet is dropped."""
        with self._changed:
            self._newest = data
            self._changed.notify_all()

    def close(self, timeout: float | None = None) -> bool:
        """Hand over what is left; return whether that worked in time."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive() and self._newest is None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._is_worth_sending())
                data, self._newest = self._newest, None
            if data is None:
                return
            try:
                self._put(self._name, data)
            except Exception as error:  # else the thread would end, and nothing more be handed over
                self._failed(error)
                if not self._keep(data, error):
                    return
            with self._changed:
                self._changed.wait_for(lambda: self._closing, self._interval)

    def _keep(self, data: bytes, error: Exception) -> bool:
        """Keep a state that could not be handed over, unless there is a newer one; return whether to try again."""
        with self._changed:
            if isinstance(error, OutputRefused):
                self._refused = len(data)
            newer = self._newest is not None
            self._newest = self._newest or data  # `close` says that it was not handed over
            return newer or not self._closing

    def _is_worth_sending(self) -> bool:
        return self._newest is not None and (self._refused is None or len(self._newest) < self._refused)
