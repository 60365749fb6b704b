"""Requests to an API server of Kubernetes: raw objects, one error for each kind of trouble."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from detlab_agent.runtimes.kubernetes.credentials import Credential, NoCredential, ShownCredentials
from detlab_agent.runtimes.kubernetes.kubeconfig import Opened

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
TIMEOUT = 30.0
_ERROR_CHANNEL = 3
_MOST_ERROR = 100_000
_EXEC_SECONDS = 10.0
_CONNECTIONS = 64
_UNAUTHORIZED = 401
MOST_AHEAD = 60.0
"""Seconds by which two clocks may differ; certificates and tokens that were just made are wrong beyond that."""
_OF_CLOCKS = ("certificate is not yet valid", "certificate has expired")


class ApiAway(Exception):
    """The API server does not answer, or not as one; the message says how."""


class ApiRefused(Exception):
    """The API server answered with an error.

    Attributes:
        code: Its HTTP status.
        reason: Its own word for it, such as AlreadyExists.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message or reason or f"status {code}")
        self.code, self.reason = code, reason


class Api:
    """A client; made in a running loop.

    Args:
        opened: How the server is reached.
        namespace: Of its objects; "": that of `opened`.
    """

    def __init__(self, opened: Opened, namespace: str = "") -> None:
        self.namespace, self.origin, self.url = namespace or opened.namespace, opened.origin, opened.server.url
        self._server = opened.server
        self._credentials = ShownCredentials(opened.read, opened.first)
        self._certificate = opened.first.certificate
        self._session = _session()
        self.ahead = 0.0
        """Seconds by which the server's clock is ahead of this machine's, by its last answer."""

    def clocks(self) -> str:
        """Return how the two clocks differ, for people; "" if they do not."""
        if abs(self.ahead) <= MOST_AHEAD:
            return ""
        here = "behind" if self.ahead > 0 else "ahead of"
        return (
            f"this machine's clock is {abs(self.ahead):.0f} s {here} the API server's: with a wrong clock certificates "
            "and tokens count as expired or not yet valid (timedatectl)"
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def path(self, plural: str, name: str = "", sub: str = "", *, group: str = "", namespaced: bool = True) -> str:
        """Return the path of objects, or of one; `group` is as in `coordination.k8s.io/v1`."""
        where = f"/apis/{group}" if group else "/api/v1"
        words = [where, *(["namespaces", self.namespace] if namespaced else []), plural, quote(name), sub]
        return "/".join(word for word in words if word)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        timeout: float = TIMEOUT,
        **query: Any,
    ) -> Any:
        """Send a request and return the answer, an object or text.

        Raises:
            ApiAway: There is no answer.
            ApiRefused: It is an error.
        """
        try:
            async with asyncio.timeout(timeout):
                reply = await self._send(method, path, body, content, query)
                try:
                    data = await reply.read()
                finally:
                    reply.release()
        except (aiohttp.ClientError, NoCredential, OSError, TimeoutError) as error:
            raise self._away(error) from error
        if not 200 <= reply.status < 300:
            raise _refusal(reply.status, data)
        if not reply.content_type.endswith("json"):
            return data.decode("utf-8", errors="replace")
        return _parsed(data)

    async def watch(self, path: str, silence: float, **query: Any) -> AsyncIterator[Object]:
        """Yield the events of a watch until the server ends it.

        Args:
            path: Of the objects.
            silence: Seconds without a byte after which the connection counts as dead.
            query: Its parameters.

        Raises:
            ApiAway: The connection broke.
            ApiRefused: The server refuses it, at once or by an event.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=silence)
        try:
            reply = await self._send("GET", path, None, "application/json", {**query, "watch": "true"}, limits)
            try:
                if reply.status != 200:
                    raise _refusal(reply.status, (await reply.content.read(_MOST_ERROR)))
                async for line in reply.content:
                    event = _parsed(line)
                    if event.get("type") == "ERROR":
                        told = event.get("object") or {}
                        raise ApiRefused(
                            int(told.get("code") or 500), str(told.get("reason") or ""), str(told.get("message") or "")
                        )
                    yield event
            finally:
                reply.close()
        except (aiohttp.ClientError, NoCredential, OSError, TimeoutError, ValueError) as error:
            raise self._away(error) from error

    async def signal_first(self, pod: str, container: str, number: int) -> None:
        """Send a signal to the first process of a container, by running Python in it.

        Raises:
            ApiAway: There is no answer.
            ApiRefused: It cannot be done.
        """
        program = "import os, sys; os.kill(1, int(sys.argv[1]))"
        words = ["python3", "-I", "-S", "-c", program, str(int(number))]
        query = [("command", word) for word in words]
        query += [("container", container), ("stderr", "true"), ("stdout", "true")]
        url = self._url("ws" + self.url.removeprefix("http"), self.path("pods", pod, "exec"), query)
        try:
            async with asyncio.timeout(_EXEC_SECONDS):
                await self._execute(url, signal.Signals(number).name)
        except aiohttp.WSServerHandshakeError as error:
            raise ApiRefused(error.status, "", f"pods/exec: {error.message}") from error
        except (aiohttp.ClientError, NoCredential, OSError, TimeoutError) as error:
            raise self._away(error) from error

    # --- inside -------------------------------------------------------------------------------------------

    async def _execute(self, url: URL, what: str) -> None:
        """Run a command; once more with a new credential, as `_send` does."""
        shown = await self._shown()
        try:
            await self._executed(url, what, shown)
        except aiohttp.WSServerHandshakeError as error:
            newer = shown if error.status != _UNAUTHORIZED else await self._shown(refused=shown)
            if newer == shown:
                raise
            await self._executed(url, what, newer)

    async def _executed(self, url: URL, what: str, shown: Credential) -> None:
        headers = {"Authorization": shown.authorization, "Accept": "*/*"}  # who accepts JSON only is answered with 406
        secured: dict[str, Any] = {"server_hostname": self._server.name} if self._server.name else {}
        async with self._session.ws_connect(
            url,
            headers={name: value for name, value in headers.items() if value},
            protocols=("v4.channel.k8s.io",),
            ssl=self._server.trust or True,
            proxy=self._server.proxy,
            **secured,
        ) as socket:
            async for message in socket:
                data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
                if data[:1] == bytes([_ERROR_CHANNEL]):
                    _check_command(what, _parsed(data[1:]))

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        content: str,
        query: Mapping[str, Any],
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request; once more with a new credential if there is one and the server did not accept the old one."""
        shown = await self._shown()
        while True:
            reply = await self._session.request(
                method,
                self._url(self.url, path, [(name, value) for name, value in query.items() if value is not None]),
                headers=_headers(shown.authorization, content),
                data=None if body is None else json.dumps(body).encode(),
                ssl=self._server.trust or True,
                server_hostname=self._server.name,
                proxy=self._server.proxy,
                allow_redirects=False,
                timeout=timeout or self._session.timeout,
            )
            self._compare(reply.headers.get("Date", ""))
            if reply.status != _UNAUTHORIZED:
                return reply
            before, shown = shown, await self._shown(refused=shown)
            if shown == before:
                return reply
            reply.close()

    async def _shown(self, refused: Credential | None = None) -> Credential:
        """Return what to show; connections that were made with another certificate are closed."""
        shown = await self._credentials.current(refused)
        if shown.certificate != self._certificate:
            self._certificate, before, self._session = shown.certificate, self._session, _session()
            await before.close()
        return shown

    def _compare(self, date: str) -> None:
        try:
            self.ahead = parsedate_to_datetime(date).timestamp() - time.time()
        except ValueError:  # it says none
            self.ahead = 0.0

    @staticmethod
    def _url(server: str, path: str, query: Sequence[tuple[str, Any]]) -> URL:
        return URL(f"{server}{path}?{urlencode(query)}" if query else f"{server}{path}", encoded=True)

    def _away(self, error: BaseException) -> ApiAway:
        said = str(error) or type(error).__name__
        if any(words in said for words in _OF_CLOCKS):
            said += f"; this machine's clock says {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC: is it right?"
        return ApiAway(f"the Kubernetes API server at {self.url} ({self.origin}): {said}")


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(sock_connect=TIMEOUT)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=_CONNECTIONS), timeout=timeout)


def _headers(authorization: str, content: str) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": "detlab-agent", "Content-Type": content}
    return {**headers, "Authorization": authorization} if authorization else headers


def _parsed(data: bytes) -> Object:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"not an object: {data[:100]!r}")
    return value


def _refusal(status: int, data: bytes) -> ApiRefused:
    try:
        told = _parsed(data)
    except ValueError:
        told = {"message": data[:300].decode("utf-8", errors="replace")}
    return ApiRefused(status, str(told.get("reason") or ""), str(told.get("message") or ""))


def _check_command(what: str, told: Object) -> None:
    if told.get("status") != "Success":
        raise ApiRefused(500, "", f"pods/exec: {what}: {told.get('message')}")
