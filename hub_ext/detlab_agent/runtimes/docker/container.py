"""The arguments for a task's container: everything that is allowed, and nothing else."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from docker.types import DeviceRequest, LogConfig, Mount

from detlab.loopback import VARIABLE as TRUSTED_UIDS
from detlab.schemas.runtimes import is_capability, is_image
from detlab.schemas.wire import ContainerSpec, DeviceMount
from detlab.schemas.wire import Mount as WireMount
from detlab_agent.runtimes.base import RefusedTask, SetupFailed
from detlab_agent.runtimes.closed_places import check_sources
from detlab_agent.runtimes.docker.engine import ALLOCATION_LABEL, RUN_LABEL
from detlab_agent.runtimes.preparation import Order, directories

PACKAGE = "/opt/detlab"
"""Path of the agent's own detlab inside a container."""
CA_FILE = "/opt/detlab-ca.pem"
DEFAULT_SHM = 4 << 30
LISTENING = "listening"
"""Unix socket in a task's directory, at which a container in the host's network gets the socket of its service."""
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_SHARED = {"shared", "rshared"}
_PROPAGATION = {"private", "rprivate", "slave", "rslave", *_SHARED}
_SYSTEM = ("/proc", "/sys", "/dev")


@dataclass(frozen=True)
class Allowance:
    """What the operator allows containers to have.

    Attributes:
        mounts: Host directories below which paths may be mounted, as they were when the agent started: without links.
        privileges: Capabilities, devices and shared mounts.
        volumes: Mounts of every container, unless its task mounts something else there.
        memory: Bytes for a container whose task does not request any; None: no limit.
        pids: Processes and threads that each may have; None: no limit.
    """

    mounts: Sequence[Path] = ()
    privileges: bool = False
    volumes: Sequence[WireMount] = ()
    memory: int | None = None
    pids: int | None = None


def parse_volume(text: str) -> WireMount:
    """Return the mount that `HOST[:CONTAINER][:ro|rw]` means; without CONTAINER it has the same path inside.

    Raises:
        ValueError: It is not a volume, or its path is one that tasks need themselves.
    """
    words = text.split(":")
    mode = words.pop() if len(words) > 1 and words[-1] in {"ro", "rw"} else "rw"
    if len(words) > 2 or not all(PurePosixPath(word).is_absolute() and ".." not in word.split("/") for word in words):
        raise ValueError(f"{text!r} is no volume: write HOST[:CONTAINER][:ro|rw], such as /data:/data:ro")
    target = PurePosixPath(words[-1])
    if len(target.parts) < 2 or any(target.is_relative_to(kept) for kept in (*_SYSTEM, PACKAGE)):
        raise ValueError(f"volume {text!r}: {target} is the system's own in a container")
    return WireMount(host_path=words[0], container_path=str(target), read_only=mode == "ro")


def check_image(name: str) -> None:
    """Refuse a name that cannot be an image.

    Raises:
        SetupFailed: It cannot be an image.
    """
    if not is_image(name):
        raise SetupFailed(f"{name[:200]!r} is no image: write for example registry/name:tag")


def choose_network(spec: ContainerSpec, master_url: str) -> str:
    """Return the network of the container.

    Raises:
        RefusedTask: The master could not be reached from it, or it belongs to another container.
    """
    loopback = is_loopback(urlsplit(master_url).hostname or "")
    network = spec.network or ("host" if loopback else "bridge")
    if not _NETWORK.fullmatch(network) or network == "none":
        raise RefusedTask(f"network {network!r}: must be bridge, host, or the name of a network of this node's engine")
    if loopback and network != "host":
        raise RefusedTask(
            f"a container in network {network!r} does not reach the master at {master_url}: use network host, or let "
            "the master listen on an address of the network and tell agents that one"
        )
    return network


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def mounts_for(order: Order, spec: ContainerSpec, allowance: Allowance, home: Path | None) -> list[Mount]:
    """Return the mounts of the task: its directory, its user's home, what it may reach, what the experiment asks for,
    and the volumes that every container has.

    Raises:
        RefusedTask: It requests more than it may have.
        SetupFailed: A host path does not exist, or leads to governed data that the task is not placed for.
    """
    own = [order.task.root, *([home] if home is not None else []), *directories(order.launch.reach)]
    found = {str(path): Mount(str(path), str(path), type="bind") for path in dict.fromkeys(own)}
    for wanted in spec.mounts:
        target = _target(wanted, order)
        if target in found:
            raise RefusedTask(f"bind mount on {target}: the task has its own directory there")
        found[target] = Mount(
            target,
            str(_source(wanted, allowance)),
            type="bind",
            read_only=wanted.read_only,
            propagation=wanted.propagation or "rprivate",
        )
    asked = {_target(wanted, order) for wanted in spec.mounts}
    for volume in allowance.volumes:
        if volume.container_path not in found:
            found[volume.container_path] = _volume(volume)
    _check_places(asked, found, PurePosixPath(order.task.root))
    devices = [one.host_path for one in spec.devices]
    check_sources([*(str(one["Source"]) for one in found.values()), *devices], spec.closed)
    return list(found.values())


def _check_places(asked: Collection[str], found: Mapping[str, Mount], task: PurePosixPath) -> None:
    """Check that no mount of a config is in another that can be written, nor is one of ours in such a one of a config.

    The engine makes the folder for the inner one as root, in other people's directories, too.

    Raises:
        RefusedTask: One is.
    """
    for target in map(PurePosixPath, asked):
        for other in map(PurePosixPath, found):
            around = min(target, other, key=lambda path: len(path.parts))
            apart = not (target.is_relative_to(around) and other.is_relative_to(around))
            if other in {target, task} or apart or found[str(around)]["ReadOnly"]:
                continue
            raise RefusedTask(f"bind mount on {target}: it is in the way of the one on {other}, which can be written")


def _volume(volume: WireMount) -> Mount:
    if not Path(volume.host_path).exists():
        raise SetupFailed(
            f"volume {volume.host_path}: every container of this agent has it, but it is not on this node"
        )
    return Mount(volume.container_path, volume.host_path, type="bind", read_only=volume.read_only)


def _target(wanted: WireMount, order: Order) -> str:
    path = PurePosixPath(wanted.container_path)
    if path.is_absolute():
        path = PurePosixPath("/", *path.parts[1:])  # two slashes at the beginning are another root to Python alone
    else:
        path = PurePosixPath(order.task.work) / path
    if ".." in path.parts or len(path.parts) < 2:
        raise RefusedTask(f"bind mount on {wanted.container_path!r}: must be a path below / without '..'")
    for kept in (
        PurePosixPath(PACKAGE),
        PurePosixPath(order.task.root),
        *map(PurePosixPath, _SYSTEM),
    ):
        inside_work = path.is_relative_to(order.task.work) and path != PurePosixPath(order.task.work)
        if path.is_relative_to(kept) and not inside_work:
            raise RefusedTask(f"bind mount on {path}: {kept} is the task's own")
    return str(path)


def _source(wanted: WireMount, allowance: Allowance) -> Path:
    """Return the real path of a mount's source, if it may be mounted.

    In a container the mode bits of the directories above do not protect it, so that it needs the operator's permission.
    The engine looks the path up again, as root: it must be one that users cannot change in between.
    """
    path = Path(wanted.host_path)
    if not path.is_absolute():
        raise RefusedTask(f"bind mount of {wanted.host_path!r}: a host path begins with /")
    real = path.resolve()
    if not any(real.is_relative_to(prefix) for prefix in allowance.mounts):
        may = ", ".join(str(prefix) for prefix in allowance.mounts)
        raise RefusedTask(
            f"bind mount of {wanted.host_path}: this agent allows {may or 'no bind mounts'}; its operator can allow "
            "more with --allow-mount DIRECTORY"
        )
    if wanted.propagation and wanted.propagation not in _PROPAGATION:
        raise RefusedTask(f"bind mount of {wanted.host_path}: {wanted.propagation[:40]!r} is no propagation")
    if wanted.propagation in _SHARED and not allowance.privileges:
        raise RefusedTask(
            f"bind mount of {wanted.host_path}: propagation {wanted.propagation} needs --allow-privileges"
        )
    if not real.exists():
        raise SetupFailed(f"bind mount of {wanted.host_path}: there is no such path on this node")
    loose = changeable(real)
    if loose is not None:
        raise RefusedTask(
            f"bind mount of {wanted.host_path}: other users than root may rename what is in {loose}, so that the path "
            f"could lead elsewhere by the time the engine follows it; mount {loose} itself, and use the part inside it"
        )
    return real


def changeable(path: Path) -> Path | None:
    """Return the first folder of a path whose entries others than root and this agent's user may exchange; None: none.

    Each step is looked at on the open folder that the last one led to, and no link is followed: one is itself a sign
    that somebody exchanges them.
    """
    trusted = {0, os.geteuid()}
    at, folder = os.open("/", os.O_PATH | os.O_DIRECTORY), Path("/")
    try:
        for part in path.parts[1:]:
            try:
                below = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=at)
            except OSError:
                return folder
            above, at = at, below
            try:
                holder, entry = os.fstat(above), os.fstat(at)
            finally:
                os.close(above)
            others = holder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            kept = holder.st_mode & stat.S_ISVTX and entry.st_uid in trusted
            if holder.st_uid not in trusted or (others and not kept) or stat.S_ISLNK(entry.st_mode):
                return folder
            folder /= part
    finally:
        os.close(at)
    return None


def _nano_cpus(cpus: float) -> int:
    """Return a CPU limit for the engine, capped at the node's CPUs: the engine refuses a higher one."""
    return int(min(cpus, os.cpu_count() or cpus) * 1e9)


def container_arguments(
    order: Order,
    spec: ContainerSpec,
    image: dict[str, Any],
    *,
    name: str,
    labels: dict[str, str],
    network: str,
    mounts: Sequence[Mount],
    package: Path,
    environment: dict[str, str],
    allowance: Allowance,
) -> dict[str, Any]:
    """Return the arguments of `containers.create`.

    Raises:
        RefusedTask: The task asks for privileges that the operator did not allow.
    """
    if (spec.add_capabilities or spec.devices) and not allowance.privileges:
        wanted = [*spec.add_capabilities, *(device.host_path for device in spec.devices)]
        raise RefusedTask(
            f"capabilities and devices ({', '.join(wanted)}): this agent allows none; its operator can allow them "
            "with --allow-privileges"
        )
    for capability in (*spec.add_capabilities, *spec.drop_capabilities):
        if not is_capability(capability):
            raise RefusedTask(f"{capability[:40]!r} is no capability: write for example SYS_PTRACE")
    identity, service = order.identity, order.service
    memory = spec.memory or allowance.memory
    gpus = [slot.uuid for slot in order.slots if slot.kind == "cuda" and slot.uuid]
    published = {f"{service.port}/tcp": (service.listen, service.port)} if service and network != "host" else {}
    return {
        "image": image["Id"],
        "entrypoint": ["python3", "-s", "-P", "-m", "detlab.launch.task", "--dir", str(order.task.root)],
        "command": [],
        "name": name,
        "user": f"{identity.uid}:{identity.gid}",
        "group_add": [str(group) for group in identity.groups],
        "environment": environment,
        "working_dir": "/",
        "labels": {**labels, ALLOCATION_LABEL: order.launch.allocation_id, RUN_LABEL: str(order.launch.run)},
        "network_mode": network,
        "ports": published,
        "mounts": [*mounts, Mount(f"{PACKAGE}/detlab", str(package), type="bind", read_only=True)],
        "shm_size": spec.shm_size or DEFAULT_SHM,
        **({"mem_limit": memory, "memswap_limit": memory} if memory else {}),
        **({"pids_limit": allowance.pids} if allowance.pids else {}),
        **({"nano_cpus": _nano_cpus(spec.cpus)} if spec.cpus else {}),
        "device_requests": [
            DeviceRequest(driver="nvidia", device_ids=gpus, capabilities=[["gpu", "compute", "utility"]])
        ]
        if gpus
        else [],
        "devices": [_device(device) for device in spec.devices],
        "cap_add": list(spec.add_capabilities),
        "cap_drop": list(spec.drop_capabilities),
        # An added capability reaches a user who is not root through a program's own, which this would forbid.
        "security_opt": [] if spec.add_capabilities else ["no-new-privileges"],
        "userns_mode": "host",
        "ipc_mode": "private",
        "init": False,
        "healthcheck": {"test": ["NONE"]},
        # What the launcher itself says, which is next to nothing; the task's output never comes here.
        "log_config": LogConfig(type="json-file", config={"max-size": "256k", "max-file": "1"}),
    }


def _device(asked: DeviceMount) -> dict[str, str]:
    """Return a device as the engine's API has it: a text of its parts would be parted at any colon of a path.

    Raises:
        RefusedTask: It is no path of a device.
    """
    for path in (asked.host_path, asked.container_path):
        if not PurePosixPath(path).is_absolute() or ".." in path.split("/"):
            raise RefusedTask(f"device {path[:200]!r}: must be an absolute path without '..'")
    return {
        "PathOnHost": asked.host_path,
        "PathInContainer": asked.container_path,
        "CgroupPermissions": _mode(asked.mode),
    }


def _mode(text: str) -> str:
    """Return a device's mode with its letters in the engine's order."""
    return "".join(letter for letter in "rwm" if letter in text) or "rwm"


def container_environment(
    order: Order,
    image: dict[str, Any],
    *,
    user: str,
    home: Path,
    network: str,
    ca_file: bool,
    trusted_uids: str = "",
) -> dict[str, str]:
    """Return the launcher's environment in addition to the image's. It contains nothing from the experiment.

    `trusted_uids` are those of the agent's own environment; they have a meaning only in the host's network.
    """
    theirs = dict(item.partition("=")[::2] for item in (image.get("Config") or {}).get("Env") or [])
    path = theirs.get("PYTHONPATH", "")
    env = {
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "TMPDIR": str(order.task.tmp),
        "LANG": theirs.get("LANG", "C.UTF-8"),
        "PYTHONPATH": f"{PACKAGE}:{path}" if path else PACKAGE,
        "NVIDIA_VISIBLE_DEVICES": ",".join(s.uuid for s in order.slots if s.kind == "cuda" and s.uuid) or "void",
    }
    if ca_file:
        env["SSL_CERT_FILE"] = CA_FILE
    if trusted_uids and network == "host":
        env[TRUSTED_UIDS] = trusted_uids
    listen = None if network == "host" else "0.0.0.0"  # noqa: S104  (of its own network; the engine publishes one port)
    if order.service is not None and network == "host":
        env["DET_SERVICE_SOCKET"] = str(order.task.root / LISTENING)
    return {**env, **order.environment(listen)}
