"""Requests to an API server of Kubernetes: raw objects, one error for each kind of trouble."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import aiohttp
import yaml
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_kube_config,
)
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

from detlab_agent.settings import AgentError

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
TIMEOUT = 30.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_ERROR_CHANNEL = 3
_MOST_ERROR = 100_000
_EXEC_SECONDS = 10.0
_CONNECTIONS = 64


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


@dataclass(frozen=True)
class Access:
    """How the API server is reached.

    Attributes:
        kubeconfig: A file; None: KUBECONFIG or ~/.kube/config, or inside a cluster its service account.
        context: Of the file; None: its current one.
        namespace: For the pods; None: of the context, or the agent's own.
        environ: Of the agent.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    async def open(self) -> Opened:
        """Read the configuration.

        Raises:
            AgentError: There is no usable one.
        """
        found = Configuration()
        inside = self.kubeconfig is None and self.context is None and "KUBERNETES_SERVICE_HOST" in self.environ
        try:
            if inside and not self.environ.get("KUBECONFIG"):
                loader = InClusterConfigLoader(
                    SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME, environ=dict(self.environ)
                )
                loader.load_and_set(found)  # it reads its token anew every minute
                namespace = self.namespace or _NAMESPACE_FILE.read_text(encoding="ascii").strip()
                return Opened(found, namespace, "the service account of this pod")
            file = str(self.kubeconfig or self.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser())
            contexts, current = list_kube_config_contexts(config_file=file)
            await load_kube_config(
                config_file=file, context=self.context, client_configuration=found, persist_config=False
            )
        except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
            raise AgentError(
                f"no access to Kubernetes: {error}. Name a kubeconfig that kubectl works with (--kubeconfig FILE, "
                "--kube-context NAME), or run the agent in a pod with a service account"
            ) from error
        named = next((one for one in contexts if one["name"] == self.context), current) or {}
        said = (named.get("context") or {}).get("namespace")
        return Opened(found, self.namespace or said or "default", f"kubeconfig {file}")


@dataclass(frozen=True)
class Opened:
    """A configuration that was read.

    Attributes:
        configuration: Of kubernetes_asyncio: address, certificates, credentials.
        namespace: That of the pods.
        origin: Where the configuration is from, for messages.
    """

    configuration: Configuration
    namespace: str
    origin: str


class Api:
    """A client; made in a running loop.

    Args:
        opened: How the server is reached.
    """

    def __init__(self, opened: Opened) -> None:
        self.namespace, self.origin = opened.namespace, opened.origin
        self._configuration = opened.configuration
        self._configuration.connection_pool_maxsize = _CONNECTIONS
        self._client = ApiClient(self._configuration)

    @property
    def url(self) -> str:
        """Address of the API server."""
        return str(self._configuration.host)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

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
                reply = await self._send(method, path, body, content, query, None)
                try:
                    data = await reply.read()
                finally:
                    reply.release()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
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
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
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
        url = f"{self.url}{self.path('pods', pod, 'exec')}?{urlencode(query)}"
        headers = {**await self._headers(), "Accept": "*/*"}  # it is answered with 406 to who accepts JSON only
        try:
            async with asyncio.timeout(_EXEC_SECONDS), self._connect(url, headers) as socket:
                async for message in socket:
                    data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
                    if data[:1] == bytes([_ERROR_CHANNEL]):
                        _check_command(signal.Signals(number).name, _parsed(data[1:]))
        except aiohttp.WSServerHandshakeError as error:
            raise ApiRefused(error.status, "", f"pods/exec: {error.message}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._away(error) from error

    # --- inside -------------------------------------------------------------------------------------------

    def _connect(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Any]:
        session = self._client.rest_client.pool_manager
        websocket = "ws" + url.removeprefix("http")
        return cast(
            "AbstractAsyncContextManager[Any]",
            session.ws_connect(websocket, headers=headers, protocols=("v4.channel.k8s.io",)),
        )

    async def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {"Accept": "application/json", "User-Agent": "detlab-agent"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"])
        return headers

    async def _send(
        self, method: str, path: str, body: Any, content: str, query: Mapping[str, Any], timeout: Any
    ) -> aiohttp.ClientResponse:
        headers = {**await self._headers(), "Content-Type": content}
        reply = await self._client.rest_client.request(
            method,
            self.url + path,
            query_params={name: value for name, value in query.items() if value is not None} or None,
            headers=headers,
            body=body,
            _preload_content=False,
            _request_timeout=timeout,
        )
        return cast("aiohttp.ClientResponse", reply)

    def _away(self, error: BaseException) -> ApiAway:
        said = str(error) or type(error).__name__
        return ApiAway(f"the Kubernetes API server at {self.url} ({self.origin}): {said}")


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
