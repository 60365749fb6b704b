"""The node's Docker engine: used by many threads, watched by one, and allowed to be away.

Every wait survives outages: the engine is restarted under running containers (live-restore)
and only time is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import docker
import docker.errors
import requests

from detlab.backoff import Backoff

_log = logging.getLogger(__name__)
T = TypeVar("T")

DEFAULT_URL = "unix:///var/run/docker.sock"
TIMEOUT = 60.0
"""Seconds for one answer of the engine."""
LOOK = 10.0
"""Seconds between two checks of a container, in case an event was missed."""
AGENT_LABEL, PLACE_LABEL = "detlab.agent", "detlab.directory"
ALLOCATION_LABEL, RUN_LABEL = "detlab.allocation", "detlab.run"


class EngineAway(Exception):
    """The engine does not answer; the message names it."""


class EngineRefused(Exception):
    """The engine refused; the message is its own."""


class Gone(Exception):
    """The engine has no such container or image."""


@dataclass(frozen=True)
class ContainerEnd:
    """How a container ended, according to the engine.

    Attributes:
        exit_code: Status of its first process.
        oom: Whether the kernel ended one of its processes because of the memory limit.
        error: Why it could not be started.
        at: When, seconds since the epoch.
        said: The last lines of output of its first process.
    """

    exit_code: int
    oom: bool
    error: str
    at: float
    said: str = ""


class Engine:
    """One engine.

    Args:
        url: Its address.
        labels: Labels that only our containers have.
    """

    def __init__(self, url: str, labels: Mapping[str, str]) -> None:
        self.url = url
        self.labels = dict(labels)
        self._client: docker.DockerClient | None = None
        self._lock = threading.Lock()
        self._filters = [f"{name}={value}" for name, value in labels.items()]
        self._listeners: list[tuple[str, asyncio.Event]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None
        self._stream: Any = None
        self.up = False
        """Whether it answered the last time."""
        self.lost_at = 0.0
        """When it was last found away, seconds since the epoch."""

    # --- questions, in threads -----------------------------------------------------------------------------

    def ask(self, question: Callable[[docker.DockerClient], T]) -> T:
        """Return the engine's answer to a request.

        Raises:
            EngineAway: It does not answer.
            EngineRefused: It refuses.
            Gone: It does not have what was requested.
        """
        with self._translated():
            return question(self._connected())

    def ask_again(self, question: Callable[[docker.DockerClient], T]) -> T:
        """Ask twice: the first request may use a connection from before a restart of the engine. Must be idempotent."""
        try:
            return self.ask(question)
        except EngineAway:
            return self.ask(question)

    def inspect(self, container: str) -> dict[str, Any]:
        """Return what the engine says about a container (id or name)."""
        return self.ask_again(lambda client: client.api.inspect_container(container))

    def ours(self) -> dict[str, str]:
        """Return our containers, running or not: id -> allocation."""
        filters = {"label": self._filters}
        found = self.ask_again(lambda client: client.api.containers(all=True, filters=filters))
        return {item["Id"]: str(item["Labels"].get(ALLOCATION_LABEL, "")) for item in found}

    def remove(self, container: str) -> None:
        """Remove a container with its own volumes, running or not; a missing one is fine."""
        with contextlib.suppress(Gone):
            self.ask_again(lambda client: client.api.remove_container(container, force=True, v=True))

    def signal(self, container: str, name: str) -> None:
        """Send a signal to the first process of a container; one that has ended is fine.

        Raises:
            EngineAway: It does not answer.
        """
        with contextlib.suppress(Gone, EngineRefused):  # the last: it is not running
            self.ask_again(lambda client: client.api.kill(container, name))

    def said(self, container: str) -> str:
        """Return the last lines that a container's first process printed."""
        try:
            text: bytes = self.ask_again(lambda client: client.api.logs(container, tail=10))
        except (EngineAway, EngineRefused, Gone):
            return ""
        return text.decode("utf-8", errors="replace").strip()[-2000:]

    def _connected(self) -> docker.DockerClient:
        with self._lock:
            if self._client is None:
                self._client = docker.DockerClient(base_url=self.url, version="auto", timeout=TIMEOUT)
            return self._client

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (docker.errors.NotFound, docker.errors.ImageNotFound) as error:
            raise Gone(_text(error)) from error
        except docker.errors.APIError as error:
            raise EngineRefused(_text(error)) from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise EngineAway(
                f"the Docker engine at {self.url} does not answer ({_root_cause(error)}). Start it on this node "
                "(systemctl start docker), or name its socket with the agent's --docker-host"
            ) from error

    # --- the watch -----------------------------------------------------------------------------------------

    def watch(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]) -> None:
        """Follow the engine from now on; `on_change` is called in the loop when it comes or goes."""
        self._loop, self._on_change = loop, on_change
        self._watcher = threading.Thread(target=self._watch, name="docker-events", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop following it, and close the connections."""
        self._stopped.set()
        with contextlib.suppress(docker.errors.DockerException, OSError):
            if self._stream is not None:
                self._stream.close()
        if self._watcher is not None:
            self._watcher.join(5.0)
        if self._client is not None:
            self._client.close()

    async def ended(self, container: str) -> ContainerEnd | None:
        """Wait until a container does not run, through any outage of the engine; return None if it was removed."""
        listener = (container, heard := asyncio.Event())
        self._listeners.append(listener)
        try:
            while True:
                heard.clear()
                try:
                    return await asyncio.to_thread(self._ended_now, container)
                except Gone:
                    return None
                except (EngineAway, EngineRefused, _StillRuns):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK):
                            await heard.wait()
        finally:
            self._listeners.remove(listener)

    def _ended_now(self, container: str) -> ContainerEnd:
        state = self.inspect(container)["State"]
        if state["Running"] or state["Status"] == "created":
            raise _StillRuns
        return ContainerEnd(
            int(state["ExitCode"]), bool(state["OOMKilled"]), str(state["Error"]), _seconds(state["FinishedAt"])
        )

    def _watch(self) -> None:
        backoff = Backoff(first=0.2, cap=5.0)
        while not self._stopped.is_set():
            with contextlib.suppress(EngineAway, EngineRefused, Gone):
                self.ask(self._follow)
            if self.up and not self._stopped.is_set():
                backoff.reset()
                self.lost_at = time.time()
                _log.warning("the Docker engine at %s is away; its tasks are waited for", self.url)
                self._tell(up=False)
            self._stopped.wait(backoff.next_pause())

    def _follow(self, client: docker.DockerClient) -> None:
        client.ping()
        filters = {"type": "container", "event": ["die", "oom", "destroy"], "label": self._filters}
        self._stream = client.api.events(decode=True, filters=filters)
        self._tell(up=True)
        for event in self._stream:
            if self._stopped.is_set():
                return
            self._in_loop(partial(self._wake, _name(event)))

    def _tell(self, *, up: bool) -> None:
        changed, self.up = self.up != up, up
        self._in_loop(lambda: self._wake(None))
        if changed:
            self._in_loop(self._on_change)

    def _wake(self, container: str | None) -> None:
        for name, event in self._listeners:
            if container in {None, name}:
                event.set()

    def _in_loop(self, call: Callable[[], None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: the agent ends
            self._loop.call_soon_threadsafe(call)


class _StillRuns(Exception):
    """The container has not ended yet."""


def _text(error: docker.errors.APIError) -> str:
    return str(error.explanation or error)


def _root_cause(error: BaseException) -> str:
    """Return the innermost message: the outer ones repeat it in nested brackets."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error) or type(error).__name__


def _name(event: Any) -> str:
    """Return the name of the container that an event is about."""
    return str(event.get("Actor", {}).get("Attributes", {}).get("name", ""))


def _seconds(text: str) -> float:
    """Return a time of the engine (nanoseconds, UTC) in seconds since the epoch; 0 if it is not a time."""
    try:
        return datetime.fromisoformat(text[:19] + "+00:00").timestamp()
    except ValueError:
        return 0.0
