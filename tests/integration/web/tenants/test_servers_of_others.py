"""A shell and a TensorBoard behind the Hub's login: neighbours, foreign pages and frames, by HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import httpx
import pytest
import websocket

from testbed.cluster import Cluster
from testbed.front.browsing import log_in
from testbed.servers import Person, person
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

NAVIGATES = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
EVIL = "http://evil.example"
PAGE = "data/plugin/hparams/experiment"
ASKED = {"experimentName": "", "hparamsLimit": 1}


@dataclass
class Servers:
    """What the operator has running."""

    operator: Person
    ben: Person
    board: str
    shell: str
    terminal: str


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> Iterator[Servers]:
    operator, ben = person(cluster, cluster.user), person(cluster, "ben")
    config = {"name": "shown", "entrypoint": ["true"], "searcher": {"name": "single", "metric": "x", "max_length": 1}}
    number = operator.post("experiments", {"config": config}).json()["experiment"]["id"]
    made = operator.post("tasks", {"kind": "tensorboard", "experiment_ids": [number]})
    assert made.status_code == 201, made.text
    task = made.json()["task"]
    operator.start("sh", kind="shell")
    shell, board = operator.ready("sh"), operator.ready(task["server_name"])
    headers = {"Authorization": f"token {operator.token}"}
    terminal = httpx.post(f"{shell}api/terminals", headers=headers, trust_env=False, timeout=30).json()["name"]
    yield Servers(operator, ben, board, shell, terminal)
    operator.post(f"tasks/{task['id']}/kill")
    operator.stop("sh", remove=True)
    until(lambda: not operator.model(task["server_name"]), cluster.logs)
    for who in (operator, ben):
        who.close()


@pytest.fixture(scope="module")
def browser(cluster: Cluster, servers: Servers) -> Iterator[httpx.Client]:
    """The operator's browser, which has opened both."""
    with log_in(cluster, cluster.user, cluster.password) as client:
        for url in (servers.board, f"{servers.shell}terminals/{servers.terminal}"):
            assert client.get(url, headers=NAVIGATES).status_code == 200
        yield client


@pytest.fixture(scope="module")
def neighbour(cluster: Cluster) -> Iterator[httpx.Client]:
    """Ben's browser."""
    with log_in(cluster, "ben", (cluster.folder / "secrets" / "password-ben").read_text().strip()) as client:
        yield client


