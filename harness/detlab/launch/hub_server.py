"""Becomes a server of the Hub inside a task: `python -m detlab.launch.hub_server --kind notebook|shell|tensorboard`.

The agent sets the address of the server (DET_SERVICE_ADDRESS, DET_SERVICE_PORT) and passes the socket that listens
there (DET_SERVICE_FD), except into a container with a network of its own; the Hub's spawner has put the Hub's own
variables into the environment. This process starts the server on that socket, reports its last use to the master, and
ends with it. Only the standard library is imported here.

`--kind hold` runs no server: it holds the slots for a server that the Hub starts by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib.util
import ipaddress
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from detlab.launch.handed import handing
from detlab.launch.servers import idle_watch
from detlab.launch.servers.relays import Relays, Target, showing
from detlab.launch.welcome import ASKED, NOTES, welcome
from detlab.preloading import preload_magics
from detlab.short_folder import short_folder
from detlab.trust import tls_context

KINDS = ("notebook", "shell", "tensorboard", "hold")
PORT_TAKEN = 98
"""Exit status when somebody else listens on the port: the Hub's spawner asks for another place then."""
MISSING = 78
"""Exit status when this environment lacks a package that the server needs."""
LISTENING = "DET_SERVICE_FD"
"""Names the descriptor of the socket that listens at the server's port."""
OWN_SOCKET = "server.sock"
"""The server's second socket, for this process alone, in its private folder."""
DEFAULT_URLS = {"notebook": "/lab", "shell": "/terminals/1"}
NEEDS = {
    "notebook": ("jupyterhub", "jupyterlab"),
    "shell": ("jupyterhub", "notebook"),
    "tensorboard": ("jupyterhub", "tensorboard", "tornado"),
}


def server_environment(given: Mapping[str, str], kind: str, *, root: Path) -> dict[str, str]:
    """Return the environment of the server process.

    Args:
        given: This process's own, with the Hub's variables and the agent's address.
        kind: Of `KINDS`.
        root: Where its files are, if the Hub does not say it.
    """
    env = {name: value for name, value in given.items() if name != LISTENING}
    address, port = env["DET_SERVICE_ADDRESS"], env["DET_SERVICE_PORT"]
    host = f"[{address}]" if ":" in address else address
    env["JUPYTERHUB_SERVICE_URL"] = f"http://{host}:{port}{env.get('JUPYTERHUB_SERVICE_PREFIX', '/')}"
    env["JUPYTERHUB_ROOT_DIR"] = env.get("JUPYTERHUB_ROOT_DIR") or str(root)
    if kind == "shell":
        env["JUPYTERHUB_DEFAULT_URL"] = DEFAULT_URLS[kind]
    elif kind == "notebook":
        env["JUPYTERHUB_DEFAULT_URL"] = env.get("JUPYTERHUB_DEFAULT_URL") or DEFAULT_URLS[kind]
    env["SHELL"] = env.get("SHELL") or login_shell()
    _name_the_user(env)
    preload_magics(env)
    return env


def _name_the_user(env: MutableMapping[str, str]) -> None:
    """Let programs know the user by name where the machine has no account of it (bash: "I have no name!")."""
    name = env.get("JUPYTERHUB_USER", "")
    if not name or _has_account():
        return
    for variable in ("USER", "LOGNAME"):
        env[variable] = env.get(variable) or name
    if re.fullmatch(r"[\w.@+-]+", name):  # bash expands what stands in a prompt
        env["PROMPT_COMMAND"] = env.get("PROMPT_COMMAND") or r'PS1="${PS1//\\u/$USER}"; unset PROMPT_COMMAND'


def _has_account() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def login_shell() -> str:
    """Return the shell of the account that this runs as, if it has one that exists."""
    try:
        own = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        own = ""
    if Path(own).name in {"nologin", "false"}:  # of an account of the system, which an image or an operator's map chose
        own = ""
    return next(shell for shell in (own, "/bin/bash", "/bin/sh") if shell and os.access(shell, os.X_OK))


def command_of(kind: str, shell: str) -> list[str]:
    """Return the command line of the server.

    Args:
        kind: Of `KINDS`.
        shell: What its terminals run. Jupyter would make it a login shell, whose profile takes this environment's own
            programs (`det`, `python`) off PATH again.
    """
    if kind == "tensorboard":
        return [sys.executable, "-m", "detlab.launch.tensorboard_server"]
    terminals = f"--ServerApp.terminado_settings=shell_command={shlex.quote(shell)}"
    return [sys.executable, "-m", "jupyterhub.singleuser", terminals, "--KernelManager.transport=ipc"]


def missing(kind: str) -> list[str]:
    """Return the packages that the server needs and this environment lacks."""
    return [name for name in NEEDS.get(kind, ()) if importlib.util.find_spec(name) is None]


def listening_socket(env: Mapping[str, str]) -> socket.socket:
    """Return the socket that listens at the server's port: the agent's, or in a container's own network one of ours.

    Raises:
        OSError: Another program has the port.
    """
    if LISTENING in env:
        return socket.socket(fileno=int(env[LISTENING]))
    address, port = env["DET_SERVICE_ADDRESS"], int(env["DET_SERVICE_PORT"])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN)


