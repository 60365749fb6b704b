"""What every runtime does for a task before its launcher starts: admit it, make its directory, give it to its user."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from detlab.client.transport.discovery import is_loopback
from detlab.errors import DetlabError
from detlab.launch import late_point
from detlab.launch.elsewhere import PIN_FILE, SERVICE_CERTIFICATE, SERVICE_KEY, NotSetUp, Parcel
from detlab.launch.host.identity import Identity
from detlab.launch.layout import TaskDirectory, UnsafeBundle, lay_out
from detlab.launch.taskdir import RUN_TOKEN, TaskDir
from detlab.schemas.shares import device_of, devices_of, share_number
from detlab.schemas.wire import Launch, SlotView
from detlab.trust import VARIABLE
from detlab_agent.endpoints import Endpoints
from detlab_agent.runtimes.base import RefusedTask, SetupFailed
from detlab_agent.runtimes.bundles import BundleCache
from detlab_agent.runtimes.ports import HeldPorts, ServiceAddress
from detlab_agent.runtimes.records import discard_tree
from detlab_agent.runtimes.tenancy import Homes, Tenancy
from detlab_agent.slots import slot_environment

_log = logging.getLogger(__name__)

_ALLOCATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")


@dataclass
class Order:
    """A launch that this agent has accepted, and what is ready for it.

    Attributes:
        launch: The master's message.
        task: The task's directory; for a task elsewhere only its name, without a directory.
        record: The agent's record of it.
        identity: The user it runs as.
        slots: The devices of its slots, each once.
        port_offset: A number that no other task of this node has.
        archive: Its code.
        service: The address at which it serves, if it does.
        certificate: The master's pinned certificate (PEM), if there is one.
    """

    launch: Launch
    task: TaskDir
    record: Path
    identity: Identity
    slots: list[SlotView]
    port_offset: int
    archive: Path | None = None
    service: ServiceAddress | None = None
    certificate: str | None = None

    def environment(self, listen: str | None = None) -> dict[str, str]:
        """Return the task's environment about its node; `listen` is the address that its service binds."""
        env = slot_environment(self.slots, self.port_offset)
        env["DET_TASK_DIR"] = str(self.task.root)
        env["DET_ALLOCATION_ID"] = self.launch.allocation_id
        if self.certificate is not None:
            env[VARIABLE] = str(self.task.root / PIN_FILE)
        if self.service is not None:
            env.update(self.service.environment(listen))
            if self.launch.service is not None and self.launch.service.certificate:
                env["DET_SERVICE_CERT_FILE"] = str(self.task.root / SERVICE_CERTIFICATE)
                env["DET_SERVICE_KEY_FILE"] = str(self.task.root / SERVICE_KEY)
        return env

    def contents(self) -> TaskDirectory:
        """Return the contents of the task's directory."""
        launch, files = self.launch, {}
        if self.certificate is not None:
            files[PIN_FILE] = self.certificate
        if launch.service is not None and launch.service.certificate and launch.service.key:
            files |= {SERVICE_CERTIFICATE: launch.service.certificate, SERVICE_KEY: launch.service.key}
        if launch.run_token is not None:
            files[RUN_TOKEN] = launch.run_token
        gpus = [slot.uuid for slot in self.slots if slot.kind != "cpu" and slot.uuid]
        info = launch.info.model_copy(update={"gpu_uuids": gpus})
        message = launch.model_dump(
            mode="json",
            exclude={"task_token": True, "run_token": True, "container": {"registry_auth"}, "service": {"key"}},
        )
        told = {**message, "info": info.model_dump(mode="json"), "uid": self.identity.uid}
        return TaskDirectory(told, launch.task_token, files)

    def program(self) -> list[str]:
        """Return the arguments for the Python of a task that is not on this machine, up to those of the program.

        A trial that has no hyperparameters yet asks for them there, by a program that this agent sends along.
        """
        late = ["-c", Path(late_point.__file__).read_text(encoding="utf-8")]
        return ["-s", "-P", *(late if self.launch.point_due else ["-m", "detlab.launch.elsewhere"])]

    def parcel(self, service: tuple[str, int] | None = None) -> str:
        """Return the variable that `detlab.launch.elsewhere` reads, for a task that is not on this machine.

        Args:
            service: The address and port at which its service is to listen there, if it has one.

        Raises:
            SetupFailed: It is too long for a variable.
        """
        _warn_of_loopback(self.launch.info.master_url)
        about = slot_environment(self.slots, self.port_offset) | {"DET_ALLOCATION_ID": self.launch.allocation_id}
        if service is not None:
            about |= {"DET_SERVICE_ADDRESS": service[0], "DET_SERVICE_PORT": str(service[1])}
        try:
            return Parcel(self.contents(), about).encode()
        except NotSetUp as error:
            raise SetupFailed(str(error)) from error


