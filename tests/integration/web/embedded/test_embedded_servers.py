"""Notebook servers of the embedded cluster: whose uid, which token, and magics that need no `%load_ext`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from testbed.cluster import Cluster
from testbed.servers import Kernel

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


CODE = """
import json, os
from IPython import get_ipython
found = {
    "magic": "det_experiment" in get_ipython().magics_manager.magics["cell"],
    "uid": os.getuid(),
    "home": os.environ["HOME"],
    "url": os.environ["DET_URL"],
}
from detlab.client.transport.discovery import find_cluster
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


def test_a_kernel_has_the_magics_and_a_token_of_its_user(cluster: Cluster, server: str) -> None:
    said = Kernel(server, cluster.token).run(CODE.replace("SECRETS", repr(str(cluster.folder / "secrets"))))
    assert "FOUND" in said, said + cluster.logs()
    found = json.loads(said.partition("FOUND")[2].splitlines()[0])
    assert found["magic"] is True
    assert found["url"] == cluster.url
    assert found["me"]["name"] == cluster.user
    assert found["me"]["scopes"] == ["custom:detlab:read", "custom:detlab:write"]
    if os.getuid() == 0:
        assert found["uid"] == cluster.uids[cluster.user] != 0
        assert found["secrets"] == "closed"
    else:
        assert found["uid"] == os.getuid()


def test_the_servers_own_token_is_narrow(cluster: Cluster, server: str) -> None:
    with cluster.hub() as hub:
        tokens = hub.get(f"users/{cluster.user}/tokens").json()["api_tokens"]
    (own,) = [token for token in tokens if token["note"].startswith("Server at")]
    assert "custom:detlab:admin" not in own["scopes"]
    assert not [scope for scope in own["scopes"] if scope.startswith(("admin:", "tokens", "users!", "proxy"))]
