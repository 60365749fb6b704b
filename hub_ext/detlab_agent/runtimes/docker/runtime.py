"""Tasks as containers of the node's Docker engine, each under its user's own uid, with the launcher as first process.

The engine is used as a person could use it: containers are found again by their labels, and their state is read back
from the engine. While it is away nothing is started, and running tasks are waited for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import docker

import detlab
from detlab.launch.host import procfs
from detlab.launch.python_program import KEPT
from detlab.loopback import VARIABLE as TRUSTED_UIDS
from detlab.schemas.runtimes import DOCKER
from detlab.schemas.wire import ContainerSpec, NodeHello
from detlab_agent.runtimes.base import RefusedTask, Say, SetupFailed, Stage
from detlab_agent.runtimes.docker.accounts import ImageAccounts, forget_names, name_user, sweep_names, write_names
from detlab_agent.runtimes.docker.container import (
    CA_FILE,
    LISTENING,
    Allowance,
    check_image,
    choose_network,
    container_arguments,
    container_environment,
    mounts_for,
    parse_volume,
)
from detlab_agent.runtimes.docker.engine import (
    AGENT_LABEL,
    DEFAULT_URL,
    PLACE_LABEL,
    Engine,
    EngineAway,
    EngineRefused,
    Gone,
)
from detlab_agent.runtimes.docker.images import find_image, pull_image
from detlab_agent.runtimes.docker.task import DockerTask, noted_fields
from detlab_agent.runtimes.preparation import Order, TaskMaker
from detlab_agent.runtimes.registry import RuntimeSetup
from detlab_agent.settings import AgentError

_log = logging.getLogger(__name__)
_OURS_SECONDS = 1.0
"""Seconds that the engine may take to start our program as a container's first process."""


@dataclass(frozen=True)
class _Plan:
    """The settings of a container before it is made."""

    spec: ContainerSpec
    image: dict[str, Any]
    network: str
    name: str


