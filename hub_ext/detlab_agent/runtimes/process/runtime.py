"""Tasks as process groups on this node, each under its user's own uid when the agent is root.

The agent makes a task's directory and gives it to the task's user in one step before the launcher starts; from then
on the agent only reads from it (through `taskfiles`) and removes it at the end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from detlab.launch.environment import base_environment, source_path
from detlab.launch.host import procfs
from detlab.launch.network import HOST, PRIVATE, NetworkPlan
from detlab.launch.python_program import KEPT, OPT_OUT, StartCold, read_program
from detlab.launch.taskdir import TaskDir
from detlab.launch.warm_wire import BEGUN, ForkRequest
from detlab.schemas.runtimes import PROCESS
from detlab.schemas.wire import Launch, NodeHello
from detlab_agent.runtimes.base import RefusedTask, Say, SetupFailed
from detlab_agent.runtimes.preparation import Order, TaskMaker, directories
from detlab_agent.runtimes.process.control_groups import NoGroups, TaskControlGroups, TaskGroups
from detlab_agent.runtimes.process.network import DEFAULT_SUBNETS, NoPrivateNetwork, TaskNetworks
from detlab_agent.runtimes.process.task import Launched, ProcessTask, noted_group
from detlab_agent.runtimes.process.warm_pool import WarmPool
from detlab_agent.runtimes.registry import RuntimeSetup
from detlab_agent.runtimes.taskfiles import open_owned_log
from detlab_agent.settings import AgentError, AgentSettings

_log = logging.getLogger(__name__)
_START_TIMEOUT = 60.0
WARM_NOTE = "warm_pool.json"
"""In the agent's directory: what the warm pool says about itself."""


@dataclass(frozen=True)
class _Place:
    """The resources that a task has to itself on this machine.

    Attributes:
        network: Plan of its network; None for the machine's.
        group: Its control group.
    """

    network: NetworkPlan | None
    group: TaskControlGroups