@functools.cache
def _warn_of_loopback(url: str) -> None:
    """Say once that tasks elsewhere will look for the master on their own machines, and never get further."""
    if is_loopback(urlsplit(url).hostname or ""):
        _log.warning(
            "tasks on other machines cannot reach the master at %s: give --master the address by which they do, and"
            " start the master so that it listens there (det up --ip 0.0.0.0 --tls)",
            url,
        )


@dataclass
class TaskMaker:
    """Make tasks ready.

    Attributes:
        directory: Parent of the task directories.
        slots: The slots of this node.
        tenancy: Whose tasks run here.
        bundles: Fetches code.
        homes: Homes of users who have none.
        address: The address of tasks' services.
        ports: The ports of these services.
        endpoints: How this agent reaches the master; None: tasks use the address that the master reports.
    """

    directory: Path
    slots: Sequence[SlotView]
    tenancy: Tenancy
    bundles: BundleCache
    homes: Homes
    address: str = "127.0.0.1"
    ports: HeldPorts = field(default_factory=HeldPorts)
    endpoints: Endpoints | None = None

    def __post_init__(self) -> None:
        self.directory.mkdir(mode=0o711, parents=True, exist_ok=True)

    def admit(self, launch: Launch, slots: Sequence[SlotView] | None = None) -> Order:
        """Return the order for a launch that may run here.

        Args:
            launch: The master's message.
            slots: Those of the node that it is for; None: this machine's.

        Raises:
            RefusedTask: It may not run here.
        """
        if not _ALLOCATION.fullmatch(launch.allocation_id):
            raise RefusedTask(f"{launch.allocation_id!r} cannot name a directory")
        known = {slot.id: (index, slot) for index, slot in enumerate(self.slots if slots is None else slots)}
        devices = devices_of(launch.slots)
        unknown = [device for device in devices if device not in known]
        if unknown:
            raise RefusedTask(f"this agent has no slot {', '.join(unknown)}")
        try:
            pinned = self.endpoints.pinned if self.endpoints is not None else None
        except DetlabError as error:
            raise RefusedTask(str(error)) from error
        name = record_name(launch.allocation_id, launch.node)
        return Order(
            self._as_reached(launch),
            TaskDir(self.directory / name),
            self.directory / f"{name}.json",
            self.tenancy.identity(launch),
            [known[device][1] for device in devices],
            # another number for each share of a device: tasks beside each other choose ports by it
            min((known[device_of(s)][0] + len(known) * share_number(s) for s in launch.slots), default=0),
            certificate=pinned,
        )

    def _as_reached(self, launch: Launch) -> Launch:
        """Return the launch with the address by which this agent's tasks reach the master."""
        said = launch.info.master_url
        found = self.endpoints.as_reached(said) if self.endpoints is not None else said
        if found == said:
            return launch
        return launch.model_copy(update={"info": launch.info.model_copy(update={"master_url": found})})

    async def fetch(self, order: Order) -> None:
        """Get the code.

        Raises:
            SetupFailed: It cannot be fetched.
        """
        if order.launch.bundle:
            order.archive = await self.bundles.fetch(order.launch.bundle)

    def choose_service(self, order: Order) -> None:
        """Bind the port of a task that serves.

        Raises:
            RefusedTask: None is free.
        """
        if order.launch.service is not None:
            order.service = self.ports.take(order.record, self.address)

    def prepare(self, order: Order) -> None:
        """Make the task's directory and give it to its user.

        Raises:
            SetupFailed: The bundle is unsafe.
            OSError: The disk is full or failing.
        """
        try:
            discard_tree(order.task.root)
            lay_out(order.task, order.contents(), order.archive)
            if os.geteuid() == 0:
                give(order.task.root, order.identity)
        except UnsafeBundle as error:
            raise SetupFailed(f"bundle {order.launch.bundle}: {error}") from error


def record_name(allocation_id: str, node: str) -> str:
    """Return the name of a task's record and directory: an allocation may have parts on several nodes of this agent."""
    return f"{allocation_id}~{hashlib.sha256(node.encode()).hexdigest()[:12]}" if node else allocation_id


def give(root: Path, identity: Identity) -> None:
    """Change the owner of a tree, which only the agent could write to so far, to its user.

    This goes from the leaves up: as long as the root is ours and 0700, no other process of the user can get in to
    replace the next file by a link.
    """
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            os.lchown(Path(directory) / name, identity.uid, identity.gid)
        os.lchown(directory, identity.uid, identity.gid)


def directories(paths: Sequence[str]) -> list[Path]:
    """Return those paths that are directories on this node."""
    found = [Path(path) for path in paths if path.startswith("/")]
    with contextlib.suppress(OSError):
        return [path for path in found if path.is_dir()]
    return []
