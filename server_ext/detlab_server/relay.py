"""The relay: one request in, the same request to the master with the user's token, the answer streamed back."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders, parse_response_start_line
from tornado.iostream import StreamClosedError

from detlab.client.discovery import ClusterAddress, find_cluster
from detlab.errors import DetlabError
from detlab_server.version import VERSION

# What a front end may ask for: people's routes, never those of agents and tasks.
RELAYED = re.compile(
    r"(me|cluster|agents|openapi\.json|stream"
    r"|experiments(/\d+(/(pause|activate|cancel|kill|trials|checkpoints|curves|stream))?)?"
    r"|trials/\d+(/(kill|metrics|values|logs|logs/stream|checkpoints))?"
    r"|checkpoints/[0-9a-f-]{36})"
)
PASSED_HEADERS = ("Content-Type", "Cache-Control", "Retry-After")
STREAM_SECONDS = 24 * 3600.0


class StatusHandler(APIHandler):
    """GET detlab/status: which cluster this server speaks to, and the version of this half."""

    @web.authenticated
    async def get(self) -> None:
        """Answer {"version", "url", "found_by"} or the reason why there is no cluster."""
        try:
            address = find_cluster()
        except DetlabError as problem:
            self.finish({"version": VERSION, "url": None, "error": problem.message, "hint": problem.hint})
            return
        self.finish({"version": VERSION, "url": address.url, "found_by": address.source})


class RelayHandler(APIHandler):
    """`detlab/api/PATH` to the master's `api/v1/PATH`."""

    @web.authenticated
    async def get(self, path: str) -> None:
        """Relay a read; streams arrive as they come."""
        await self._relay("GET", path)

    @web.authenticated
    async def post(self, path: str) -> None:
        """Relay an action."""
        await self._relay("POST", path)

    @web.authenticated
    async def delete(self, path: str) -> None:
        """Relay a deletion."""
        await self._relay("DELETE", path)

    async def _relay(self, method: str, path: str) -> None:
        if not RELAYED.fullmatch(path):
            self._refuse(404, "not_found", f"nothing is relayed at {path!r}")
            return
        try:
            address = find_cluster()
        except DetlabError as problem:
            self._refuse(503, problem.code, problem.message, problem.hint)
            return
        try:
            await AsyncHTTPClient().fetch(self._request(address, method, path), raise_error=True)
            await self.finish()
        except StreamClosedError:
            self.log.debug("detlab: the front end went away during %s", path)
        except HTTPClientError as problem:
            # Replies with an error status are streamed like others; only a missing reply is ours to explain.
            if problem.response is None or problem.code == 599:
                self._refuse(503, "cluster.unreachable", f"no answer from {address.url}", "det status")
            elif not self._finished:
                await self.finish()
        except OSError as problem:
            self._refuse(503, "cluster.unreachable", f"no answer from {address.url}: {problem}", "det status")

    def _request(self, address: ClusterAddress, method: str, path: str) -> HTTPRequest:
        query = urlencode([(k, v) for k in self.request.query_arguments for v in self.get_query_arguments(k)])
        headers = {"Authorization": f"Bearer {address.token or ''}", "Accept-Encoding": "identity"}
        if self.request.body:
            headers["Content-Type"] = "application/json"
        return HTTPRequest(
            f"{address.url}api/v1/{path}{'?' + query if query else ''}",
            method=method,
            headers=headers,
            body=self.request.body if method == "POST" else None,
            header_callback=self._copy_header,
            streaming_callback=self._pass_on,
            request_timeout=STREAM_SECONDS if path.endswith("stream") else 60.0,
            follow_redirects=False,
        )

    def _copy_header(self, line: str) -> None:
        if line.startswith("HTTP/"):
            self.set_status(parse_response_start_line(line).code)
        elif ":" in line:
            for name, value in HTTPHeaders.parse(line).get_all():
                if name in PASSED_HEADERS:
                    self.set_header(name, value)

    def _pass_on(self, chunk: bytes) -> None:
        self.write(chunk)
        self.flush()

    def _refuse(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        if self._finished:
            return
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"code": code, "message": message, "hint": hint}))