class ProcessRuntime:
    """Run tasks as processes; see `NodeRuntime`.

    Args:
        maker: Makes their directories.
        agent_env: The agent's own environment.
        warm: Forks launchers of plain Python programs; None: all start cold.
        networks: Gives each task a separate network; None: all use the machine's.
        groups: Gives each task a control group; None: no task has one.
    """

    name = PROCESS
    tasks_are: Literal["here"] = "here"
    reached = True
    asks_point = False

    def __init__(
        self,
        maker: TaskMaker,
        agent_env: Mapping[str, str],
        warm: WarmPool | None = None,
        networks: TaskNetworks | None = None,
        groups: TaskGroups | None = None,
    ) -> None:
        self._groups = groups
        self._maker = maker
        self._networks = networks
        self._warm = warm
        self._agent_env = agent_env
        if not procfs.adopt_orphans():
            _log.warning("not a subreaper: daemons of a task whose launcher is killed may outlive it")

    # --- start --------------------------------------------------------------------------------------------

    def nodes(self) -> Sequence[NodeHello]:
        """See `NodeRuntime.nodes`."""
        return ()

    def queue(self) -> None:
        """See `NodeRuntime.queue`."""

    def available(self) -> bool:
        """See `NodeRuntime.available`."""
        return True

    def warm_code(self) -> list[str]:
        """Return the digest of the code that the warm pool has loaded, if there is one."""
        code = "" if self._warm is None else self._warm.code()
        return [code] if code else []

    async def begin(self, on_change: Callable[[], None]) -> None:
        """See `NodeRuntime.begin`: start the warm pool."""
        if self._warm is not None:
            await asyncio.to_thread(self._warm.start)

    async def close(self) -> None:
        """See `NodeRuntime.close`."""
        if self._networks is not None:
            await asyncio.to_thread(self._networks.close)
        if self._groups is not None:
            self._groups.close()
        if self._warm is not None:
            await asyncio.to_thread(self._warm.close)

    async def ready(self, order: Order, say: Say) -> None:
        """See `NodeRuntime.ready`: only the code is needed, which the table fetches."""

    def make(self, order: Order) -> ProcessTask:
        """See `NodeRuntime.make`."""
        launch, service = order.launch, order.service
        running = ProcessTask(
            launch.allocation_id,
            launch.run,
            tuple(launch.slots),
            order.record,
            directory=order.task,
            owner=order.identity.uid,
            address=service.address if service else None,
            port=service.port if service else None,
            ports=self._maker.ports,
        )
        running.note()
        try:
            self._start(order, running)
        except (RefusedTask, SetupFailed, OSError):
            running.group.end()
            raise
        return running

    def _start(self, order: Order, running: ProcessTask) -> None:
        """Make the task's directory, and start its launcher there.

        Raises:
            RefusedTask: The launcher cannot become its user.
            SetupFailed: The bundle is unsafe, or the launcher cannot be started.
            OSError: The disk is full or failing.
        """
        self._maker.prepare(order)
        # Only now: an agent that starts removes groups that were empty for a minute, and code may take that long.
        running.group = self._group(order.launch)
        running.note()
        place = _Place(self._networks.plan(order.launch) if self._networks is not None else None, running.group)
        if not self._fork(order, running, place):
            child = self._spawn(order, place)
            _note(running, child)

    def _fork(self, order: Order, running: ProcessTask, place: _Place) -> bool:
        """Start the launcher from the warm pool; return False if it must be started cold.

        Raises:
            RefusedTask: The launcher cannot become its user.
        """
        if self._warm is None or not _may_be_warm(order.launch):
            return False
        log = open_owned_log(order.task.root, order.identity.uid)
        status_read, status_write = os.pipe()
        with os.fdopen(status_read, "rb") as status:
            try:
                held = self._warm.fork(self._request(order, place), log, status_write)
            finally:
                os.close(status_write)
                os.close(log)
            if held is None:
                return False
            try:
                _note(running, held.launcher)
            except OSError:
                held.drop()
                raise
            held.go()
            report = status.read()
        if report == BEGUN:
            return True
        held.launcher.wait()
        if report:
            raise RefusedTask(str(json.loads(report)["error"]))
        _log.warning("task %s starts cold: its forked launcher ended before it began", running.allocation_id)
        return False

    def _request(self, order: Order, place: _Place) -> ForkRequest:
        env = self._environment(order, place)
        root = os.geteuid() == 0
        identity = order.identity
        return ForkRequest(
            directory=str(order.task.root),
            env=env,
            command=_launcher_command(order.task),
            uid=identity.uid if root else None,
            gid=identity.gid if root else None,
            groups=identity.groups,
            reach=tuple(str(path) for path in _reach(order, env)),
            reach_read=tuple(_reach_read(env)),
            cgroups=tuple(map(str, place.group.paths)),
            network=place.network.encode() if place.network is not None else None,
        )

    def _spawn(self, order: Order, place: _Place) -> subprocess.Popen[bytes]:
        task = order.task
        env = self._environment(order, place)
        command = _launcher_command(task)
        if os.geteuid() != 0:
            return _popen(command, task, order.identity.uid, env, _inherited(order))
        return self._spawn_as(order, command, env, place)

    def _spawn_as(
        self, order: Order, command: list[str], env: dict[str, str], place: _Place
    ) -> subprocess.Popen[bytes]:
        """Start the launcher as its user; wait until it has become that user or failed to."""
        identity, task = order.identity, order.task
        status_read, status_write = os.pipe()
        become = [sys.executable, "-s", "-P", "-m", "detlab.launch.become"]
        become += ["--uid", str(identity.uid), "--gid", str(identity.gid), "--status-fd", str(status_write)]
        for group in identity.groups:
            become += ["--group", str(group)]
        for name in _reach_read(env):
            become += ["--reach", name]
        for path in _reach(order, env):
            become += ["--reach-rw", str(path)]
        for path in place.group.paths:
            become += ["--cgroup", str(path)]
        if place.network is not None:
            become += ["--network", place.network.encode()]
        try:
            child = _popen([*become, "--", *command], task, identity.uid, env, (status_write, *_inherited(order)))
        finally:
            os.close(status_write)
        with os.fdopen(status_read, "rb") as status:
            report = status.read()
        if report:
            child.wait(_START_TIMEOUT)
            raise RefusedTask(str(json.loads(report)["error"]))
        return child

    def _group(self, launch: Launch) -> TaskControlGroups:
        """Make the task's control group.

        Raises:
            SetupFailed: The kernel refuses.
        """
        if self._groups is None:
            return TaskControlGroups()
        asked = (launch.info.config.get("resources") or {}).get("memory")
        try:
            return self._groups.make(launch.allocation_id, asked if isinstance(asked, int) else None)
        except (OSError, NoGroups) as error:
            raise SetupFailed(f"the task's control group: {error}") from error

    def _environment(self, order: Order, place: _Place) -> dict[str, str]:
        """Return the launcher's environment. It contains nothing from the experiment, since root reads it first."""
        identity, task = order.identity, order.task
        if order.launch.user_home:
            home = self._maker.homes.home_of(identity)
        else:
            home = identity.home if identity.home is not None and identity.home.is_dir() else task.home
        env = base_environment(
            self._agent_env,
            bin_dir=Path(sys.executable).parent,
            home=home,
            user=identity.name,
            tmp=task.tmp,
        )
        listening = order.service.inherited() if order.service is not None else {}
        kind = {"DET_NETWORK": HOST if place.network is None else PRIVATE}
        warm = {} if self._warm is None else {KEPT: PROCESS}
        return {**env, **source_path(self._agent_env), **order.environment(), **listening, **kind, **warm}

    # --- find again ---------------------------------------------------------------------------------------

    def recover(self, record: Path, noted: dict[str, Any]) -> ProcessTask | None:
        """See `NodeRuntime.recover`."""
        task = ProcessTask(**ProcessTask.noted(record, noted), ports=self._maker.ports, group=noted_group(noted))
        if task.pid is None:
            # The agent died between the start and the note.
            pid, started = _find_launcher(task.directory, task.owner)
            task = replace(task, pid=pid, started=started)
        elif _is_anothers(task):
            task = replace(task, pid=None, started=None, group=TaskControlGroups())
        if (task.pid is None or task.is_over()) and not task.directory.launcher.exists():
            return None  # it never began; the master will ask again
        return task

    def sweep(self, kept: set[str]) -> None:
        """See `NodeRuntime.sweep`: what a process leaves behind is in its control group, and behind its link."""
        if self._groups is not None:
            self._groups.sweep(kept)
        if self._networks is not None:
            self._networks.sweep(kept)