class DockerRuntime:
    """Run tasks as containers; see `NodeRuntime`.

    Args:
        maker: Makes their directories.
        url: Address of the engine.
        agent_id: Name of this agent, as its containers are marked.
        allowance: What containers may have.
        package: Parent directory of the copies of detlab for containers.
        agent_env: The agent's own environment.
        warm_pool: Whether the agent keeps a warm pool, which serves no containers.
    """

    name = DOCKER
    tasks_are: Literal["here"] = "here"
    reached = True
    asks_point = False

    def __init__(
        self,
        maker: TaskMaker,
        url: str,
        agent_id: str,
        allowance: Allowance,
        package: Path,
        agent_env: Mapping[str, str],
        warm_pool: bool = False,
    ) -> None:
        self._told = {KEPT: DOCKER} if warm_pool else {}
        self._maker = maker
        self._allowance = allowance
        self._package = package
        self._agent_env = agent_env
        # Two agents of one name may share an engine (two clusters on one machine): the directory tells them apart.
        self.engine = Engine(url, {AGENT_LABEL: agent_id, PLACE_LABEL: str(maker.directory)})
        self._accounts = ImageAccounts(self.engine)
        self._on_change: Callable[[], None] = lambda: None

    async def begin(self, on_change: Callable[[], None]) -> None:
        """See `NodeRuntime.begin`: follow the engine, which comes and goes."""
        self._on_change = on_change
        self.engine.watch(asyncio.get_running_loop(), self._changed)

    async def close(self) -> None:
        """See `NodeRuntime.close`."""
        await asyncio.to_thread(self.engine.close)

    def _changed(self) -> None:
        self._on_change()
        if self.engine.up:  # what could not be removed while it was away
            self._sweeping = asyncio.get_running_loop().run_in_executor(None, self.sweep, None)

    def nodes(self) -> Sequence[NodeHello]:
        """See `NodeRuntime.nodes`."""
        return ()

    def queue(self) -> None:
        """See `NodeRuntime.queue`."""

    def available(self) -> bool:
        """See `NodeRuntime.available`."""
        return self.engine.up

    def look(self) -> None:
        """Find out whether the engine answers; does not raise."""
        try:
            self.engine.ask(lambda client: client.ping())
        except (EngineAway, EngineRefused, Gone) as error:
            _log.info("no containers for now: %s", error)
        else:
            self.engine.up = True

    # --- start --------------------------------------------------------------------------------------------

    async def ready(self, order: Order, say: Say) -> None:
        """See `NodeRuntime.ready`: pull the image if it is missing."""
        spec = _spec(order)
        check_image(spec.image)
        choose_network(spec, order.launch.info.master_url)
        mounts_for(order, spec, self._allowance, None)  # what is not allowed is said before a long pull
        loop = asyncio.get_running_loop()
        wanted = [True]

        def tell(stage: Stage, message: str) -> None:
            loop.call_soon_threadsafe(say, stage, message)

        try:
            await asyncio.to_thread(self._get_image, spec, tell, wanted)
        except EngineAway as error:
            raise RefusedTask(str(error)) from error
        finally:
            wanted.clear()

    def _get_image(self, spec: ContainerSpec, say: Say, wanted: list[bool]) -> None:
        if not spec.force_pull and find_image(self.engine, spec.image) is not None:
            return
        pull_image(self.engine, spec, say, wanted)

    def make(self, order: Order) -> DockerTask:
        """See `NodeRuntime.make`."""
        try:
            return self._make(order)
        except EngineAway as error:
            raise RefusedTask(str(error)) from error

    def _make(self, order: Order) -> DockerTask:
        plan = self._plan(order)
        service = order.service
        running = DockerTask(
            order.launch.allocation_id,
            order.launch.run,
            tuple(order.launch.slots),
            order.record,
            directory=order.task,
            owner=order.identity.uid,
            address=service.address if service else None,
            port=service.port if service else None,
            engine=self.engine,
            container=plan.name,
            memory=plan.spec.memory or self._allowance.memory,
            ports=self._maker.ports,
        )
        running.note()
        self._maker.prepare(order)
        try:
            self._create(order, plan)
            self._hand_over_port(order, plan)
            self._start(order, plan)
        except (RefusedTask, SetupFailed, EngineAway, OSError):
            self._discard(plan.name)
            forget_names(order.record)
            raise
        running.pid, running.started = self._process(order, plan.name)
        running.note()
        return running

    def _plan(self, order: Order) -> _Plan:
        spec = _spec(order)
        image = find_image(self.engine, spec.image)
        if image is None:
            raise SetupFailed(f"image {spec.image} was removed from this node before the task could start")
        network = choose_network(spec, order.launch.info.master_url)
        rank = order.launch.info.container_rank  # two nodes of an attempt may be agents of one machine, and one engine
        name = f"detlab-{order.launch.allocation_id}" + (f"-node{rank}" if rank else "")
        return _Plan(spec, image, network, name)

    def _create(self, order: Order, plan: _Plan) -> None:
        """Make the container.

        Raises:
            RefusedTask: It requests more than it may have.
            SetupFailed: The engine refuses.
            EngineAway: It does not answer.
        """
        own_home = self._maker.homes.home_of(order.identity) if order.launch.user_home else None
        home = own_home or order.task.home
        mounts = mounts_for(order, plan.spec, self._allowance, own_home)
        targets = {str(mount["Target"]) for mount in mounts}
        naming = name_user(self._accounts.of(plan.image["Id"]), order.identity, home, targets)
        mounts += write_names(order.record, naming)
        ca_file = Path(self._agent_env.get("SSL_CERT_FILE", ""))
        if ca_file.is_file():
            mounts.append(docker.types.Mount(CA_FILE, str(ca_file.resolve()), type="bind", read_only=True))
        arguments = container_arguments(
            order,
            plan.spec,
            plan.image,
            name=plan.name,
            labels=self.engine.labels,
            network=plan.network,
            mounts=mounts,
            package=container_package(self._package),
            environment=container_environment(
                order,
                plan.image,
                user=naming.user,
                home=home,
                network=plan.network,
                ca_file=ca_file.is_file(),
                trusted_uids=self._agent_env.get(TRUSTED_UIDS, ""),
            )
            | self._told,
            allowance=self._allowance,
        )
        self._discard(plan.name)  # of an attempt of an earlier life that never began
        try:
            self.engine.ask(lambda client: client.containers.create(**arguments))
        except (EngineRefused, Gone) as error:
            raise SetupFailed(f"container of image {plan.spec.image}: {error}") from error

    def _hand_over_port(self, order: Order, plan: _Plan) -> None:
        """Give the container its port: the listening socket itself or, on a separate network, through the engine."""
        if order.service is not None and plan.network == "host":
            self._maker.ports.offer(order.record, order.task.root / LISTENING, order.identity.uid)
        else:
            self._maker.ports.hand_back(order.record)

    def _start(self, order: Order, plan: _Plan) -> None:
        try:
            self.engine.ask(lambda client: client.api.start(plan.name))
        except (EngineRefused, Gone) as error:
            raise SetupFailed(_start_trouble(order, plan.spec, self.engine.url, str(error))) from error

    def _process(self, order: Order, container: str) -> tuple[int | None, int | None]:
        """Return the launcher's pid and start time; None for both if this node does not see it (engine elsewhere)."""
        try:
            pid = int(self.engine.inspect(container)["State"]["Pid"])
        except (EngineAway, EngineRefused, Gone):
            return None, None
        # The engine's own program is in the process until it puts ours there: for that moment it shows no task.
        until = time.monotonic() + _OURS_SECONDS
        while pid > 0 and (started := procfs.start_time(pid)) is not None:
            mark = procfs.read_environment(pid).get("DET_TASK_DIR")
            if mark == str(order.task.root):
                return pid, started
            if mark is not None or time.monotonic() > until:
                break
            time.sleep(0.01)
        return None, None

    def _discard(self, container: str) -> None:
        """Remove one of our containers."""
        try:
            labels = self.engine.inspect(container)["Config"]["Labels"] or {}
            if all(labels.get(name) == value for name, value in self.engine.labels.items()):
                self.engine.remove(container)
        except Gone:
            return
        except (EngineAway, EngineRefused) as error:
            _log.warning("container %s stays: %s", container, error)

    # --- find again ---------------------------------------------------------------------------------------

    def recover(self, record: Path, noted: dict[str, Any]) -> DockerTask | None:
        """See `NodeRuntime.recover`. While the engine is away, all recorded tasks are waited for."""
        task = DockerTask(
            **DockerTask.noted(record, noted), **noted_fields(noted), engine=self.engine, ports=self._maker.ports
        )
        try:
            found = self.engine.inspect(task.container)
        except (EngineAway, EngineRefused):
            return task
        except Gone:
            found = {}
        status = found["State"]["Status"] if found else "gone"
        if found and _is_anothers((found["Config"]["Labels"] or {}).get(PLACE_LABEL), self._maker.directory):
            _log.warning("container %s is another agent's, of whose directory this is a copy", task.container)
            return None
        if status == "created" or (status == "gone" and not task.directory.launcher.exists()):
            return None  # it never started; the master will ask again
        if task.pid is None and status == "running":
            task.pid, task.started = self._pid_again(task)
            task.note()
        return task

    def _pid_again(self, task: DockerTask) -> tuple[int | None, int | None]:
        pid = int(self.engine.inspect(task.container)["State"]["Pid"])
        return (pid, procfs.start_time(pid)) if pid > 0 else (None, None)

    def sweep(self, kept: set[str] | None) -> None:
        """See `NodeRuntime.sweep`; None keeps everything with a record."""

        def keeps(allocation: str) -> bool:
            return (self._maker.directory / f"{allocation}.json").exists() if kept is None else allocation in kept

        sweep_names(self._maker.directory, keeps)
        try:
            for container, allocation in self.engine.ours().items():
                if not keeps(allocation):
                    self._remove_left(container, allocation)
        except (EngineAway, EngineRefused) as error:
            _log.info("containers of earlier lives are looked for when the engine is there: %s", error)

    def _remove_left(self, container: str, allocation: str) -> None:
        try:
            self.engine.remove(container)
        except EngineRefused as error:
            _log.warning("container of %s is left from an earlier life and stays: %s", allocation, error)
        else:
            _log.info("container of %s is left from an earlier life: removed", allocation)


