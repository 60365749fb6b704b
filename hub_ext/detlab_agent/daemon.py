"""Put the agent together and run it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import pwd
import secrets
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import detlab
from detlab.launch.host.identity import ACCEPTED_RANGE, UidRules, read_uids
from detlab.schemas import wire
from detlab_agent.capacity import usable_cpus, usable_memory
from detlab_agent.connection import Connector, run_until
from detlab_agent.endpoints import Endpoints
from detlab_agent.enrolment import KeyRing, NotEnrolled
from detlab_agent.runtimes.bundles import BundleCache
from detlab_agent.runtimes.dispatch import NodeRuntime, RuntimeTable
from detlab_agent.runtimes.ports import HeldPorts
from detlab_agent.runtimes.preparation import TaskMaker
from detlab_agent.runtimes.process.control_groups import DEFAULT_PIDS, NoGroups, TaskGroups
from detlab_agent.runtimes.process.network import DEFAULT_SUBNETS, NoPrivateNetwork, TaskNetworks
from detlab_agent.runtimes.process.runtime import ProcessRuntime
from detlab_agent.runtimes.process.warm_pool import WarmPool
from detlab_agent.runtimes.tenancy import Homes, Tenancy
from detlab_agent.slots import discover_slots, load_nvml
from detlab_agent.tasks import TaskTable
from detlab_agent.undelivered import LeftoverShipper

if TYPE_CHECKING:
    from detlab_agent.runtimes.docker.runtime import DockerRuntime

_log = logging.getLogger(__name__)


class AgentError(Exception):
    """The agent cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class AgentSettings:
    """What the command line says.

    Attributes:
        endpoints: The master.
        directory: State of the agent, made if missing.
        agent_id: Stable name of this agent.
        slots: CPU slots, or the most GPUs to offer; None for what there is.
        pool: Resource pool that it belongs to.
        labels: For tasks that ask for some.
        max_zero_slot_tasks: Maximum number of tasks without slots at a time.
        cpus: CPUs that tasks may ask for together; None for what there is, 0 for any number.
        memory: Bytes that they may ask for together; None and 0 likewise.
        enrolment_token_file: For the first connection.
        users_file: hub user -> uid, as a root agent of an earlier version kept it.
        uid_range: uids that a root agent accepts of the master.
        user_map: hub user -> uid that the master must agree with.
        serves_user: The only user of an agent that is not root.
        runtimes: `process`, `docker`; empty for processes, and containers where a root agent finds an engine.
        docker_host: Address of the engine; empty for DOCKER_HOST, or its usual socket.
        allow_mounts: Host directories whose parts containers may be given.
        allow_privileges: Whether containers may be given capabilities and devices.
        volumes: What every container has, each as `HOST[:CONTAINER][:ro|rw]`.
        address: Where ports of tasks are reached from the Hub's proxy.
        service_ports: First and last port that services may use; None for any.
        homes: Homes of users who have none; None for `homes` in the directory.
        warm_pool: Whether trials are forked from a process that has imported torch.
        task_network: Whether each task has a network of its own; auto: where that works.
        task_subnet: Addresses for these networks; None for some that are free.
        task_ports: Ports of this machine's loopback that all tasks reach.
        task_memory: Bytes that a task may have which does not ask for some; None for any.
        task_pids: Processes and threads that a task may have; 0 for any number.
    """

    endpoints: Endpoints
    directory: Path
    agent_id: str
    slots: int | None = None
    pool: str = "default"
    labels: dict[str, str] = field(default_factory=dict)
    max_zero_slot_tasks: int = 100
    cpus: float | None = None
    memory: int | None = None
    enrolment_token_file: Path | None = None
    users_file: Path | None = None
    uid_range: tuple[int, int] = ACCEPTED_RANGE
    user_map: dict[str, int] | None = None
    serves_user: str | None = None
    runtimes: tuple[str, ...] = ()
    docker_host: str = ""
    allow_mounts: tuple[Path, ...] = ()
    allow_privileges: bool = False
    volumes: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    service_ports: tuple[int, int] | None = None
    homes: Path | None = None
    warm_pool: bool = False
    task_network: Literal["private", "host", "auto"] = "auto"
    task_subnet: str | None = None
    task_ports: tuple[int, ...] = ()
    task_memory: int | None = None
    task_pids: int = DEFAULT_PIDS


