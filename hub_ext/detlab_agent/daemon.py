"""Assemble the agent and run it."""

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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import detlab
from detlab.launch.host.identity import UidRules, read_uids
from detlab.schemas import wire
from detlab.schemas.runtimes import SLURM
from detlab_agent import copied
from detlab_agent.capacity import usable_cpus, usable_memory
from detlab_agent.cloud_metadata import MetadataGuard
from detlab_agent.connection import Connector, run_until
from detlab_agent.enrolment import KeyRing, NotEnrolled
from detlab_agent.gpu_watch import GpuWatch
from detlab_agent.runtimes.bundles import BundleCache
from detlab_agent.runtimes.dispatch import NodeRuntime, RuntimeTable
from detlab_agent.runtimes.ports import HeldPorts
from detlab_agent.runtimes.preparation import TaskMaker
from detlab_agent.runtimes.registry import make_runtimes
from detlab_agent.runtimes.slurm.options import SlurmOptions
from detlab_agent.runtimes.tenancy import Homes, Tenancy, tenancy_elsewhere
from detlab_agent.settings import AgentError, AgentSettings
from detlab_agent.slots import discover_slots, load_nvml
from detlab_agent.tasks import TaskTable
from detlab_agent.undelivered import LeftoverShipper

_log = logging.getLogger(__name__)


def read_user_map(path: Path) -> dict[str, int]:
    """Read a `--user-map` file: a JSON object of hub user -> uid.

    Raises:
        AgentError: The file cannot be read, or is not such an object.
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


def _tenancy_of(settings: AgentSettings, made: Sequence[NodeRuntime], own: Tenancy) -> Tenancy:
    """Return whose tasks run by these runtimes, and under which uid.

    Jobs that all have this agent's account, or that of the other end of ssh, can only be one user's: they read what
    that account can.

    Raises:
        AgentError: Its runtimes differ in that.
    """
    if (
        any(runtime.name == SLURM for runtime in made)
        and not settings.of_runtimes.get(SLURM, SlurmOptions()).for_owners
    ):
        if own.uids is not None and len(made) > 1:
            raise AgentError("--slurm-as agent serves one user, and the other runtimes all: start an agent for each")
        return Tenancy(None, settings.serves_user or login_name())
    if made and all(runtime.tasks_are == "elsewhere" for runtime in made):
        return tenancy_elsewhere(settings.uid_range)
    return own


_LOCK = "agent.lock"


def _lock(directory: Path) -> int:
    """Make sure that this is the only agent of the directory; the lock ends with the process."""
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AgentError(f"another agent runs in {directory}; one directory serves one agent") from None
    return descriptor


async def run_agent(settings: AgentSettings) -> None:
    """Run the agent until SIGTERM or SIGINT; its tasks continue to run.

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
        mark = await asyncio.to_thread(copied.settle, directory, directory / _LOCK)
        await _serve(replace(settings, mark=mark), directory, stop)
    finally:
        os.close(lock)


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
    guard = MetadataGuard() if settings.task_metadata == "block" else None
    if guard is not None:
        await asyncio.to_thread(guard.open)
    made = await asyncio.to_thread(make_runtimes, maker, settings, directory, os.environ)
    tenancy = maker.tenancy = _tenancy_of(settings, made, tenancy)
    runtimes = RuntimeTable(maker, made) if guard is None else RuntimeTable(maker, made, guard.hold)
    table = TaskTable(runtimes, LeftoverShipper(settings.endpoints, keys.token).deliver)
    table.recover()

    own = slots if runtimes.queue() is None else []  # of a pool that a batch system places, only that has slots
    process = secrets.token_hex(8)
    cpus = usable_cpus() if settings.cpus is None else settings.cpus
    memory = usable_memory() if settings.memory is None else settings.memory

    def hello() -> wire.Hello:
        return wire.Hello(
            version=detlab.__version__,
            agent_id=settings.agent_id,
            process=process,
            serves_user=tenancy.serves,
            slots=[slot.model_copy(update={"allocation_id": table.holder(slot.id)}) for slot in own],
            tasks=table.listing(),
            runtimes=runtimes.names(),
            nodes=runtimes.nodes(),
            queue=runtimes.queue(),
            address=settings.address,
            pool=settings.pool,
            labels=settings.labels,
            max_zero_slot_tasks=settings.max_zero_slot_tasks,
            cpus=cpus or None,
            memory=memory or None,
            shares=True,
            asks_point=bool(made) and all(getattr(runtime, "asks_point", False) for runtime in made),
            uids={} if tenancy.uids is None else dict(tenancy.uids.given),
        )

    _log.info("agent %s offers %d slots of its own: %s", settings.agent_id, len(own), ", ".join(s.id for s in own))
    connector = Connector(
        settings.endpoints,
        keys,
        table,
        hello,
        queue=runtimes.queue,
        warm=runtimes.warm_code,
        gpus=GpuWatch.of_node(own),
    )
    await runtimes.begin(connector.introduce_again)
    guarding = asyncio.create_task(guard.keep(), name="metadata guard") if guard is not None else None
    try:
        await run_until(connector, stop)
    finally:
        if guarding is not None:
            guarding.cancel()
        await table.close()
        maker.ports.close()
        await runtimes.close()
    _log.info("agent %s stops; its tasks continue", settings.agent_id)
