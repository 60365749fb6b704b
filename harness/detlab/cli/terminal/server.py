"""The terminals of one server of the Hub: create, look up and connect, with the caller's token."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from detlab.cli.terminal.hub_server import LOOK_SECONDS, STARTING, ask, headers
from detlab.client.transport.discovery import ClusterAddress
from detlab.errors import ApiError, DetlabError
from detlab.trust import tls_context

if TYPE_CHECKING:
    import httpx
    from websocket import WebSocket

CONNECT_SECONDS = 15.0
READY_SECONDS = 15.0
"""How long a server that was just started may answer that it has no terminals."""
NOT_YET = STARTING | {404}
"""What the Hub, its proxy or a server still loading its extensions answers in place of the terminals."""
SILENT_SECONDS = 60.0
"""Longer than two pings of `terminal` without a word: the connection is dead."""


class Terminals:
    """The terminals of one server, over HTTP."""

    def __init__(self, address: ClusterAddress, server_url: str) -> None:
        self._address = address
        self._url = server_url
        self._patience = READY_SECONDS

    def make(self) -> str:
        """Make a terminal and return its name."""
        reply = self._ask_ready("POST", json={})
        if reply.status_code not in {200, 201}:
            raise self._refused(reply.status_code)
        try:
            return str(reply.json()["name"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._refused(reply.status_code) from error

    def has(self, name: str) -> bool:
        """Tell whether there is a terminal of this name."""
        return name in self._names(self._ask_ready("GET"))

    def remove(self, name: str) -> None:
        """End a terminal and what runs in it."""
        self._ask("DELETE", f"api/terminals/{quote(name, safe='')}")

    def names(self) -> str:
        """Return the names of all terminals, for a person."""
        return ", ".join(self._names(self._ask_ready("GET"))) or "none"

    def connect(self, name: str) -> WebSocket:
        """Open the WebSocket of a terminal; the first time, again while the server does not have it yet."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                socket = self._connect(name)
            except ApiError as error:
                if error.status not in NOT_YET or time.monotonic() >= deadline:
                    raise
                time.sleep(LOOK_SECONDS)
            else:
                self._patience = 0.0  # it is there: who connects again has pauses of their own
                return socket

    def _connect(self, name: str) -> WebSocket:
        import websocket

        url = f"ws{self._url.removeprefix('http')}terminals/websocket/{quote(name, safe='')}"
        context = tls_context(self._url, self._address.certificate)
        try:
            socket = websocket.create_connection(
                url,
                timeout=CONNECT_SECONDS,
                header=headers(self._address),
                suppress_origin=True,
                redirect_limit=0,  # a redirect leads to a login page, and would carry the token along
                http_no_proxy=None if self._address.proxied else ["*"],
                sslopt={"context": context} if context else None,
            )
        except websocket.WebSocketBadStatusException as error:
            raise self._refused(error.status_code) from error
        except (websocket.WebSocketException, OSError) as error:
            raise self._address.unreachable(str(error) or type(error).__name__) from error
        if socket.getstatus() != 101:
            socket.close()
            raise self._refused(socket.getstatus() or 0)
        socket.settimeout(SILENT_SECONDS)
        return socket

    def _ask(self, method: str, path: str, **body: Any) -> httpx.Response:
        return ask(self._address, method, f"{self._url}{path}", **body)

    def _ask_ready(self, method: str, **body: Any) -> httpx.Response:
        """Ask for the terminals, again for some seconds while the server does not have them yet."""
        deadline = time.monotonic() + self._patience
        while (reply := self._ask(method, "api/terminals", **body)).status_code in NOT_YET:
            if time.monotonic() >= deadline:
                break
            time.sleep(LOOK_SECONDS)
        return reply

    def _names(self, reply: httpx.Response) -> list[str]:
        if reply.status_code != 200:
            raise self._refused(reply.status_code)
        try:
            return [str(item["name"]) for item in reply.json()]
        except (ValueError, KeyError, TypeError) as error:
            raise self._refused(reply.status_code) from error

    def _refused(self, status: int) -> DetlabError:
        if status in {301, 302, 303, 307, 308, 401, 403}:
            return ApiError(
                f"the shell's server refused this token (HTTP status {status})",
                status=status,
                hint="It must be your shell, and the token must have the scope access:servers. Open it in a browser,"
                " or make a token at the Hub (/hub/token): det login URL",
            )
        return ApiError(
            f"unexpected answer of the shell's server (HTTP status {status})",
            status=status,
            hint="It may be starting or ending. Its state: det shell list",
        )
