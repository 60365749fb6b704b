"""How much longer a notebook takes to start through the master than by a spawner of the Hub itself.

Two real Hubs beside each other: an embedded cluster (DetSpawner: queue, agent, launcher, server), and a plain
JupyterHub with SimpleLocalProcessSpawner or, for containers, DockerSpawner. Both start the same `jupyterhub-singleuser`
with the same extensions, in a container of the same image; the time is that from the request to the Hub until its REST
API says that the server is ready. Starts take turns, so that a busy machine is busy for both.

    python bench/spawn.py [--rounds 5] [--runtime process|docker] [--json]
    python bench/spawn.py --check                     also fail (exit 1) when detlab takes over a second more

Containers need root: a Docker engine of its own is started, as for the tests.
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

from detlab.testing.ports import free_port
from detlab_hub.embedded.parts import find_proxy
from testbed.cluster import UNLIMITED, running_cluster
from testbed.containers import docker, docker_images
from testbed.containers.docker import Engine

GOAL = 1.0
"""Seconds that detlab may take longer."""

PLAIN = """
import sys
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://{hub_host}:{hub}"
c.JupyterHub.hub_connect_url = "http://{gateway}:{hub}"
c.ConfigurableHTTPProxy.command = {proxy}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
{spawner}
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = 120
c.JupyterHub.db_url = "sqlite:///{root}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{root}/cookie"
c.JupyterHub.services = [{{"name": "bench", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "bench", "services": ["bench"], "scopes": ["admin:users", "admin:servers"]}},
]
"""

PROCESS = """
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{root}/home-{{username}}"
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
"""
DOCKER = "c.JupyterHub.spawner_class = 'docker'\n"


@contextmanager
def plain_hub(root: Path, engine: Engine | None) -> Iterator[tuple[str, str]]:
    """A Hub with a spawner that is not detlab's; its address and a token."""
    port, token = free_port(), secrets.token_hex(16)
    spawner, gateway = PROCESS.format(root=root), "127.0.0.1"
    if engine is not None:
        spawner = DOCKER + docker_images.spawner_config("DockerSpawner", engine)
        gateway = engine.gateway
    config = root / "jupyterhub_config.py"
    config.write_text(
        PLAIN.format(
            port=port,
            hub=free_port(),
            hub_host="0.0.0.0" if engine else gateway,
            gateway=gateway,
            api=free_port(),
            proxy=find_proxy(),
            root=root,
            token=token,
            spawner=spawner,
        )
    )
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
    deadline = time.monotonic() + 180
    while True:
        try:
            httpx.get(f"{url}/hub/api/", trust_env=False).raise_for_status()
            return
        except httpx.HTTPError:
            if hub.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from None
            time.sleep(0.1)


def spawn(url: str, token: str, user: str, options: dict[str, str]) -> float:
    """Start the user's server, stop it again; return the seconds of the start."""
    headers = {"Authorization": f"token {token}"}
    with httpx.Client(base_url=f"{url}/hub/api/", headers=headers, trust_env=False, timeout=60) as hub:
        began = time.perf_counter()
        hub.post(f"users/{user}/server", json=options).raise_for_status()  # ready, or ten seconds later
        while not (model := hub.get(f"users/{user}").json()["servers"].get("") or {}).get("ready"):
            if not model:
                raise RuntimeError(f"the server of {user} did not start: see the Hub's log")
            time.sleep(0.1)
        took = time.perf_counter() - began
        hub.delete(f"users/{user}/server").raise_for_status()
        while hub.get(f"users/{user}").json()["servers"]:
            time.sleep(0.1)
    return took


@contextmanager
def engine_of(runtime: str) -> Iterator[Engine | None]:
    """A Docker engine with the image, if containers are asked for."""
    if runtime == "process":
        yield None
        return
    engine = docker.up()
    try:
        docker_images.build_all(engine)
        yield engine
    finally:
        docker.down(engine.directory)


def main() -> int:
    """Print medians and the difference; with --check status 1 if that is over the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runtime", choices=("process", "docker"), default="process")
    parser.add_argument("--json", action="store_true", help="every start, for programs")
    parser.add_argument("--check", action="store_true", help="exit 1 when the goal is missed")
    given = parser.parse_args()
    times: dict[str, list[float]] = {"detlab": [], "plain": []}
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name, engine_of(given.runtime) as engine:
        root = Path(name)
        root.chmod(0o755)
        (root / "plain").mkdir()
        config, extra, options = "", {}, {}
        if engine is not None:
            config, extra = docker_images.cluster_config(docker_images.EMPTY), {"DOCKER_HOST": engine.url}
            options = {"runtime": "docker", "image": docker_images.EMPTY}
        with (
            running_cluster(root, slots=1, config=UNLIMITED + config, extra=extra) as cluster,
            plain_hub(root / "plain", engine) as (url, token),
        ):
            for number in range(given.rounds + 1):
                ours = spawn(cluster.url, cluster.token, cluster.user, options)
                theirs = spawn(url, token, "bench", {})
                if number:  # the first one fills caches
                    times["detlab"].append(ours)
                    times["plain"].append(theirs)
    medians = {name: statistics.median(found) for name, found in times.items()}
    more = statistics.median(ours - theirs for ours, theirs in zip(times["detlab"], times["plain"], strict=True))
    if given.json:
        found = {"runtime": given.runtime, "rounds": given.rounds, "median_seconds": medians, "more_seconds": more}
        print(json.dumps({**found, "all": times}, indent=1))
    else:
        tell(times, more, given.runtime)
    return int(given.check and more > GOAL)


def tell(times: dict[str, list[float]], more: float, runtime: str) -> None:
    """Print the table."""
    names = {"detlab": "detlab", "plain": "DockerSpawner" if runtime == "docker" else "SimpleLocalProcessSpawner"}
    print(f"A notebook's start, {runtime}: medians of {len(times['plain'])} rounds (least … most)")
    for which, found in times.items():
        print(f"  {names[which]:<28} {statistics.median(found):7.2f} s   ({min(found):.2f} … {max(found):.2f})")
    verdict = "ok" if more <= GOAL else "MISSED"
    print(f"  {'detlab takes longer by':<28} {more:7.2f} s   goal <= {GOAL:g}  {verdict}   (median of the differences)")


if __name__ == "__main__":
    sys.exit(main())