def make(setup: RuntimeSetup) -> ProcessRuntime:
    """Make the runtime of an agent; see `registry.Factory`."""
    settings = setup.settings
    return ProcessRuntime(
        setup.maker,
        setup.environ,
        WarmPool(setup.environ, note=setup.directory / WARM_NOTE) if settings.warm_pool else None,
        _networks(settings, setup.directory),
        _groups(settings, setup.directory),
    )


def _groups(settings: AgentSettings, directory: Path) -> TaskGroups | None:
    """Return what makes tasks' control groups; None if they have none."""
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
    """Return what makes tasks' private networks; None if they use the machine's.

    Raises:
        AgentError: The operator requires them, and they are not available.
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
            "tasks share this machine's network, where each can connect to the loopback ports of all others: %s. "
            "--task-network host says that this is meant",
            error,
        )
        return None
    return networks


def _may_be_warm(launch: Launch) -> bool:
    """Whether a task could start in a forked interpreter, judging by its launch; the launcher checks more closely."""
    try:
        if launch.info.task_type != "TRIAL":
            raise StartCold(f"it is a {launch.info.task_type}")
        if launch.environment.get(OPT_OUT) == "0":
            raise StartCold(f"{OPT_OUT}=0")
        read_program(launch.entrypoint)
    except StartCold as reason:
        _log.debug("task %s starts cold: %s", launch.allocation_id, reason)
        return False
    return True


def _note(running: ProcessTask, child: Launched) -> None:
    running.child, running.pid, running.started = child, child.pid, procfs.start_time(child.pid)
    running.note()


def _inherited(order: Order) -> tuple[int, ...]:
    """Return the descriptors that the launcher inherits: the socket of its service."""
    service = order.service
    return () if service is None or service.descriptor is None else (service.descriptor,)


def _launcher_command(task: TaskDir) -> list[str]:
    return [sys.executable, "-s", "-P", "-m", "detlab.launch.task", "--dir", str(task.root)]


def _reach(order: Order, env: Mapping[str, str]) -> list[Path]:
    """Return the paths that the task's user must be able to reach and write to."""
    homes = [Path(env["HOME"])] if order.launch.user_home else []
    return [order.task.root, *homes, *directories(order.launch.reach)]


def _reach_read(env: Mapping[str, str]) -> list[str]:
    return [env[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in env]


def _find_launcher(task: TaskDir, owner: int) -> tuple[int | None, int | None]:
    """Return pid and start time of the task's launcher, by its command, its directory and its user."""
    for process in procfs.task_processes(task.root, None, None):
        if _is_launcher(process.pid, task, owner):
            return process.pid, process.start_time
    return None, None


def _is_anothers(task: ProcessTask) -> bool:
    """Whether a noted launcher is that of another folder, of which ours is a copy (`cp -r`): it is not ours to end."""
    if task.pid is None or not procfs.is_alive(task.pid, task.started):
        return False
    there = procfs.read_environment(task.pid).get("DET_TASK_DIR") or str(task.directory.root)
    try:
        return not Path(there).samefile(task.directory.root)
    except OSError:  # of a folder that was renamed
        return False


def _is_launcher(pid: int, task: TaskDir, owner: int) -> bool:
    return (
        "detlab.launch.task" in procfs.read_command(pid)
        and procfs.read_environment(pid).get("DET_TASK_DIR") == str(task.root)
        and procfs.real_uid(pid) == owner
    )


def _popen(
    command: list[str], task: TaskDir, owner: int, env: dict[str, str], descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a launcher in a new session: it must outlive the agent."""
    # The directory is the user's already, whose other tasks may have put anything in the place of the log.
    log = open_owned_log(task.root, owner)
    try:
        return subprocess.Popen(
            command,
            cwd="/",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=descriptors,
            umask=0o022,
        )
    except OSError as error:
        raise SetupFailed(f"cannot start the launcher: {error}") from error
    finally:
        os.close(log)
