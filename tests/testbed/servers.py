"""Servers of a real Hub as a person has them: started, waited for, worked in, stopped."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import websocket

from testbed.cluster import Cluster
from testbed.waiting import until

SCOPES = ("inherit",)


@dataclass
class Person:
    """A Hub user with a token, at one cluster."""

    cluster: Cluster
    name: str
    token: str
    _hub: httpx.Client = field(init=False)
    _service: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"token {self.token}"}
        base = self.cluster.url
        self._hub = httpx.Client(base_url=f"{base}/hub/api/", headers=headers, trust_env=False, timeout=60)
        bearer = {"Authorization": f"Bearer {self.token}"}
        api = f"{self.cluster.service}api/v1/"
        self._service = httpx.Client(base_url=api, headers=bearer, trust_env=False, timeout=60)

    def close(self) -> None:
        """Close the connections."""
        self._hub.close()
        self._service.close()

    # --- the Hub

    def path(self, name: str = "") -> str:
        """Path of a server in the Hub's API."""
        return f"users/{self.name}/servers/{name}" if name else f"users/{self.name}/server"

    def start(self, name: str = "", **options: Any) -> httpx.Response:
        """Ask the Hub for a server; the Hub answers after ten seconds at the latest."""
        return self._hub.post(self.path(name), json={"user_options": options})

    def model(self, name: str = "") -> dict[str, Any]:
        """The Hub's model of a server; empty when it has none that is active."""
        reply = self._hub.get(f"users/{self.name}")
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()["servers"].get(name) or {}
        return found

    def ready(self, name: str = "", seconds: float = 90.0) -> str:
        """Wait until a server is up; return its public address, with a slash at the end."""

        def look() -> dict[str, Any] | None:
            try:
                found = self.model(name)
            except httpx.HTTPError:  # the Hub itself is down for a moment
                return None
            return found if found.get("ready") else None

        model = until(look, self.cluster.logs, seconds)
        return f"{self.cluster.url}{model['url']}"

    def stop(self, name: str = "", *, remove: bool = False) -> int:
        """Stop a server; return the Hub's status once it is gone."""
        reply = self._hub.request("DELETE", self.path(name), json={"remove": remove} if name else None)
        until(lambda: not self.model(name), self.cluster.logs)
        return reply.status_code

    def progress(self, name: str = "") -> Iterator[dict[str, Any]]:
        """The events of a spawn page, until it is ready or has failed."""
        with self._hub.stream("GET", f"{self.path(name)}/progress", timeout=60) as reply:
            reply.raise_for_status()
            for line in reply.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    # --- the service

    def get(self, path: str, **params: Any) -> httpx.Response:
        """GET something of the master's API."""
        return self._service.get(path, params=params)

    def post(self, path: str, body: Any = None) -> httpx.Response:
        """POST something to the master's API."""
        return self._service.post(path, json=body)

    def task(self, name: str = "") -> dict[str, Any]:
        """The newest task of a server; empty when there is none."""
        reply = self._service.get("tasks", params={"limit": 200, "owner": self.name})
        reply.raise_for_status()
        return next((item for item in reply.json()["items"] if item["server_name"] == name), {})

    def until_task(self, seconds: float = 60.0, name: str = "", **wanted: Any) -> dict[str, Any]:
        """Wait until a server's newest task has these values."""

        def look() -> dict[str, Any] | None:
            try:
                found = self.task(name)
            except httpx.HTTPError:
                return None
            return found if found and all(found[key] == value for key, value in wanted.items()) else None

        def why() -> str:
            return f"{self.task(name)} never had {wanted}\n{self.cluster.logs()}"

        found: dict[str, Any] = until(look, why, seconds)
        return found


def person(cluster: Cluster, name: str) -> Person:
    """Return a user of a cluster with a fresh token."""
    return Person(cluster, name, cluster.make_token(*SCOPES, user=name))


def user(name: str) -> Any:
    """Return a fixture: this user of the `cluster` of a test's module."""

    @pytest.fixture(scope="module")
    def found(cluster: Cluster) -> Iterator[Person]:
        one = person(cluster, name)
        yield one
        one.close()

    return found


def logged_in(cluster: Cluster, name: str) -> httpx.Client:
    """Return a client that has logged in at the Hub as a browser does, for its pages."""
    navigates = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}
    page = httpx.Client(base_url=cluster.url, headers=navigates, follow_redirects=True, trust_env=False, timeout=60)
    page.get("/hub/login")
    secret = (cluster.folder / "secrets" / f"password-{name}").read_text().strip()
    form = {"username": name, "password": secret, "_xsrf": xsrf(page)}
    reply = page.post("/hub/login?next=%2Fhub%2Fhome", data=form)
    reply.raise_for_status()
    return page


def xsrf(page: httpx.Client) -> str:
    """Return the token that forms of the Hub's pages carry."""
    found = (cookie for cookie in page.cookies.jar if cookie.name == "_xsrf" and cookie.path == "/hub/")
    return str(next(found).value)


def open_terminal(server: str, token: str) -> str:
    """Open a terminal at a server; return the address of its WebSocket."""
    headers = {"Authorization": f"token {token}"}
    made = httpx.post(f"{server}api/terminals", headers=headers, trust_env=False, timeout=30)
    made.raise_for_status()
    return f"{server}terminals/websocket/{made.json()['name']}".replace("http", "ws", 1)


def kill_part(cluster: Cluster, part: str) -> None:
    """SIGKILL a part and wait until its supervisor has started it again."""
    old = cluster.pid(part)
    assert old is not None
    os.kill(old, signal.SIGKILL)
    until(lambda: cluster.pid(part) not in {None, old}, cluster.logs)


class Kernel:
    """A kernel of a server, driven over its WebSocket as a page does.

    Args:
        server: Public address of the server.
        token: Whoever may use it.
        kernel: Id of one that runs; None starts one.
    """

    def __init__(self, server: str, token: str, kernel: str | None = None) -> None:
        self._headers = {"Authorization": f"token {token}"}
        self._server = server
        if kernel is None:
            made = httpx.post(f"{server}api/kernels", headers=self._headers, json={}, trust_env=False, timeout=60)
            made.raise_for_status()
            kernel = str(made.json()["id"])
        self.id = kernel

    @contextmanager
    def connected(self) -> Iterator[websocket.WebSocket]:
        """A connection to the kernel."""
        url = f"{self._server}api/kernels/{self.id}/channels".replace("http", "ws", 1)
        header = [f"{key}: {value}" for key, value in self._headers.items()]
        connection = websocket.create_connection(url, header=header, timeout=60)
        try:
            yield connection
        finally:
            connection.close()

    def run(self, code: str) -> str:
        """Run code; return what it printed or raised."""
        with self.connected() as connection:
            request = _execute(code)
            connection.send(json.dumps(request))
            text, left = "", {"reply", "idle"}  # either may come first: they have ways of their own
            while left:
                message = json.loads(connection.recv())
                if message["parent_header"].get("msg_id") != request["header"]["msg_id"]:
                    continue
                content = message["content"]
                match message["header"]["msg_type"]:
                    case "stream":
                        text += content["text"]
                    case "error":
                        text += "\n".join(content["traceback"])
                    case "execute_reply":
                        left.discard("reply")
                    case "status" if content["execution_state"] == "idle":
                        left.discard("idle")
            return text


def _execute(code: str) -> dict[str, Any]:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": uuid.uuid4().hex}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {
        "header": {**header, "version": "5.3", "date": "2026-01-01T00:00:00Z"},
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }
