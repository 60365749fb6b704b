"""The state folder of an embedded cluster: its files, their modes, and how they are written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from detlab.errors import DetlabError
from detlab.files import Below, write_atomic
from detlab.trust import read_certificate

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk, or of an exhausted disk quota."""
_FULL = 1024 * 1024
"""Free bytes below which a disk counts as full: a database needs more for its next step."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")

TAKE_OVER_NOTE = "take_over"
"""File beside the database by which a starting master is told to take over; see `store.installation`. The agent's own
is in its directory."""


def check_user_name(name: str) -> str:
    """Return a Hub user name if it is safe as part of a file name.

    Raises:
        DetlabError: It is not.
    """
    if not _NAME.fullmatch(name):
        raise DetlabError(
            f"{name!r} cannot be a user of the embedded cluster: names are lower-case letters, digits, and . _ @ -",
            hint="Set another one: c.EmbeddedCluster.operator or c.EmbeddedCluster.extra_users",
        )
    return name


@dataclass(frozen=True)
class StartPlan:
    """The options of one start of the cluster; the parts read it from the state folder.

    Attributes:
        port: Public port of the proxy.
        hub_port: Private port of the Hub.
        proxy_api_port: Private port of the proxy's own API.
        master_port: Private port of the master.
        operator: Hub user who runs the cluster.
        extra_users: Other Hub users who may log in.
        slots: CPU slots, or None for what the agent finds.
        config: The operator's traitlets file, or None.
        workdir: The operator's working directory; their notebook server opens there.
        user_map: Hub user -> existing uid, of a cluster that root started.
        docker: Whether the agent runs containers; None: if it can.
        docker_mounts: Host directories whose parts containers may mount.
        docker_volumes: Host directories that every container has, as HOST[:CONTAINER][:ro].
        agent_name: Name of the agent; "" is the machine's name.
        warm_pool: Whether the agent forks trials from a process that has imported torch.
        task_network: Whether each task has a network of its own: auto, private or host.
        task_ports: Ports of this machine's loopback that tasks reach from there.
        task_memory: Memory of a task that does not request any; "": no limit.
        task_pids: Processes and threads of one task; None: the agent's default.
        ip: Address on which the proxy listens.
        hub_ip: Address on which the Hub listens: loopback, or all of this machine's.
        public_host: Name or address by which other machines reach it; empty: `ip`.
        public_address: Full address by which they do, if it is not the proxy's own; empty: it is.
        certificate_file: Certificate of the proxy; empty: it serves plain HTTP.
        key_file: The certificate's key.
        fingerprint: Of that certificate.
        servers_certificate_file: Certificate of the authority for servers on other nodes; empty: they serve plain HTTP.
        subdomain_host: The Hub's address if each user's servers have a name below it (`c.JupyterHub.subdomain_host`).
    """

    port: int
    hub_port: int
    proxy_api_port: int
    master_port: int
    operator: str
    extra_users: list[str] = field(default_factory=list)
    slots: int | None = None
    config: str | None = None
    workdir: str = "/"
    user_map: dict[str, int] = field(default_factory=dict)
    docker: bool | None = None
    docker_mounts: list[str] = field(default_factory=list)
    docker_volumes: list[str] = field(default_factory=list)
    agent_name: str = ""
    warm_pool: bool = False
    task_network: str = "auto"
    task_ports: list[int] = field(default_factory=list)
    task_memory: str = ""
    task_pids: int | None = None
    ip: str = "127.0.0.1"
    hub_ip: str = "127.0.0.1"
    public_host: str = ""
    public_address: str = ""
    certificate_file: str = ""
    key_file: str = ""
    fingerprint: str = ""
    servers_certificate_file: str = ""
    subdomain_host: str = ""

    @property
    def url(self) -> str:
        """Address of the Hub for this machine."""
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.ip, self.ip)  # noqa: S104  (to ask, not to listen)
        return self._address(here)

    @property
    def public_url(self) -> str:
        """Public address of the Hub."""
        return self.public_address or self.bind_url

    @property
    def bind_url(self) -> str:
        """Address of the proxy itself, which may stand behind another server."""
        return self._address(self.public_host) if self.public_host else self.url

    @property
    def hosts(self) -> list[str]:
        """All names under which the Hub itself is reached, as in the `Host` of requests; without IPv6."""
        known = [
            urlsplit(one).hostname or "" for one in (self.subdomain_host, self.public_url, self.bind_url, self.url)
        ]
        return sorted({one for one in (*known, "127.0.0.1", "localhost") if one and ":" not in one})

    def _address(self, host: str) -> str:
        scheme = "https" if self.certificate_file else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def certificate(self) -> str | None:
        """The certificate (PEM) that clients of this machine's own address may pin; None without TLS.

        Raises:
            DetlabError: Its file cannot be read.
        """
        return read_certificate(Path(self.certificate_file)) if self.certificate_file else None

    @property
    def service_url(self) -> str:
        """Public address of the service."""
        return f"{self.url}/services/detlab/"

    @property
    def hub_api_url(self) -> str:
        """Private address of the Hub's API."""
        return f"http://127.0.0.1:{self.hub_port}/hub/api"

    @property
    def master_url(self) -> str:
        """Private address of the service, which agents and tasks use instead of the proxy."""
        return f"http://127.0.0.1:{self.master_port}/services/detlab/"


class StateFolder:
    """Paths of one state folder.

    Args:
        root: The folder itself (`det up --dir`).
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def __str__(self) -> str:
        return str(self.root)

    def create(self) -> None:
        """Make the folder and its parts; restore the modes of existing ones.

        Raises:
            DetlabError: The folder cannot be made."""
        modes = {
            self.root: 0o711,
            self.secrets: 0o700,
            self.root / "db": 0o700,
            self.root / "bundles": 0o700,
            self.root / "checkpoints": 0o1777,
            self.root / "agent": 0o711,
            self.root / "homes": 0o711,
            self.logs: 0o700,
        }
        try:
            for path, mode in modes.items():
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(mode)
        except OSError as error:
            raise DetlabError(
                f"the state folder {self.root} cannot be made: {error.strerror}",
                hint="Name another one: det up --dir FOLDER",
            ) from error

    secrets = Below("secrets")
    """Tokens and passwords, for the operator alone."""
    logs = Below("logs")
    """One log per part."""
    cluster_file = Below("cluster.json")
    """The file that commands look for; it exists while the cluster is up."""
    report_file = Below("supervisor.json")
    """The supervisor's report of its parts."""
    plan_file = Below("plan.json")
    """The plan with which the running parts were started."""
    config_file = Below("detlab_config.py")
    """The operator's traitlets file, if there is one."""
    user_map_file = Below("user_map.json")
    """The operator's own map of Hub users to uids, for the master."""
    certificate_file = Below("certificate.pem")
    """The certificate that `det up` made, readable by all."""
    upgrade_note = Below("db/upgrading")
    """Holds the master's process id while it brings an older database up to date."""

    def note_take_over(self, *, told: bool) -> None:
        """Have the master and the agent that start next own what the cluster has, whatever they were copied from.

        Args:
            told: Whether it shall. If not, what an earlier start was told that came to nothing is forgotten.
        """
        for part, mode in (("db", 0o700), ("agent", 0o711)):
            note = self.root / part / TAKE_OVER_NOTE
            if told:
                note.parent.mkdir(mode=mode, exist_ok=True)
                note.touch()
            else:
                note.unlink(missing_ok=True)

    restore_note = Below("restoring.json")
    """Lists what is to be renamed, while `det restore` replaces one state by another."""
    key_file = Below("secrets/certificate_key.pem")
    """The certificate's key, for the operator alone."""
    servers_certificate_file = Below("servers.pem")
    """The certificate of the authority for servers on other nodes."""
    servers_key_file = Below("secrets/servers_key.pem")
    """Its key, for the master alone."""

    @property
    def hub_pair(self) -> tuple[Path, Path]:
        """A certificate and its key that the Hub requires for TLS to servers, though it presents them to none."""
        return self.secrets / "hub.pem", self.secrets / "hub_key.pem"

    @property
    def full(self) -> str | None:
        """Return a message about its disk if that is full; None if it is not.

        Blocks that are reserved for root do not count: tasks cannot use them.
        """
        room = os.statvfs(self.root)
        free = room.f_bavail * room.f_frsize
        if room.f_files and not room.f_favail:
            return f"the disk of {self.root} is full: it has no room for further files ({free} bytes free)"
        return f"the disk of {self.root} is full: {free} bytes free" if free < _FULL else None

    def log(self, part: str) -> Path:
        """Return the log file of a part."""
        return self.logs / f"{part}.log"

    def password_file(self, user: str, operator: str) -> Path:
        """Return the file with a user's password."""
        name = "admin_password" if user == operator else f"password-{check_user_name(user)}"
        return self.secrets / name

    def secret(self, name: str, *, prefix: str = "", text: bool = True) -> str:
        """Return a secret of 256 random bits, made (mode 0600) at its first use.

        Args:
            name: File name in `secrets/`.
            prefix: Put before a newly made one.
            text: URL-safe text; False for hexadecimal digits (cookie secrets).
        """
        path = self.secrets / name
        if not path.exists():
            made = prefix + (secrets.token_urlsafe(32) if text else secrets.token_hex(32))
            write_atomic(path, f"{made}\n".encode(), durable=True, replace=False)
        return path.read_text(encoding="ascii").strip()

    def make_secrets(self, users: Iterable[str], operator: str) -> None:
        """Make all secrets before any part starts: several of them are read by two parts concurrently."""
        for name in ("user_token", "service_token", "supervisor_token", "proxy_token"):
            self.secret(name)
        for name in ("hub_cookie_secret", "cookie_secret"):
            self.secret(name, text=False)
        self.secret("enrolment_token", prefix="dtenrol_")
        self.secret("spawner_token", prefix="dthub_")
        for user in users:
            self.secret(self.password_file(user, operator).name)

    def read_plan(self) -> StartPlan | None:
        """Return the plan of the running or last cluster, None if there was none."""
        raw = read_json(self.plan_file)
        if raw is None:
            return None
        try:
            return StartPlan(**raw)
        except TypeError:
            return None  # of another version: start afresh

    def write_plan(self, plan: StartPlan) -> None:
        """Write the plan for the parts."""
        write_if_changed(self.plan_file, json.dumps(asdict(plan), indent=1) + "\n", mode=0o600)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for the only supervisor.

        Raises:
            FolderInUse: Another supervisor has it.
        """
        # a short wait for processes that only check whether it is locked
        with self._locked("supervisor.lock", fcntl.LOCK_EX, patience=0.5) as ours:
            if not ours:
                raise FolderInUse(f"a supervisor already runs on {self.root}")
            yield

    @property
    def locked(self) -> bool:
        """Whether a supervisor runs on this folder now."""
        if not (self.root / "supervisor.lock").exists():
            return False
        with self._locked("supervisor.lock", fcntl.LOCK_SH, patience=0.0) as ours:
            return not ours

    @contextlib.contextmanager
    def starting(self, patience: float) -> Iterator[None]:
        """Be the only `det up` on this folder; wait for another one to finish.

        Args:
            patience: Seconds to wait for the other one.

        Raises:
            FolderInUse: The other one takes longer.
        """
        with self._locked("up.lock", fcntl.LOCK_EX, patience) as ours:
            if not ours:
                raise FolderInUse(f"another det up on {self.root} is still in progress", hint="det status")
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, kind: int, patience: float) -> Iterator[bool]:
        """Try to lock a file for `patience` seconds; yield whether that succeeded."""
        deadline = time.monotonic() + patience
        descriptor = os.open(self.root / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            ours = False
            while not ours:
                try:
                    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                    ours = True
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        break
                    time.sleep(0.02)
            yield ours
        finally:
            os.close(descriptor)


class FolderInUse(DetlabError):
    """Another supervisor holds the state folder."""

    default_code = "cluster.in_use"


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object from a file; None if there is none (yet)."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_if_changed(path: Path, text: str, *, mode: int) -> None:
    """Write a file as `write_atomic` does, unless it has that content already: then no room on the disk is needed."""
    try:
        unchanged = path.read_text(encoding="utf-8") == text and stat.S_IMODE(path.stat().st_mode) == mode
    except (OSError, ValueError):
        unchanged = False
    if not unchanged:
        write_atomic(path, text.encode(), mode=mode, durable=True)


def write_somehow(path: Path, text: str, *, mode: int) -> None:
    """Write a file as `write_atomic` does; if the disk has no room for a second one, overwrite the first.

    Raises:
        OSError: There is no file to overwrite, or there is no room for that either.
    """
    try:
        write_atomic(path, text.encode(), mode=mode, durable=True)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            data = text.encode()
            if os.pwrite(descriptor, data, 0) != len(data):
                raise
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)
