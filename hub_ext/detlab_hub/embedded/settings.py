"""The operator's settings of the embedded cluster, in `detlab_config.py` or the file given by `--config`."""

from __future__ import annotations

import importlib.util
import os
import pwd
from pathlib import Path
from urllib.parse import urlsplit

from traitlets import Bool, Dict, Enum, Integer, List, Unicode
from traitlets.config import Config, Configurable
from traitlets.config.loader import PyFileConfigLoader

from detlab.errors import DetlabError
from detlab_hub.embedded.state import check_user_name


def login_name() -> str:
    """Return the login name of the user who runs this process, as the Hub writes it (lower case)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name.lower()
    except KeyError:
        return f"uid{os.getuid()}"


class EmbeddedCluster(Configurable):
    """Options of `det up`."""

    operator = Unicode(help="Hub user who runs the cluster; default: your login name.").tag(config=True)
    extra_users = List(
        Unicode(),
        help="Other Hub users who may log in, each with a password of their own in secrets/password-NAME. On a"
        " cluster that root started each has a uid of their own; else only the operator can run tasks.",
    ).tag(config=True)

    user_map = Dict(
        Integer(),
        key_trait=Unicode(),
        help="Hub user -> uid of an account of this machine, for a cluster that root started. Users who are not in"
        " it get a uid from 20000 up (c.DetHub.uid_range), the same on all nodes.",
    ).tag(config=True)

    docker = Enum(
        [True, False, "auto"],
        "auto",
        help="Whether tasks may run in containers of this machine's Docker engine; auto: if root started the cluster"
        " and an engine answers. Which engine: the environment variable DOCKER_HOST, else its usual socket.",
    ).tag(config=True)

    docker_mounts = List(
        Unicode(),
        help="Directories of this machine of which containers may have parts (bind_mounts); by default none.",
    ).tag(config=True)

    docker_volumes = List(
        Unicode(),
        help="Directories of this machine that every container has, each as HOST[:CONTAINER][:ro]; by default none.",
    ).tag(config=True)

    agent_name = Unicode(help="What the cluster's own agent is called; default: this machine's name.").tag(config=True)

    warm_pool = Enum(
        [True, False, "auto"],
        "auto",
        help="Whether the agent forks trials that are plain Python programs from a process that has imported torch;"
        " auto: if torch is installed. That process is started while 2 GiB of memory are free, ended below 0.5 GiB, and"
        " takes about 0.3 GiB. What trials lose and gain: docs/decisions/0009-warm-pool.md.",
    ).tag(config=True)

    task_network = Enum(
        ["auto", "private", "host"],
        "auto",
        help="Whether each task has a network namespace of its own; auto: where root started the cluster and it works."
        " What tasks reach then: docs/how-to/add-a-node.md.",
    ).tag(config=True)

    task_ports = List(
        Integer(min=1, max=65535),
        help="Ports of this machine's loopback that tasks with a network of their own reach, beside the cluster's.",
    ).tag(config=True)

    task_memory = Unicode(
        help="Memory of a task that does not ask for some (resources.memory), such as 16G; empty: no limit."
    ).tag(config=True)

    task_pids = Integer(
        None, allow_none=True, min=0, help="Processes and threads of one task; 0: any number; default: 8192."
    ).tag(config=True)

    ip = Unicode(
        "127.0.0.1",
        help="Address of this machine on which the cluster is reached; 0.0.0.0 for all of them. Beyond loopback it must"
        " speak TLS, or stand behind what does.",
    ).tag(config=True)

    hub_ip = Enum(
        ["127.0.0.1", "0.0.0.0"],  # noqa: S104  (the operator's choice)
        "127.0.0.1",
        help="Address on which the Hub itself listens, beside the proxy; 0.0.0.0 where the Hub's own spawner starts"
        " servers in containers, which reach its API by another address of this machine (c.JupyterHub.hub_connect_url)."
        " It speaks plain HTTP: keep other machines from that port. Counts from the next start after det down.",
    ).tag(config=True)

    public_host = Unicode(
        help="Name or address by which other machines reach it; default: `ip`, or this machine's name."
    ).tag(config=True)

    public_url = Unicode(
        help="Address by which people and other machines reach it through the server in front of it, such as"
        " https://hub.example.org; default, with `behind_tls_proxy`: https and `public_host`."
    ).tag(config=True)

    tls = Bool(False, help="Speak TLS, with a certificate that is made once and pinned by agents.").tag(config=True)

    certificate_file = Unicode(
        help="Certificate (PEM, with those between it and its authority) to use in place of one of detlab's making."
    ).tag(config=True)

    key_file = Unicode(help="Key of `certificate_file` (PEM, without a password).").tag(config=True)

    behind_tls_proxy = Bool(
        False, help="A server that speaks TLS stands before it: it may speak plain HTTP beyond loopback."
    ).tag(config=True)

    def keeps_warm_pool(self, said: bool | None) -> bool:
        """Return whether the agent is to keep a warm pool; the agent looks at the free memory itself.

        Args:
            said: `--warm-pool` or `--no-warm-pool`; None: neither.
        """
        if said is not None:
            return said
        return has_torch() if self.warm_pool == "auto" else bool(self.warm_pool)

    def users(self) -> tuple[str, list[str]]:
        """Return (operator, others), checked.

        Raises:
            DetlabError: A name cannot be used.
        """
        operator = check_user_name((self.operator or login_name()).lower())
        others = [check_user_name(name.lower()) for name in self.extra_users]
        return operator, [name for name in dict.fromkeys(others) if name != operator]


def has_torch() -> bool:
    """Whether this interpreter, which is the agent's too, could import torch; nothing is imported."""
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def subdomain_host_of(config: Config) -> str:
    """Return `c.JupyterHub.subdomain_host` as the Hub reads it: with https if no protocol is given.

    Raises:
        DetlabError: It is not an address of a Hub.
    """
    said = config.JupyterHub.get("subdomain_host", "")
    if not said:
        return ""
    address = check_address("c.JupyterHub.subdomain_host", said if "://" in str(said) else f"https://{said}")
    host = urlsplit(address).hostname or ""
    if host.replace(".", "").isdigit() or ":" in host or "." not in host:
        raise DetlabError(
            f"c.JupyterHub.subdomain_host is {said!r}: below {host} there can be no names",
            hint="Give the Hub a name of its own, such as https://hub.example.org, and a wildcard entry in the DNS",
        )
    return address


def check_address(setting: str, said: str) -> str:
    """Return an address of a Hub without a trailing slash.

    Raises:
        DetlabError: It is not one; the message names the setting.
    """
    try:
        parts = urlsplit(said)
        more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
        wrong = parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0 or bool(more)
    except ValueError:  # a port that is no number
        wrong = True
    if wrong:
        raise DetlabError(
            f"{setting} is {said!r}, which is not the address of a Hub", hint="Write https://NAME or https://NAME:PORT"
        )
    return said.rstrip("/")


def read_config(paths: list[Path]) -> Config:
    """Return the merged traitlets configuration of the files that exist, later ones winning.

    Raises:
        DetlabError: A file is missing, or raises an error.
    """
    merged = Config()
    for path in paths:
        try:
            merged.merge(PyFileConfigLoader(path.name, path=str(path.parent)).load_config())
        except Exception as error:  # the file is the operator's own code: whatever it raises is said to them
            raise DetlabError(
                f"{path}: {type(error).__name__}: {error}", hint="Mend the file, then det up again."
            ) from error
    return merged
