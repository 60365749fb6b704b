"""A plain client of an API server for tests: what is on the wire, with no library of Kubernetes between."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

Object = dict[str, Any]
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class Answer(Exception):
    """An answer other than 2xx; `status` is its body."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(f"{code} {status.get('reason')}: {status.get('message')}")
        self.code, self.status = code, status


class ApiClient:
    """Asks an API server as one user.

    Args:
        url: Its address.
        token: Of the user.
        authority: The certificate that signed the server's; None for a server without TLS.
    """

    def __init__(self, url: str, token: str, authority: Path | None = None) -> None:
        verify = ssl.create_default_context(cafile=authority) if authority else False
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # The server may be killed between two requests: none goes over a connection of before.
        self.http = httpx.Client(
            base_url=url,
            verify=verify,
            headers=headers,
            timeout=30.0,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()

    def ask(self, method: str, path: str, body: Any = None, *, patch: str = "", **query: Any) -> Any:
        """Ask for something; return the body of the answer.

        Raises:
            Answer: It is another than 2xx.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": PATCHES[patch] if patch else "application/json"}
        reply = self.http.request(method, path, content=content, headers=headers, params=query)
        if not reply.is_success:
            try:
                found = reply.json()
            except ValueError:
                found = {"message": reply.text}
            raise Answer(reply.status_code, found)
        kind = reply.headers.get("Content-Type", "")
        return reply.json() if kind.startswith("application/json") else reply.text

    def get(self, path: str, **query: Any) -> Any:
        """GET."""
        return self.ask("GET", path, **query)

    def post(self, path: str, body: Object, **query: Any) -> Any:
        """POST."""
        return self.ask("POST", path, body, **query)

    def delete(self, path: str, body: Object | None = None, **query: Any) -> Any:
        """DELETE."""
        return self.ask("DELETE", path, body, **query)

    def patch(self, path: str, body: Any, kind: str = "merge") -> Any:
        """PATCH."""
        return self.ask("PATCH", path, body, patch=kind)

    @contextmanager
    def watch(self, path: str, **query: Any) -> Iterator[Iterator[Object]]:
        """Watch; yields an iterator over the events, which ends when the server ends it."""
        with self.http.stream("GET", path, params={"watch": "true", **query}) as reply:
            if not reply.is_success:
                reply.read()
                raise Answer(reply.status_code, reply.json())
            yield (json.loads(line) for line in reply.iter_lines() if line.strip())
