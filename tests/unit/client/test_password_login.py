"""`det login --user`: the password is in one request, to the address that was given."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.password_login import FIRST, LIFETIME, token_by_password
from detlab.errors import DetlabError

PASSWORD = "open sesame"


class Hub:
    """The Hub's one route, as it answers for tokens.

    Attributes:
        most: The longest life of a token; 0: any.
        leads: Where it redirects to; "": nowhere.
        asked: What came: method, headers, body.
    """

    def __init__(self) -> None:
        self.most, self.leads = 0, ""
        self.status = 0
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.made: list[str] = []
        hub = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hub.asked.append(("POST", self.headers.get("Authorization", ""), body))
                self.answer(*hub.answer(self.headers.get("Authorization", ""), body))

            def do_DELETE(self) -> None:
                hub.asked.append(("DELETE", self.headers.get("Authorization", ""), {"path": self.path}))
                self.answer(204, {})

            def answer(self, status: int, said: dict[str, Any]) -> None:
                text = json.dumps(said).encode() if said else b""
                self.send_response(status)
                if hub.leads:
                    self.send_header("Location", hub.leads)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Answers)

    def answer(self, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.leads:
            return 307, {"message": "elsewhere"}
        if self.status:
            return self.status, {"message": "no"}
        known = token.removeprefix("token ") in self.made or (body.get("auth") or {}).get("password") == PASSWORD
        if not known:
            return 403, {"message": "Forbidden"}
        if self.most and (body["expires_in"] or 0) > self.most:
            return 400, {"message": f"token expires_in: {body['expires_in']} must not exceed {self.most}"}
        self.made.append(f"t{len(self.made)}")
        return 201, {"token": self.made[-1], "id": f"a{len(self.made)}"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def with_password(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [one for one in self.asked if PASSWORD in json.dumps(one)]

    def log_in(self, password: str = PASSWORD) -> str:
        address = ClusterAddress(f"{self.url}/services/detlab/", "", "the given address")
        return token_by_password(address, "ada", password)


@contextmanager
def serving() -> Iterator[Hub]:
    """A Hub that answers until the block ends, however it does."""
    with (made := Hub()).server as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as made:
        yield made


@pytest.mark.parametrize("most", [0, 3600], ids=["any life", "an hour at most"])
def test_the_password_is_sent_once_also_where_the_hub_allows_shorter_tokens_only(hub: Hub, most: int) -> None:
    hub.most = most
    assert hub.log_in() == hub.made[-1]
    ((_, _, body),) = hub.with_password()
    assert body["expires_in"] == FIRST
    asked = [one[2]["expires_in"] for one in hub.asked if one[0] == "POST"]
    assert asked == [FIRST, LIFETIME, *([None] if most else [])]
    assert hub.asked[-1][0] == "DELETE", "the first token goes"
    assert hub.asked[-1][2]["path"].endswith("/tokens/a1")


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
def test_the_password_is_not_sent_again_after_a_refusal(hub: Hub, status: int) -> None:
    hub.status = status
    with pytest.raises(DetlabError) as found:
        hub.log_in()
    assert PASSWORD not in str(found.value)
    assert len(hub.with_password()) == len(hub.asked) == 1


def test_the_password_does_not_follow_a_redirect(hub: Hub) -> None:
    with serving() as other:
        for leads in (f"{other.url}/hub/api/users/ada/tokens?secret=1", "/elsewhere"):
            hub.leads = leads
            with pytest.raises(DetlabError, match=r"redirect.*a password does not follow") as found:
                hub.log_in()
            assert "secret" not in str(found.value)
        assert other.asked == []
    assert len(hub.with_password()) == len(hub.asked) == 2, "once each time"


@pytest.mark.parametrize(
    "hub_url", ["http://hub.invalid", "http://localhost.hub.invalid", "http://127.0.0.1.hub.invalid:8"]
)
def test_the_password_is_not_sent_in_the_clear_to_another_machine(hub_url: str) -> None:
    address = ClusterAddress(f"{hub_url}/services/detlab/", "", "the given address")
    with pytest.raises(DetlabError, match="plain http: the password would be readable"):
        token_by_password(address, "ada", PASSWORD)