def make(setup: RuntimeSetup) -> DockerRuntime | None:
    """Make the runtime of an agent, see `registry.Factory`; None if it is not required and the agent is not root.

    Raises:
        AgentError: A volume has the wrong form.
    """
    if not setup.required and os.geteuid() != 0:
        return None
    settings = setup.settings
    try:
        volumes = [parse_volume(text) for text in settings.volumes]
    except ValueError as error:
        raise AgentError(str(error)) from error
    runtime = DockerRuntime(
        setup.maker,
        settings.docker_host or setup.environ.get("DOCKER_HOST") or DEFAULT_URL,
        settings.marked_id,
        Allowance(
            mounts=[path.resolve() for path in settings.allow_mounts],
            privileges=settings.allow_privileges,
            volumes=volumes,
            memory=settings.task_memory,
            pids=settings.task_pids or None,
        ),
        setup.directory / "package",
        setup.environ,
        settings.warm_pool,
    )
    runtime.look()
    return runtime


def _is_anothers(place: str | None, here: Path) -> bool:
    """Whether a container that a record names is of an agent in another directory, of which ours is a copy (`cp -a`).

    Args:
        place: The directory that its labels name.
        here: Ours.
    """
    try:
        return place is not None and not Path(place).samefile(here)
    except OSError:  # of a directory that was renamed
        return False