def private_socket(folder: Path) -> socket.socket:
    """Return a socket that listens in a folder which only this user may enter."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(folder / OWN_SOCKET))
    made.listen(socket.SOMAXCONN)
    return made


def root_directory(env: Mapping[str, str], config: Mapping[str, Any], work: Path) -> Path:
    """Return the directory in which the server opens.

    The config's `work_dir`; else the home, into which code that came with the task is copied first: what is written
    beside it then survives the task.
    """
    home = Path(env.get("HOME") or work)
    wanted = config.get("work_dir")
    if wanted:
        return home / str(wanted)
    if not any(work.iterdir()):
        return home
    target = home / (env.get("DET_TASK_ID") or "context")
    if not target.exists():
        shutil.copytree(work, target, symlinks=True)
    return target


def task_config(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the resolved config of the task; empty if it cannot be read."""
    try:
        info = json.loads((Path(env["DET_TASK_DIR"]) / "info.json").read_bytes())
    except (KeyError, OSError, ValueError):
        return {}
    config = info.get("config") if isinstance(info, dict) else None
    return config if isinstance(config, dict) else {}


def image_name(env: Mapping[str, str]) -> str:
    """Return the image of the container that this runs in; empty outside of a container."""
    try:
        launch = json.loads((Path(env["DET_TASK_DIR"]) / "launch.json").read_bytes())
        return str(launch["container"]["image"])
    except (KeyError, OSError, TypeError, ValueError):
        return ""


def run(kind: str, env: Mapping[str, str]) -> int:
    """Run the server to its end; return its exit status."""
    lacking = missing(kind)
    if lacking:
        where = f"image {image}" if (image := image_name(env)) else "this environment"
        _say(f"{where} has no {' and no '.join(lacking)}, which a {kind} needs: pip install {' '.join(lacking)} in it")
        return MISSING
    try:
        public = listening_socket(env)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        _say(f"port {env['DET_SERVICE_PORT']} of {env['DET_SERVICE_ADDRESS']} is in use by another process")
        return PORT_TAKEN
    with short_folder() as folder, public:
        try:
            return _serve(kind, env, public, folder)
        finally:
            with contextlib.suppress(OSError):
                public.shutdown(
                    socket.SHUT_RDWR
                )  # no connection waits for a server that has ended; the port stays taken


def _serve(kind: str, env: Mapping[str, str], public: socket.socket, folder: Path) -> int:
    """Run the server on its sockets; return its exit status."""
    root = root_directory(env, task_config(env), Path.cwd())
    full = server_environment(env, kind, root=root)
    if full.pop(ASKED, None) and kind == "notebook":
        _welcome(full)
    _keep_kernels_private(full, folder)
    own = private_socket(folder)
    handed = [public, own]
    if full.get("DET_SERVICE_CERT_FILE"):
        _over_a_network(full, public, folder / OWN_SOCKET)
        handed = [own]  # what comes to the public one comes by the relay
    descriptors = [one.fileno() for one in handed]
    command = handing(command_of(kind, full["SHELL"]), int(full["DET_SERVICE_PORT"]), descriptors)
    # The whole process group gets a stop, so that the server needs no message from here.
    child = subprocess.Popen(command, env=full, cwd=root, pass_fds=descriptors)
    own.close()
    watch = idle_watch.IdleWatch(kind, full, child.pid, folder / OWN_SOCKET)
    threading.Thread(target=watch.run, name="activity", daemon=True).start()
    return child.wait()


def _welcome(env: Mapping[str, str]) -> None:
    """Give a newcomer the tutorial; a server starts without it, too."""
    import platformdirs

    try:
        welcome(Path(env["JUPYTERHUB_ROOT_DIR"]), platformdirs.user_state_path("detlab") / NOTES)
    except OSError as error:
        _say(f"the tutorial was not copied: {error}")


def _keep_kernels_private(env: MutableMapping[str, str], folder: Path) -> None:
    """Have kernels speak over Unix sockets in this folder: every user of the machine may connect to a TCP port.

    The configuration applies to everything that starts a kernel here: the server, `jupyter console`, nbconvert.
    """
    env["JUPYTER_RUNTIME_DIR"] = str(folder)
    config = folder / "config"
    config.mkdir(mode=0o700)
    (config / "jupyter_config.json").write_text(json.dumps({"KernelManager": {"transport": "ipc"}}), encoding="utf-8")
    before = env.get("JUPYTER_CONFIG_PATH")
    env["JUPYTER_CONFIG_PATH"] = f"{before}{os.pathsep}{config}" if before else str(config)


def _over_a_network(env: MutableMapping[str, str], public: socket.socket, server: Path) -> None:
    """Relay from the public socket, by TLS, to the server's own; find the Hub whose address is the master's loopback.

    Raises:
        OSError: The certificate cannot be used.
    """
    relays = Relays()
    shown = showing(env["DET_SERVICE_CERT_FILE"], env["DET_SERVICE_KEY_FILE"])
    relays.add(public, Target(path=server), shown)
    hub, master = urlsplit(env.get("JUPYTERHUB_API_URL", "")), urlsplit(env.get("DET_MASTER", ""))
    if not _is_loopback(hub.hostname) or not master.hostname or _is_loopback(master.hostname):
        return
    trust = tls_context(env["DET_MASTER"])
    name = master.netloc.rpartition("@")[2]  # a server in front may choose the site by it
    where = Target(master.hostname, master.port or (443 if trust else 80), trust, name)
    towards_hub = socket.create_server(("127.0.0.1", 0), backlog=socket.SOMAXCONN)
    here = f"127.0.0.1:{relays.add(towards_hub, where)}"
    for name in ("JUPYTERHUB_API_URL", "JUPYTERHUB_ACTIVITY_URL"):
        if name in env:
            env[name] = urlunsplit(urlsplit(env[name])._replace(scheme="http", netloc=here))


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:  # a name
        return False


def hold() -> int:
    """Wait for the signal to end."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"detlab: {text}\n")


def _pass(number: int, frame: FrameType | None) -> None:
    """Live on: the server got the signal too, and its end is ours."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m detlab.launch.hub_server", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, required=True)
    kind = parser.parse_args(arguments).kind
    if kind == "hold":
        return hold()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _pass)
    code = run(kind, os.environ)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
