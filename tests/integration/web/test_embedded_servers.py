"""Notebook servers of the embedded cluster: whose uid, which token, and magics that need no `%load_ext`."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[str]:
    """The operator's notebook server; its public URL with a slash at the end."""
    with cluster.hub() as hub:
        started = hub.post(f"users/{cluster.user}/server", timeout=90)
        assert started.status_code in {201, 202}, started.text
        deadline = time.monotonic() + 120
        while True:
            model = hub.get(f"users/{cluster.user}").json()
            if model["server"]:
                break
            assert model["pending"] == "spawn", cluster.logs()
            assert time.monotonic() < deadline, cluster.logs()
            time.sleep(0.2)
        yield f"{cluster.url}{model['server']}"
        hub.delete(f"users/{cluster.user}/server", timeout=60)


async def run_in_kernel(cluster: Cluster, server: str, code: str) -> str:
    """Start a kernel as a browser would, run code, return what it printed."""
    headers = {"Authorization": f"token {cluster.token}"}
    async with httpx.AsyncClient(base_url=server, headers=headers, trust_env=False, timeout=60) as client:
        kernel = (await client.post("api/kernels", json={"name": "python3"})).json()["id"]
        url = f"{server}api/kernels/{kernel}/channels".replace("http", "ws", 1)
        connection = await websocket_connect(HTTPRequest(url, headers=headers, connect_timeout=60))
        try:
            await connection.write_message(json.dumps(execute_request(code)))
            return await asyncio.wait_for(printed(connection), 90)
        finally:
            connection.close()
            await client.delete(f"api/kernels/{kernel}")


def execute_request(code: str) -> dict[str, Any]:
    """A Jupyter message."""
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


async def printed(connection: Any) -> str:
    """Everything that is printed or raised until the execution ends."""
    text = ""
    while True:
        message = json.loads(await connection.read_message())
        content = message["content"]
        match message["header"]["msg_type"]:
            case "stream":
                text += content["text"]
            case "error":
                text += "\n".join(content["traceback"])
            case "execute_reply":
                return text


CODE = """
import json, os
from IPython import get_ipython
found = {
    "magic": "det_experiment" in get_ipython().magics_manager.magics["cell"],
    "uid": os.getuid(),
    "home": os.environ["HOME"],
    "url": os.environ["DET_URL"],
}
from detlab.client.discovery import find_cluster
import httpx
address = find_cluster()
me = httpx.get(address.url + "api/v1/me", headers={"Authorization": "Bearer " + address.token}, trust_env=False)
found["me"] = me.json()
try:
    os.listdir(SECRETS)
    found["secrets"] = "open"
except OSError:
    found["secrets"] = "closed"
print("FOUND" + json.dumps(found))
"""


async def test_a_kernel_has_the_magics_and_a_token_of_its_user(cluster: Cluster, server: str) -> None:
    said = await run_in_kernel(cluster, server, CODE.replace("SECRETS", repr(str(cluster.folder / "secrets"))))
    assert "FOUND" in said, said + cluster.logs()
    found = json.loads(said.partition("FOUND")[2].splitlines()[0])
    assert found["magic"] is True
    assert found["url"] == cluster.url
    assert found["me"]["name"] == cluster.user
    assert found["me"]["scopes"] == ["custom:detlab:read", "custom:detlab:write"]
    if os.getuid() == 0:
        users = json.loads((cluster.folder / "users.json").read_text())
        assert found["uid"] == users[cluster.user] != 0
        assert found["secrets"] == "closed"
    else:
        assert found["uid"] == os.getuid()


def test_the_servers_own_token_is_narrow(cluster: Cluster, server: str) -> None:
    with cluster.hub() as hub:
        tokens = hub.get(f"users/{cluster.user}/tokens").json()["api_tokens"]
    (own,) = [token for token in tokens if token["note"].startswith("Server at")]
    assert "custom:detlab:admin" not in own["scopes"]
    assert not [scope for scope in own["scopes"] if scope.startswith(("admin:", "tokens", "users!", "proxy"))]