def upgrade(url: str, **headers: str) -> int:
    """Ask for a WebSocket; return the status of the answer, 101 when it was opened."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    address = url.replace("http", "ws", 1)
    try:
        opened = websocket.create_connection(address, header=lines, timeout=30, suppress_origin=True, redirect_limit=0)
    except websocket.WebSocketBadStatusException as refused:
        return int(refused.status_code)
    except websocket.WebSocketException as refused:
        if "Redirect" not in str(refused):
            raise
        return 302
    opened.close()
    return int(opened.getstatus() or 0)


def cookies_for(client: httpx.Client, url: str) -> str:
    path = httpx.URL(url).path
    return "; ".join(f"{c.name}={c.value}" for c in client.cookies.jar if path.startswith(c.path))


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Origin": "own"}, 200),
        ({"Origin": "own", "Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 403),
        ({"Origin": EVIL}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": EVIL, "Sec-Fetch-Site": "same-origin"}, 403),
        ({"Origin": "own", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
def test_a_tensorboard_takes_a_cookie_from_pages_of_its_own_site_only(
    cluster: Cluster, servers: Servers, browser: httpx.Client, said: dict[str, str], status: int
) -> None:
    """Over plain HTTP on a named host browsers send no Sec-Fetch-Site: then the Origin decides."""
    headers = {name: cluster.url if value == "own" else value for name, value in said.items()}
    assert browser.post(servers.board + PAGE, headers=headers, json=ASKED).status_code == status


def test_no_foreign_page_may_frame_a_tensorboard_and_its_refusals_hold_nothing(
    servers: Servers, browser: httpx.Client
) -> None:
    page = browser.get(servers.board, headers=NAVIGATES)
    assert "TensorBoard" in page.text
    assert page.headers["content-security-policy"].count("frame-ancestors 'self'") == 1
    assert "script-src" in page.headers["content-security-policy"], "TensorBoard's own policy is kept"
    for reply in (
        httpx.post(servers.board + PAGE, json=ASKED, trust_env=False),
        httpx.get(f"{servers.board}oauth_callback", params={"error": "<script>"}, trust_env=False),
        browser.request("PUT", servers.board),
    ):
        assert reply.status_code >= 400
        assert reply.headers["content-security-policy"].startswith("default-src 'none'"), reply.text
        assert "<script>" not in reply.text


def test_a_neighbours_browser_gets_neither_the_tensorboard_nor_the_shell(
    servers: Servers, neighbour: httpx.Client
) -> None:
    for url in (servers.board, f"{servers.board}data/runs", f"{servers.shell}terminals/{servers.terminal}"):
        assert neighbour.get(url, headers=NAVIGATES).status_code == 403, url
    reply = neighbour.post(servers.board + PAGE, json=ASKED, headers={"Sec-Fetch-Site": "same-origin"})
    assert reply.status_code == 403


def test_a_neighbours_token_gets_neither_the_tensorboard_nor_the_shell(servers: Servers) -> None:
    headers = {"Authorization": f"token {servers.ben.token}", "Sec-Fetch-Site": "same-origin"}
    for verb, url in (
        ("GET", f"{servers.board}data/runs"),
        ("POST", servers.board + PAGE),
        ("GET", f"{servers.shell}api/terminals"),
        ("POST", f"{servers.shell}api/terminals"),
        ("DELETE", f"{servers.shell}api/terminals/{servers.terminal}"),
    ):
        reply = httpx.request(verb, url, headers=headers, trust_env=False, timeout=30)
        assert reply.status_code in {302, 403}, (verb, url)
        assert "exp" not in reply.text


def test_websockets_are_opened_to_their_owner_and_to_no_foreign_page(
    cluster: Cluster, servers: Servers, browser: httpx.Client, neighbour: httpx.Client
) -> None:
    terminal = f"{servers.shell}terminals/websocket/{servers.terminal}"
    mine, theirs = cookies_for(browser, terminal), cookies_for(neighbour, terminal)
    assert upgrade(terminal, Cookie=mine, Origin=cluster.url) == 101
    assert upgrade(terminal, Cookie=mine, Origin=EVIL) == 403
    assert upgrade(terminal, Cookie=theirs, Origin=cluster.url) == 403
    assert upgrade(terminal, Authorization=f"token {servers.ben.token}") == 403
    assert upgrade(terminal) == 403
    board = f"{servers.board}data/runs"
    for headers in ({"Authorization": f"token {servers.ben.token}"}, {"Cookie": theirs}, {}):
        assert upgrade(board, Sec_Fetch_Mode="websocket", **headers) in {302, 403}, "no way around its login"


def test_no_role_in_their_workspace_opens_the_tensorboard_or_the_shell(
    cluster: Cluster, servers: Servers, neighbour: httpx.Client
) -> None:
    """Its admins see both, and may end them; the Hub lets none of them in, before, with, or after the role."""
    made = servers.operator.post("workspaces", {"name": "of servers"}).json()
    place = f"workspaces/{made['id']}"
    with cluster.client() as operator, cluster.client(servers.ben.token) as ben:
        mine = {one["server_name"]: one["id"] for one in operator.get("tasks").json()["items"] if one["url"]}
        shell = mine["sh"]
        bens = replace(cluster, extra={**cluster.extra, "DET_URL": cluster.url, "DET_TOKEN": servers.ben.token})
        for task in mine.values():
            operator.post(f"tasks/{task}/move", json={"workspace": "of servers"}).raise_for_status()
        for role in ("viewer", "editor", "admin", None):
            member = {"kind": "user", "name": "ben"}
            if role is None:
                operator.request("DELETE", f"{place}/members", params=member).raise_for_status()
            else:
                operator.put(f"{place}/members", json={**member, "role": role}).raise_for_status()
            listed = ben.get("tasks", params={"workspace": str(made["id"])})
            assert listed.status_code == (404 if role is None else 200)
            if role is not None:
                assert {one["id"] for one in listed.json()["items"]} == set(mine.values())
                assert not any(one["url"] or one["server_name"] or one["opens"] for one in listed.json()["items"])
                opened = bens.det("shell", "open", shell)
                assert (opened.returncode, f"only {cluster.user} opens it" in opened.stderr) == (1, True)
            test_a_neighbours_browser_gets_neither_the_tensorboard_nor_the_shell(servers, neighbour)
            test_a_neighbours_token_gets_neither_the_tensorboard_nor_the_shell(servers)
        for task in mine.values():
            assert ben.post(f"tasks/{task}/kill").status_code == 404
            operator.post(f"tasks/{task}/move", json={}).raise_for_status()
        operator.delete(place).raise_for_status()
