"""The relay: one request in, the same request to the master with the user's token, the answer streamed back."""

from __future__ import annotations

import asyncio
import json
import re
from urllib.parse import quote, unquote

import httpx
from tornado.iostream import StreamClosedError

from detlab import loopback
from detlab.client.transport.discovery import ClusterAddress, find_cluster
from detlab.errors import DetlabError, master_said
from detlab.trust import trust_for
from detlab_server.guard import GuardedHandler, reads, writes
from detlab_server.relayed import PATHS
from detlab_server.version import VERSION

_OWNER = r"(?!\.{1,2}%2F)[^/%?#\x00-\x1f\x7f]{1,255}"
_DIGITS, _NAME = "[0-9]{1,18}", r"[\w-][\w.-]*"
_WORDS = r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,254}[A-Za-z0-9])?"
PARTS = {
    "experiment_id": _DIGITS,
    "trial_id": _DIGITS,
    "run_id": r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}",
    "media_id": _DIGITS,
    "object_id": _DIGITS,
    "alert_rule": _DIGITS,
    "webhook": _DIGITS,
    "job_id": _NAME,
    "task_id": _NAME,
    "agent_id": rf"(?!(?:enrolments|enrol|connect|records)/){_NAME}",
    "uuid": "[0-9a-f-]{36}",
    "digest": "sha256:[0-9a-f]{64}",
    "kind": "[a-z_]+",
    # A name, or `OWNER/NAME` in one part of the path, where its slash is encoded.
    "model": rf"(?:{_OWNER}%2F)?{_WORDS}",
    # Likewise, in letters of any script.
    "artifact": rf"(?:{_OWNER}%2F)?(?!\.{{1,2}}(?:/|$))[^/%?#\x00-\x1f\x7f]{{1,256}}",
    "workspace": rf"(?:{_OWNER}%2F)?{_WORDS}",
    "project": _WORDS,
    "version": r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,99}",
    "label": r"[A-Za-z][A-Za-z0-9._-]{0,63}",
}
"""What may stand for each part in braces of a relayed path. One that is not here cannot be relayed."""


def _pattern(path: str) -> str:
    words = re.split(r"\{(\w+)\}", path)
    return "".join(PARTS[word] if place % 2 else re.escape(word) for place, word in enumerate(words))


RELAYED = re.compile("|".join(f"(?:{_pattern(path)})" for path in PATHS))
PASSED_HEADERS = (
    *("content-type", "cache-control", "retry-after", "content-disposition", "content-length"),
    *("content-range", "accept-ranges"),
)
SHOWN_TYPES = ("application/json", "application/x-ndjson")
"""Content types that a browser may display under this server's own address; all others are downloads."""
ANSWER_SECONDS = 60.0
"""The longest silence of the master. A stream is never so long without a keep-alive."""


DOWNLOAD_POLICY = "sandbox; default-src 'none'; frame-ancestors 'self'"
"""Of what is no JSON: whatever opens it, it is nobody."""


def _policy(said: str) -> str:
    """Return the content policy of a file: the master's, if it holds the file in an origin of its own, else ours."""
    first, *allowed = said.partition(";")[0].split() or [""]
    return said if first == "sandbox" and set(allowed) <= {"allow-scripts"} else DOWNLOAD_POLICY


def parts_of(path: str) -> list[str]:
    """Return the parts of a path as it was sent, each decoded: an encoded slash is within one."""
    return [unquote(part) for part in path.split("/")]


class StatusHandler(GuardedHandler):
    """GET detlab/status: which cluster this server speaks to, and the version of this half."""

    @reads
    async def get(self) -> None:
        """Answer {"version", "url", "found_by"}, or {"version", "url": null, "error", "hint"}: why there is none."""
        try:
            address = find_cluster()
        except DetlabError as problem:
            self.finish({"version": VERSION, "url": None, "error": problem.message, "hint": problem.hint})
            return
        self.finish({"version": VERSION, "url": address.url, "found_by": address.source})