def _spec(order: Order) -> ContainerSpec:
    spec = order.launch.container
    if spec is None or not spec.image:
        raise SetupFailed("a task in a container needs an image: set environment.image, or one for the pool")
    return spec


def _start_trouble(order: Order, spec: ContainerSpec, engine: str, trouble: str) -> str:
    """Return the message about a container that the engine could not start."""
    service = order.service
    if service is not None and ("already allocated" in trouble or "address already in use" in trouble):
        return (
            f"port {service.port} of {service.address} was taken by another program before the task could use it: "
            f"{trouble}"
        )
    if "python3" in trouble and "not found" in trouble:
        return f"image {spec.image} has no python3 on its PATH; detlab needs Python 3.11 or newer in it: {trouble}"
    gpus = [slot.id for slot in order.slots if slot.kind == "cuda"]
    if gpus and ("device driver" in trouble or "nvidia" in trouble):
        return (
            f"the engine at {engine} of agent {order.launch.info.agent_id} cannot give {', '.join(gpus)} to a "
            f"container ({trouble}): NVIDIA's toolkit is missing there or does not work. Its operator installs "
            "nvidia-container-toolkit on this node and then runs: nvidia-ctk runtime configure --runtime=docker && "
            "systemctl restart docker. Until then runtime: process has the GPUs"
        )
    return f"container of image {spec.image}: {trouble}"


_lock = threading.Lock()


def container_package(directory: Path) -> Path:
    """Return a read-only copy of the running detlab package below `directory`; make it if there is none.

    Raises:
        OSError: The disk is full or failing.
    """
    source = Path(detlab.__file__).resolve().parent
    with _lock:  # tasks are started in threads, several at once
        found = directory / f"{detlab.__version__}-{_digest(source)}"
        if not found.is_dir():
            _copy(source, found)
    return found


def _copy(source: Path, target: Path) -> None:
    partial = target.with_name(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a life that ended meanwhile
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    # With what is compiled already: inside it is read-only. Files that a compiler is just writing are left out.
    shutil.copytree(source, partial, ignore=shutil.ignore_patterns("*.pyc.*"))
    for path in (partial, *partial.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    partial.rename(target)


def _digest(source: Path) -> str:
    """Return a digest that changes when a module does."""
    checksum = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        info = path.stat()
        checksum.update(f"{path.relative_to(source)} {info.st_size} {info.st_mtime_ns}\n".encode())
    return checksum.hexdigest()[:16]