def read_user_map(path: Path) -> dict[str, int]:
    """Read a `--user-map` file: a JSON object of hub user -> uid.

    Raises:
        AgentError: It is not that.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise AgentError(f"user map {path}: {error}") from error
    if not isinstance(value, dict) or not all(type(uid) is int and uid > 0 for uid in value.values()):
        raise AgentError(f'user map {path}: must be a JSON object such as {{"alice": 1005}}, without uid 0')
    return value


def login_name() -> str:
    """Return the name of the user that this process runs as."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def default_agent_id() -> str:
    """Return this machine's name."""
    return socket.gethostname()


def _tenancy(settings: AgentSettings) -> Tenancy:
    if os.geteuid() == 0:
        given = read_uids(settings.users_file or settings.directory / "users.json")
        return Tenancy(UidRules(settings.uid_range, {**given, **(settings.user_map or {})}), None)
    return Tenancy(None, settings.serves_user or login_name())


def _lock(directory: Path) -> int:
    """Make sure that this is the only agent of the directory; the lock goes with the process."""
    descriptor = os.open(directory / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AgentError(f"another agent runs in {directory}; one directory serves one agent") from None
    return descriptor


async def run_agent(settings: AgentSettings) -> None:
    """Run the agent until SIGTERM or SIGINT; its tasks run on.

    Raises:
        AgentError: Another agent runs in the same directory.
    """
    loop = asyncio.get_running_loop()
    # Waiting for processes and deliveries takes a thread each, however few cores there are.
    loop.set_default_executor(ThreadPoolExecutor(64, thread_name_prefix="agent"))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    directory = settings.directory.absolute()
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    lock = _lock(directory)
    try:
        await _serve(settings, directory, stop)
    finally:
        os.close(lock)


def _docker(settings: AgentSettings, maker: TaskMaker, directory: Path) -> DockerRuntime | None:
    """Return the docker runtime if it was asked for, or if this agent is root and nothing else was said.

    Raises:
        AgentError: It was asked for, and the library that speaks to the engine is not installed; a volume is none.
    """
    if "docker" not in settings.runtimes and (settings.runtimes or os.geteuid() != 0):
        return None
    try:
        from detlab_agent.runtimes.docker.container import Allowance, parse_volume
        from detlab_agent.runtimes.docker.engine import DEFAULT_URL
        from detlab_agent.runtimes.docker.runtime import DockerRuntime
    except ImportError as error:
        if "docker" in settings.runtimes:
            raise AgentError(f"{error}; containers need the extra: pip install 'detlab[agent]'") from error
        return None
    try:
        volumes = [parse_volume(text) for text in settings.volumes]
    except ValueError as error:
        raise AgentError(str(error)) from error
    runtime = DockerRuntime(
        maker,
        settings.docker_host or os.environ.get("DOCKER_HOST") or DEFAULT_URL,
        settings.agent_id,
        Allowance(
            settings.allow_mounts,
            settings.allow_privileges,
            volumes,
            settings.task_memory,
            settings.task_pids or None,
        ),
        directory / "package",
        os.environ,
    )
    runtime.look()
    return runtime


def _runtimes(
    settings: AgentSettings,
    maker: TaskMaker,
    docker: DockerRuntime | None,
    warm: WarmPool | None,
    places: tuple[TaskNetworks | None, TaskGroups | None],
) -> list[NodeRuntime]:
    processes = not settings.runtimes or "process" in settings.runtimes
    ours = [ProcessRuntime(maker, os.environ, warm, *places)] if processes else []
    return [*ours, *([docker] if docker is not None else [])]


def _groups(settings: AgentSettings, directory: Path) -> TaskGroups | None:
    """Return what gives tasks control groups; None where they have none."""
    if os.geteuid() != 0:
        return None
    groups = TaskGroups(directory, settings.task_memory, settings.task_pids or None)
    try:
        groups.open()
    except NoGroups as error:
        _log.warning("tasks have no limits of memory and processes: no control groups here (%s)", error)
        return None
    return groups


def _networks(settings: AgentSettings, directory: Path) -> TaskNetworks | None:
    """Return what gives tasks networks of their own; None where they have the machine's.

    Raises:
        AgentError: The operator wants them, and they cannot be had.
    """
    if settings.task_network == "host" or (settings.task_network == "auto" and os.geteuid() != 0):
        return None
    if os.geteuid() != 0:
        raise AgentError("--task-network private: only an agent that is root can give tasks networks of their own")
    subnets = DEFAULT_SUBNETS if settings.task_subnet is None else (settings.task_subnet,)
    networks = TaskNetworks(directory, subnets, settings.task_ports, settings.endpoints.base)
    try:
        networks.open()
    except NoPrivateNetwork as error:
        if settings.task_network == "private":
            raise AgentError(f"--task-network private: {error}") from error
        _log.warning(
            "tasks share this machine's network, and each can connect to the loopback ports of all others: %s. "
            "--task-network host accepts that",
            error,
        )
        return None
    return networks


async def _serve(settings: AgentSettings, directory: Path, stop: asyncio.Event) -> None:
    slots = discover_slots(load_nvml(), os.environ, settings.slots)
    tenancy = _tenancy(settings)
    keys = KeyRing(directory / "key.json", settings.agent_id, settings.endpoints, settings.enrolment_token_file)
    if settings.enrolment_token_file is None:
        try:
            keys.token()
        except NotEnrolled as error:
            raise AgentError(f"{error}; give --enrolment-token-file for the first connection") from error
    bundles = BundleCache(directory / "bundles", settings.endpoints, keys.token)
    maker = TaskMaker(
        directory / "tasks",
        slots,
        tenancy,
        bundles,
        Homes((settings.homes or directory / "homes").absolute()),
        settings.address,
        HeldPorts(settings.service_ports),
        settings.endpoints,
    )
    docker = await asyncio.to_thread(_docker, settings, maker, directory)
    warm = WarmPool(os.environ) if settings.warm_pool else None
    networks = await asyncio.to_thread(_networks, settings, directory)
    groups = _groups(settings, directory)
    runtimes = RuntimeTable(maker, _runtimes(settings, maker, docker, warm, (networks, groups)))
    table = TaskTable(runtimes, LeftoverShipper(settings.endpoints, keys.token).deliver)
    table.recover()
    if warm is not None:
        await asyncio.to_thread(warm.start)

    process = secrets.token_hex(8)
    cpus = usable_cpus() if settings.cpus is None else settings.cpus
    memory = usable_memory() if settings.memory is None else settings.memory

    def hello() -> wire.Hello:
        return wire.Hello(
            version=detlab.__version__,
            agent_id=settings.agent_id,
            process=process,
            serves_user=tenancy.serves,
            slots=[slot.model_copy(update={"allocation_id": table.holder(slot.id)}) for slot in slots],
            tasks=table.listing(),
            runtimes=runtimes.names(),
            address=settings.address,
            pool=settings.pool,
            labels=settings.labels,
            max_zero_slot_tasks=settings.max_zero_slot_tasks,
            cpus=cpus or None,
            memory=memory or None,
            shares=True,
            uids={} if tenancy.uids is None else dict(tenancy.uids.given),
        )

    _log.info("agent %s offers %d slots: %s", settings.agent_id, len(slots), ", ".join(s.id for s in slots))
    connector = Connector(settings.endpoints, keys, table, hello)
    if docker is not None:
        docker.watch(connector.introduce_again)
    try:
        await run_until(connector, stop)
    finally:
        await table.close()
        maker.ports.close()
        if networks is not None:
            await asyncio.to_thread(networks.close)
        if groups is not None:
            groups.close()
        if warm is not None:
            await asyncio.to_thread(warm.close)
        if docker is not None:
            await asyncio.to_thread(docker.engine.close)
    _log.info("agent %s stops; its tasks continue", settings.agent_id)