class RelayHandler(GuardedHandler):
    """`detlab/api/PATH` to the master's `api/v1/PATH`."""

    _relaying: asyncio.Task[None] | None = None

    @reads
    async def get(self, path: str) -> None:
        """Relay a read; streams arrive as they come."""
        await self._relay(path)

    @writes
    async def post(self, path: str) -> None:
        """Relay an action."""
        await self._relay(path)

    @writes
    async def put(self, path: str) -> None:
        """Relay a replacement."""
        await self._relay(path)

    @writes
    async def delete(self, path: str) -> None:
        """Relay a deletion."""
        await self._relay(path)

    def on_connection_close(self) -> None:
        """Drop the master's answer at once: a page opens a new stream whenever a view is opened."""
        super().on_connection_close()
        if self._relaying is not None:
            self._relaying.cancel()

    async def _relay(self, path: str) -> None:
        self._relaying = asyncio.ensure_future(self._ask(path))
        try:
            await self._relaying
        except asyncio.CancelledError:
            if not self._relaying.cancelled():
                raise
            self.log.debug("detlab: the front end disconnected during %s", path)

    async def _ask(self, path: str) -> None:
        parts = parts_of(self.request.path.removeprefix(f"{self.base_url}detlab/api/"))
        if not RELAYED.fullmatch("/".join(part.replace("/", "%2F") for part in parts)):
            self._refuse(404, "not_found", f"nothing is relayed at {path!r}")
            return
        try:
            address = find_cluster()
            address.unchanged(self.request.method or "GET")
            # Reading the certificates of the world holds up everybody here for 50 ms, for a master without TLS for
            # nothing.
            async with httpx.AsyncClient(
                trust_env=address.proxied,
                verify=trust_for(address.url, address.certificate),
                timeout=ANSWER_SECONDS,
                event_hooks=loopback.async_hooks(address.url),
            ) as client:
                await self._pass_on(client, address, "/".join(quote(part, safe=":") for part in parts))
        except DetlabError as problem:
            self._refuse(503, problem.code, problem.message, problem.hint)
        except StreamClosedError:
            self.log.debug("detlab: the front end disconnected during %s", path)

    async def _pass_on(self, client: httpx.AsyncClient, address: ClusterAddress, path: str) -> None:
        """Send the request and pass the answer on as it comes, at the front end's pace if that is slower.

        Raises:
            ClusterUnreachable: There is no answer, and nothing was passed on yet; or a proxy or the Hub in front of the
                master refuses, which may not know the route yet.
            StreamClosedError: The front end closed the connection.
        """
        headers = {"Authorization": f"Bearer {address.token or ''}", "Accept-Encoding": "identity"}
        if self.request.body:
            headers["Content-Type"] = "application/json"
        if "Range" in self.request.headers:  # a player of video asks for parts
            headers["Range"] = self.request.headers["Range"]
        url = f"{address.url}api/v1/{path}{'?' + self.request.query if self.request.query else ''}"
        method = self.request.method or "GET"
        try:
            async with client.stream(method, url, headers=headers, content=self.request.body or None) as reply:
                failure = b"" if reply.is_success else await reply.aread()
                if not reply.is_success and master_said(failure) is None:
                    raise address.unreachable(f"a proxy answers with status {reply.status_code}")
                self.set_status(reply.status_code)
                for name in PASSED_HEADERS:
                    if name in reply.headers:
                        self.set_header(name, reply.headers[name])
                if not reply.headers.get("content-type", "").startswith(SHOWN_TYPES):
                    self.set_header("X-Content-Type-Options", "nosniff")
                    if "content-disposition" not in reply.headers:
                        self.set_header("Content-Disposition", "attachment")
                    self.set_header(
                        "Content-Security-Policy", _policy(reply.headers.get("content-security-policy", ""))
                    )
                if failure:
                    self.write(failure)
                else:
                    async for chunk in reply.aiter_raw():
                        self.write(chunk)
                        await self.flush()
        except httpx.TransportError as problem:
            if self._headers_written:  # the half that came is all there is: the reader sees a broken stream
                self.log.warning("detlab: the master's answer to %s broke off: %r", path, problem)
                self.request.connection.stream.close()  # type: ignore[union-attr]  # over HTTP/1 there is one
                raise StreamClosedError from problem
            raise address.unreachable(str(problem) or type(problem).__name__) from problem
        self.finish(set_content_type=reply.headers.get("content-type", "application/json"))

    def _refuse(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        self.set_status(status)
        self.finish(json.dumps({"code": code, "message": message, "hint": hint}))
