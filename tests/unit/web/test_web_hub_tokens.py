"""What a Hub's refusal of a token means: that the token is wrong, or that the Hub cannot read or write its database."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from detlab.errors import AuthError, Forbidden, Unavailable
from detlab_hub.services.usertasks.hub_client import HubServers
from detlab_hub.web.auth import Identifier, close_hub_client, make_hub_auth
from detlab_hub.web.crosssite import CrossSite

OWN = "own-token"


class Hub(ThreadingHTTPServer):
    """Answers as a Hub does to GET /hub/api/user: 403 for every token that it does not find."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.known: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.users: dict[str, list[str]] = {}
        """Groups by the names that `GET users/NAME` knows."""
        self.there = True
        """Whether it is a Hub at all."""


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        token = self.headers["Authorization"].removeprefix("token ")
        self.server.asked.append(token)
        model = self.server.known.get(token) if self.path == "/hub/api/user" else None
        status = 200 if model else 403
        name = self.path.removeprefix("/hub/api/users/")
        if name != self.path and self.server.known:
            groups = self.server.users.get(name)
            model = None if groups is None else {"kind": "user", "name": name, "groups": groups}
            status = 404 if groups is None else 200
        if not self.server.there:
            model, status = None, 404
        body = json.dumps(model or {"status": status, "message": "Forbidden"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    server.known = {
        OWN: {"kind": "service", "name": "detlab"},
        "ada": {"kind": "user", "name": "ada", "scopes": [], "groups": []},
    }
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
async def identifier(hub: Hub) -> AsyncIterator[Identifier]:
    url = f"http://127.0.0.1:{hub.server_address[1]}/hub/api"
    yield Identifier(make_hub_auth(api_url=url, api_token=OWN, base_url="/s/", hub_prefix="/hub/"), cast("Any", None))
    await close_hub_client()


async def ask(identifier: Identifier, token: str) -> Any:
    request = SimpleNamespace(headers={"Authorization": f"Bearer {token}"})
    return await identifier.identify(cast("Any", SimpleNamespace(request=request)), CrossSite.TOKEN)


async def test_a_token_that_a_working_hub_does_not_know_is_wrong(identifier: Identifier) -> None:
    with pytest.raises(AuthError, match="not known here"):
        await ask(identifier, "wrong")


async def test_a_hub_that_knows_nobody_is_not_believed(hub: Hub, identifier: Identifier) -> None:
    """Its disk was full, so that it could note no use of a token: everybody was told that theirs was wrong."""
    assert (await ask(identifier, "ada")).name == "ada"
    identifier.hub.cache.clear()
    known, hub.known = hub.known, {}
    assert (await ask(identifier, "ada")).name == "ada", "as while the Hub is down"
    with pytest.raises(Unavailable, match="the Hub cannot be asked about this token now") as caught:
        await ask(identifier, "ben")
    assert "a full disk" in (caught.value.hint or "")
    hub.known = known
    with pytest.raises(AuthError):
        await ask(identifier, "ben")


async def test_the_masters_own_token_is_asked_about_for_unknown_ones_alone(hub: Hub, identifier: Identifier) -> None:
    await ask(identifier, "ada")
    assert hub.asked == ["ada"]


async def test_requests_that_come_together_ask_once_and_go_on_in_their_order(hub: Hub, identifier: Identifier) -> None:
    """Each asked for itself: the Hub had all the work at once, and a later request was answered before an earlier."""
    order: list[int] = []

    async def request(number: int, token: str) -> None:
        try:
            await ask(identifier, token)
        finally:
            order.append(number)

    gone = asyncio.create_task(request(-1, "ada"))
    await asyncio.sleep(0)
    requests = [asyncio.create_task(request(number, "ada")) for number in range(20)]
    wrong = [asyncio.create_task(request(100 + number, "wrong")) for number in range(20)]
    await asyncio.sleep(0)
    gone.cancel()  # its client hangs up; the others wait for the answer all the same
    await asyncio.gather(*requests)
    assert [number for number in order if number < 100] == [-1, *range(20)]
    answers = await asyncio.gather(*wrong, return_exceptions=True)
    assert [type(answer) for answer in answers] == [AuthError] * 20
    assert Counter(hub.asked) == {"ada": 1, "wrong": 1, OWN: 1}
    identifier.hub.cache.clear()
    await ask(identifier, "ada")
    assert hub.asked.count("ada") == 2


async def test_a_server_is_refused_for_what_the_hub_lacks_not_for_scopes(hub: Hub) -> None:
    servers = HubServers(f"http://127.0.0.1:{hub.server_address[1]}/hub/api", OWN)
    try:
        with pytest.raises(Forbidden) as refused:
            await servers.running()
        assert "needs the scopes servers" in (refused.value.hint or "")
        hub.known = {}
        with pytest.raises(Unavailable, match="does not know the master's own token") as caught:
            await servers.running()
        assert "a full disk, perhaps" in (caught.value.hint or "")
    finally:
        await servers.close()


async def test_groups_are_those_of_now_and_a_user_is_gone_only_if_the_hub_says_so(hub: Hub) -> None:
    servers = HubServers(f"http://127.0.0.1:{hub.server_address[1]}/hub/api", OWN)
    hub.users = {"ada": ["vision", "nlp"], "%40ben%2F..": []}
    try:
        assert await servers.groups_of("ada") == {"vision", "nlp"}
        assert await servers.groups_of("@ben/..") == frozenset()
        assert await servers.groups_of("nobody") is None
        hub.there = False
        with pytest.raises(Unavailable):
            await servers.groups_of("ada")
        hub.there, hub.known = True, {}
        with pytest.raises(Unavailable):
            await servers.groups_of("ada")
    finally:
        await servers.close()
