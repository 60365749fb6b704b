"""The tour of a cluster: three agents and two users of the Hub on this machine, then `cluster_tour.ipynb`, headless.

    python examples/run_tour.py --out tour-output

Exits 0 only if every cell of the notebook ran through: they assert what they show. Start it as root: on a cluster of
anybody else only that one user's tasks run, and the tour has two.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import nbformat

HERE = pathlib.Path(__file__).parent
BIN = pathlib.Path(sys.executable).parent
CONFIG = """\
c.EmbeddedCluster.operator = "ada"
c.EmbeddedCluster.extra_users = ["ben"]
c.EmbeddedCluster.agent_name = "node-1"
c.DetHub.pools = {
    "default": {"scheduler": "priority", "preemption": True, "description": "urgent first"},
    "fair": {"scheduler": "fair_share", "description": "equal shares"},
    "elastic": {
        "scheduler": "round_robin",
        "description": "on demand",
        "slots_per_device": 2,
        "provider": {"type": "local", "slots": 1, "max_instances": 1, "max_idle_agent_period": 20},
    },
}
"""
AGENTS = {
    "node-2": ("--slots", "2", "--label", "rack=r2"),
    "node-3": ("--slots", "4", "--pool", "fair"),
}
"""Those that join the embedded one; the notebook knows them by these names."""
SECONDS = 60


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """This one, without another cluster's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DET_", "JUPYTERHUB_"))}
    return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}"}


def det(*words: str, env: dict[str, str]) -> str:
    """Run `det …`; leave with its status if it fails."""
    done = subprocess.run([BIN / "det", *words], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"det {' '.join(words)}\n{done.stdout}{done.stderr}", file=sys.stderr)
        sys.exit(done.returncode)
    return done.stdout


def ask_hub(path: str, body: dict[str, object], cluster: str, admin: str) -> httpx.Response:
    """Ask the Hub for something, as its administrator."""
    headers = {"Authorization": f"token {admin}"}
    reply = httpx.post(f"{cluster}/hub/api/{path}", headers=headers, json=body, trust_env=False)
    reply.raise_for_status()
    return reply


def make_group(name: str, user: str, cluster: str, admin: str) -> None:
    """A group of the Hub with one member."""
    ask_hub(f"groups/{name}", {}, cluster, admin)
    ask_hub(f"groups/{name}/users", {"users": [user]}, cluster, admin)


def token_of(user: str, cluster: str, admin: str) -> str:
    """A token of another user, as they would make it on the Hub's page `/hub/token`."""
    wanted = {"scopes": ["custom:detlab:write"], "expires_in": 3600}
    return str(ask_hub(f"users/{user}/tokens", wanted, cluster, admin).json()["token"])


@contextmanager
def cluster(folder: pathlib.Path, port: int, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """`det up` with the tour's configuration; the environment in which its commands find it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "detlab_config.py").write_text(CONFIG, encoding="utf-8")
    det("up", "--dir", str(folder), "--port", str(port), "--slots", "2", env=env)
    try:
        url = json.loads((folder / "cluster.json").read_text())["url"]
        token = (folder / "secrets" / "user_token").read_text().strip()
        yield {**env, "DET_URL": url, "DET_TOKEN": token}
    finally:
        det("down", "--dir", str(folder), "--timeout", "10", env=env)


@contextmanager
def agent(name: str, options: tuple[str, ...], folder: pathlib.Path, env: dict[str, str]) -> Iterator[None]:
    """A further node, as its administrator adds it: a token, and `det agent run` until the end of the context."""
    folder.mkdir(mode=0o711)
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(det("agent", "enrol", env=env), encoding="ascii")
    shown = {key: value for key, value in env.items() if key != "DET_TOKEN"}
    with (folder / "agent.log").open("wb") as log:
        running = subprocess.Popen(
            [BIN / "det", "agent", "run", "--master", env["DET_URL"], "--name", name, *options,
             "--dir", str(folder / "state"), "--enrolment-token-file", str(file)],
            env=shown, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        running.terminate()
        running.wait(SECONDS)


def wait_for_agents(names: set[str], env: dict[str, str]) -> None:
    """Until all of them are connected."""
    end = time.monotonic() + SECONDS
    while True:
        agents = json.loads(det("agent", "list", "--json", env=env))
        if names <= {one["id"] for one in agents if one["state"] == "connected"}:
            return
        if time.monotonic() > end:
            sys.exit(f"the agents are not all there after {SECONDS} s: {agents}")
        time.sleep(0.3)


def wait_for_instances_to_go(env: dict[str, str]) -> None:
    """Until the elastic pool has sent its agents away: they outlive a cluster that is stopped."""
    end = time.monotonic() + SECONDS
    while any(pool["instances"] for pool in json.loads(det("cluster", "instances", "--json", env=env))):
        if time.monotonic() > end:
            sys.exit(f"instances are still there after {SECONDS} s: det cluster instances")
        time.sleep(1)


def execute(out: pathlib.Path, env: dict[str, str]) -> int:
    """Run the notebook; the exit status."""
    executed = out / "cluster_tour.ipynb"
    done = subprocess.run(
        [BIN / "papermill", str(HERE / executed.name), str(executed), "--kernel", "python3", "--cwd", str(out),
         "--no-progress-bar"],
        env=env, check=False,
    )  # fmt: skip
    forget_places(executed, out)
    return done.returncode


def forget_places(executed: pathlib.Path, out: pathlib.Path) -> None:
    """Take out of the notebook where on this machine it was executed: it is to be shown elsewhere."""
    text = executed.read_text(encoding="utf-8")
    for place in (str(out), str(HERE.parent), sys.prefix, sys.base_prefix):
        text = text.replace(f"{place}/", "…/")
    notebook = nbformat.reads(text, as_version=4)
    for part in (notebook, *notebook.cells):
        part.metadata.pop("papermill", None)
    nbformat.write(notebook, executed)


def main() -> None:
    """Parse the options, start everything, run the notebook, end everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tour-output"), help="where results go")
    parser.add_argument("--dir", type=pathlib.Path, help="the cluster's state folder; default: cluster in --out")
    parser.add_argument("--port", type=int, default=0, help="public port of the cluster; default: a free one")
    parser.add_argument("--wait", action="store_true", help="leave it running until Enter is pressed")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("the tour has two users, and only root can run the tasks of both: start it as root")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    folder = (options.dir or out / "cluster").resolve()
    with ExitStack() as agents, cluster(folder, options.port or free_port(), environment()) as env:
        for name, words in AGENTS.items():  # they end after the cluster: what runs on them can leave
            agents.enter_context(agent(name, words, folder / name, env))
        wait_for_agents({"node-1", *AGENTS}, env)
        make_group("students", "ben", env["DET_URL"], env["DET_TOKEN"])
        ben = token_of("ben", env["DET_URL"], env["DET_TOKEN"])
        status = execute(out, {**env, "BEN_TOKEN": ben, "EXAMPLES": str(HERE), "CLUSTER": str(folder)})
        if options.wait:
            print(f"the cluster is at {env['DET_URL']}; passwords are in {folder}/secrets")
            input("Enter ends it. ")
        wait_for_instances_to_go(env)
    print(f"notebook     {out / 'cluster_tour.ipynb'}")
    sys.exit(status)


if __name__ == "__main__":
    main()
