"""How much longer a notebook takes to start through the master than by JupyterHub's own local spawner.

Two real Hubs beside each other: an embedded cluster (DetSpawner: queue, agent, launcher, server), and a plain
JupyterHub with SimpleLocalProcessSpawner. Both start the same `jupyterhub-singleuser` with the same extensions; the
time is that from the request to the Hub until its REST API says that the server is ready. Starts take turns, so that a
busy machine is busy for both.

    python bench/spawn.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from detlab_hub.embedded.parts import find_proxy
from testbed.cluster import free_port, running_cluster

PLAIN = """
import sys
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.command = {proxy}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{root}/home-{{username}}"
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = 120
c.JupyterHub.db_url = "sqlite:///{root}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{root}/cookie"
c.JupyterHub.services = [{{"name": "bench", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "bench", "services": ["bench"], "scopes": ["admin:users", "admin:servers"]}},
]
"""


@contextmanager
def plain_hub(root: Path) -> Iterator[tuple[str, str]]:
    """A Hub with the spawner that comes with it; its address and a token."""
    port, token = free_port(), secrets.token_hex(16)
    config = root / "jupyterhub_config.py"
    proxy = find_proxy()
    config.write_text(PLAIN.format(port=port, hub=free_port(), api=free_port(), proxy=proxy, root=root, token=token))
    env = {key: value for key, value in os.environ.items() if not key.startswith(("DET_", "JUPYTERHUB_"))}
    with (root / "hub.log").open("w") as log:
        command = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
        hub = subprocess.Popen(command, cwd=root, env=env, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _await(url, hub, root / "hub.log")
            headers = {"Authorization": f"token {token}"}
            httpx.post(f"{url}/hub/api/users/bench", headers=headers, trust_env=False).raise_for_status()
            yield url, token
        finally:
            hub.terminate()
            hub.wait(30)


def _await(url: str, hub: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{url}/hub/api/", trust_env=False).raise_for_status()
            return
        except httpx.HTTPError:
            if hub.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from None
            time.sleep(0.1)


def spawn(url: str, token: str, user: str) -> float:
    """Start the user's server, stop it again; return the seconds of the start."""
    headers = {"Authorization": f"token {token}"}
    with httpx.Client(base_url=f"{url}/hub/api/", headers=headers, trust_env=False, timeout=60) as hub:
        began = time.perf_counter()
        hub.post(f"users/{user}/server").raise_for_status()  # answers when it is ready, or after ten seconds
        while not (model := hub.get(f"users/{user}").json()["servers"].get("") or {}).get("ready"):
            if not model:
                raise RuntimeError(f"the server of {user} did not start: see the Hub's log")
            time.sleep(0.1)
        took = time.perf_counter() - began
        hub.delete(f"users/{user}/server").raise_for_status()
        while hub.get(f"users/{user}").json()["servers"]:
            time.sleep(0.1)
    return took


def main() -> int:
    """Print medians and the difference; status 1 if that is over a second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {"detlab": [], "plain": []}
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "plain").mkdir()
        with running_cluster(root, slots=1) as cluster, plain_hub(root / "plain") as (url, token):
            for number in range(rounds + 1):
                ours, theirs = spawn(cluster.url, cluster.token, cluster.user), spawn(url, token, "bench")
                if number:  # the first one fills caches
                    times["detlab"].append(ours)
                    times["plain"].append(theirs)
    medians = {name: statistics.median(found) for name, found in times.items()}
    more = statistics.median(ours - theirs for ours, theirs in zip(times["detlab"], times["plain"], strict=True))
    print(json.dumps({"rounds": rounds, "median_seconds": medians, "more_seconds": more, "all": times}, indent=1))
    return 0 if more <= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
