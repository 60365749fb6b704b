"""Tasks as process groups on this node, each under its user's own uid when the agent is root.

A task directory is made by the agent and given to the task's user in one step before the launcher starts; from then
on the agent only reads from it (through `taskfiles`) and in the end removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import detlab
from detlab.launch import procfs
from detlab.launch.delivery import Source
from detlab.launch.environment import base_environment
from detlab.launch.identity import Identity, IdentityError, UserIds
from detlab.launch.shipping import StreamShipper
from detlab.launch.spool import Reader
from detlab.launch.taskdir import STREAMS, TaskDir, read_object, write_atomic, write_json
from detlab.schemas.wire import Launch, SlotView
from detlab_agent.bundles import BundleCache
from detlab_agent.runtimes.base import RefusedTask, RunningTask, SetupFailed, TaskExit
from detlab_agent.slots import slot_environment
from detlab_agent.taskfiles import open_owned, read_owned_object, read_owned_tail
from detlab_agent.unpack import UnsafeBundle, unpack

_ALLOCATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_START_TIMEOUT = 60.0
_LOOK = 0.2
"""Seconds between two looks at a process where the kernel has no pidfd."""


@dataclass
class ProcessTask:
    """A task of this runtime; see `RunningTask`.

    Attributes:
        directory: Its directory.
        record: What the agent noted about it, where the task's user cannot write.
        owner: uid it runs under.
        started: Start time of the launcher, with its pid a name that is never reused.
    """

    allocation_id: str
    run: int
    slots: Sequence[str]
    directory: TaskDir
    record: Path
    owner: int
    pid: int | None
    started: int | None
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    async def finished(self) -> TaskExit:
        """See `RunningTask.finished`."""
        await self._gone()
        # Whatever the launcher could not end, because it was killed itself.
        await asyncio.to_thread(self._kill_all, spare_launcher=False)
        exit_file = read_owned_object(self.directory.root, "exit.json", self.owner)
        if exit_file is None:
            said = read_owned_tail(self.directory.root, "launcher.log", self.owner)
            message = "the launcher of the task ended without a report"
            return TaskExit(reason="launcher_lost", message=f"{message}: {said}" if said else message)
        code, rank = exit_file.get("exit_code"), exit_file.get("rank")
        return TaskExit(exit_code=code if isinstance(code, int) else None, rank=rank if isinstance(rank, int) else None)

    def interrupt(self) -> None:
        """See `RunningTask.interrupt`: the launcher passes the signal on to the entrypoint's group."""
        self._signal_launcher(signal.SIGTERM)

    async def slay(self, delivery_grace: float) -> None:
        """See `RunningTask.slay`."""
        await asyncio.to_thread(self._kill_all, spare_launcher=True)
        try:
            await asyncio.wait_for(self._gone(), delivery_grace)
        except TimeoutError:
            await asyncio.to_thread(self._kill_all, spare_launcher=False)

    def leftovers(self) -> list[Source]:
        """See `RunningTask.leftovers`."""
        return [Source(self._reader(name), StreamShipper(name)) for name in STREAMS]  # type: ignore[arg-type]

    async def remove(self, *, clean: bool) -> None:
        """See `RunningTask.remove`."""
        if clean:
            await asyncio.to_thread(shutil.rmtree, self.directory.root, ignore_errors=True)
            self.record.unlink(missing_ok=True)
        else:
            write_json(self.record, {"kept": True})

    def note(self) -> None:
        """Write the record: it names the process for the next life of the agent."""
        value = {
            "run": self.run,
            "slots": list(self.slots),
            "uid": self.owner,
            "pid": self.pid,
            "start_time": self.started,
        }
        write_json(self.record, value)

    def _reader(self, name: str) -> Reader:
        return Reader(lambda: open_owned(self.directory.root, f"spool/{name}.jsonl", self.owner))

    def _alive(self) -> bool:
        return self.pid is not None and procfs.is_alive(self.pid, self.started)

    async def _gone(self) -> None:
        """Wait for the end of the launcher, which may be the child of an earlier life of the agent."""
        if self.pid is not None and self._alive():
            await _wait_for_end(self.pid, self._alive)
        if self.child is not None:
            await asyncio.to_thread(self.child.wait)

    def _signal_launcher(self, number: signal.Signals) -> None:
        process = procfs.read_process(self.pid) if self.pid is not None else None
        if process is not None and process.alive and process.start_time == self.started:
            procfs.send_signal([process], number)

    def _kill_all(self, *, spare_launcher: bool) -> None:
        """SIGKILL every process of the task until none is left (they may be forking meanwhile)."""
        for _ in range(200):
            victims = [
                process
                for process in procfs.task_processes(self.directory.root, self.pid, self.started)
                if not (spare_launcher and process.pid == self.pid)
            ]
            if not victims:
                return
            procfs.send_signal(victims, signal.SIGKILL)
            _wait_until_dead(victims)


def _wait_until_dead(victims: Sequence[procfs.Process]) -> None:
    """Wait up to a second until the kernel has ended these processes."""
    import select

    for victim in victims:
        try:
            descriptor = os.pidfd_open(victim.pid)
        except OSError:
            continue
        try:
            if procfs.start_time(victim.pid) == victim.start_time:
                select.select([descriptor], [], [], 1.0)
        finally:
            os.close(descriptor)


async def _wait_for_end(pid: int, alive: Callable[[], bool]) -> None:
    """Wait until a process has ended, without being its parent."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel without pidfd_open (before 5.3)
        while alive():
            await asyncio.sleep(_LOOK)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        # The pid may have been reused before pidfd_open: then it is not alive any more by its start time.
        if alive():
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


@dataclass(frozen=True)
class Tenancy:
    """Whose tasks run here, and as whom.

    Attributes:
        users: uids of hub users, for an agent that is root; None for one that is not.
        serves: The only user of an agent that is not root.
    """

    users: UserIds | None
    serves: str | None

    def identity(self, owner: str) -> Identity:
        """Return as whom this user's tasks run here.

        Raises:
            RefusedTask: They do not.
        """
        if self.users is not None:
            try:
                return self.users.identity_for(owner)
            except IdentityError as error:
                raise RefusedTask(str(error)) from error
        if owner != self.serves:
            raise RefusedTask(
                f"this agent runs without root and serves user {self.serves!r} only; it cannot keep the tasks of "
                f"{owner!r} apart. Run the agent as root, or one agent per user"
            )
        return Identity(owner, os.getuid(), os.getgid(), Path.home())


class ProcessRuntime:
    """Run tasks as processes; see `Runtime`.

    Args:
        directory: Parent of the task directories.
        slots: The slots of this node.
        tenancy: Whose tasks run here.
        bundles: Where code comes from.
        agent_env: The agent's own environment.
    """

    def __init__(
        self,
        directory: Path,
        slots: Sequence[SlotView],
        tenancy: Tenancy,
        bundles: BundleCache,
        agent_env: Mapping[str, str],
    ) -> None:
        self._directory = directory
        self._slots = {slot.id: slot for slot in slots}
        self._order = {slot.id: index for index, slot in enumerate(slots)}
        self._tenancy = tenancy
        self._bundles = bundles
        self._agent_env = agent_env
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)

    # --- start --------------------------------------------------------------------------------------------

    async def start(self, launch: Launch) -> RunningTask:
        """See `Runtime.start`."""
        if not _ALLOCATION.fullmatch(launch.allocation_id):
            raise RefusedTask(f"{launch.allocation_id!r} cannot name a directory")
        unknown = [slot for slot in launch.slots if slot not in self._slots]
        if unknown:
            raise RefusedTask(f"this agent has no slot {', '.join(unknown)}")
        identity = self._tenancy.identity(launch.owner)
        task = TaskDir(self._directory / launch.allocation_id)
        archive = await self._bundles.fetch(launch.bundle) if launch.bundle else None
        return await asyncio.to_thread(self._make, task, launch, archive, identity)

    def _make(self, task: TaskDir, launch: Launch, archive: Path | None, identity: Identity) -> ProcessTask:
        """Prepare and start in one go, in a thread: the agent's end does not fall between the two."""
        running = ProcessTask(
            launch.allocation_id,
            launch.run,
            tuple(launch.slots),
            task,
            self._record(launch.allocation_id),
            identity.uid,
            None,
            None,
        )
        try:
            running.note()
            self._prepare(task, launch, archive, identity)
            child = self._spawn(task, launch, identity)
            running.child, running.pid, running.started = child, child.pid, procfs.start_time(child.pid)
            running.note()
        except (RefusedTask, SetupFailed, OSError) as error:
            shutil.rmtree(task.root, ignore_errors=True)
            running.record.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise SetupFailed(f"the task's directory {task.root}: {error}") from error
            raise
        return running

    def _record(self, allocation_id: str) -> Path:
        return self._directory / f"{allocation_id}.json"

    def _prepare(self, task: TaskDir, launch: Launch, archive: Path | None, identity: Identity) -> None:
        """Make the task's directory and give it to its user."""
        slots = [self._slots[slot] for slot in launch.slots]
        try:
            shutil.rmtree(task.root, ignore_errors=True)
            task.root.mkdir(mode=0o700)
            for directory in (task.work, task.home, task.tmp, task.spool):
                directory.mkdir(mode=0o700)
            if archive is not None:
                unpack(archive, task.work)
            info = launch.info.model_copy(
                update={"gpu_uuids": [slot.uuid for slot in slots if slot.kind != "cpu" and slot.uuid]}
            )
            write_atomic(task.info, info.model_dump_json().encode())
            write_atomic(task.token, launch.task_token.encode())
            message = launch.model_dump(mode="json", exclude={"task_token"})
            write_json(task.launch, {**message, "info": info.model_dump(mode="json"), "uid": identity.uid})
            if os.geteuid() == 0:
                _give(task.root, identity)
        except UnsafeBundle as error:
            raise SetupFailed(f"bundle {launch.bundle}: {error}") from error

    def _spawn(self, task: TaskDir, launch: Launch, identity: Identity) -> subprocess.Popen[bytes]:
        env = self._environment(task, launch, identity)
        command = [sys.executable, "-s", "-P", "-m", "detlab.launch.task", "--dir", str(task.root)]
        if os.geteuid() != 0:
            return _popen(command, task, env, ())
        return self._spawn_as(identity, command, task, launch, env)

    def _spawn_as(
        self, identity: Identity, command: list[str], task: TaskDir, launch: Launch, env: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start the launcher as its user; wait until it is that user or failed to become it."""
        status_read, status_write = os.pipe()
        become = [sys.executable, "-s", "-P", "-m", "detlab.launch.become"]
        become += ["--uid", str(identity.uid), "--gid", str(identity.gid), "--status-fd", str(status_write)]
        for path in (task.root, *storage_paths(launch.info.config)):
            become += ["--reach-rw", str(path)]
        try:
            child = _popen([*become, "--", *command], task, env, (status_write,))
        finally:
            os.close(status_write)
        with os.fdopen(status_read, "rb") as status:
            report = status.read()
        if report:
            child.wait(_START_TIMEOUT)
            raise RefusedTask(str(json.loads(report)["error"]))
        return child

    def _environment(self, task: TaskDir, launch: Launch, identity: Identity) -> dict[str, str]:
        """Return the launcher's environment. Nothing the experiment says is in it: root reads it first."""
        home = identity.home if identity.home is not None and identity.home.is_dir() else task.home
        env = base_environment(
            self._agent_env,
            bin_dir=Path(sys.executable).parent,
            home=home,
            user=identity.name,
            tmp=task.tmp,
        )
        env["DET_TASK_DIR"] = str(task.root)
        env["DET_ALLOCATION_ID"] = launch.allocation_id
        root = str(Path(detlab.__file__).resolve().parents[1])
        if root in self._agent_env.get("PYTHONPATH", "").split(os.pathsep):
            env["PYTHONPATH"] = root  # detlab runs from its sources, not installed
        offset = min((self._order[slot] for slot in launch.slots), default=0)
        env.update(slot_environment([self._slots[slot] for slot in launch.slots], offset))
        return env

    # --- find again ---------------------------------------------------------------------------------------

    def recover(self) -> list[RunningTask]:
        """See `Runtime.recover`. A directory without a record, or one whose task never started, is removed."""
        found: list[RunningTask] = []
        kept = set()
        for record in sorted(self._directory.glob("*.json")):
            task = self._recover_one(record)
            if task is not None:
                found.append(task)
            if record.exists():
                kept.add(record.stem)
        for path in self._directory.iterdir():
            if path.is_dir() and path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
        return found

    def _recover_one(self, record: Path) -> ProcessTask | None:
        noted = read_object(record)
        if noted is not None and noted.get("kept"):
            return None
        task = TaskDir(self._directory / record.stem)
        if noted is None or not task.root.is_dir():
            record.unlink()
            return None
        owner = int(noted["uid"])
        pid, started = noted.get("pid"), noted.get("start_time")
        if pid is None:
            # The agent died between the start and the note.
            pid, started = _find_launcher(task, owner)
        if pid is None and not task.launcher.exists():
            record.unlink()  # it never started; the master will ask again
            return None
        slots = tuple(noted["slots"])
        return ProcessTask(record.stem, int(noted["run"]), slots, task, record, owner, pid, started)


def _find_launcher(task: TaskDir, owner: int) -> tuple[int | None, int | None]:
    """Return pid and start time of the task's launcher, by its command, its directory and its user."""
    for process in procfs.task_processes(task.root, None, None):
        if _is_launcher(process.pid, task, owner):
            return process.pid, process.start_time
    return None, None


def _is_launcher(pid: int, task: TaskDir, owner: int) -> bool:
    return (
        "detlab.launch.task" in procfs.read_command(pid)
        and procfs.read_environment(pid).get("DET_TASK_DIR") == str(task.root)
        and procfs.real_uid(pid) == owner
    )


def _popen(
    command: list[str], task: TaskDir, env: dict[str, str], descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a launcher in a session of its own: it must outlive the agent."""
    # Opened by the agent before the user could have put anything in its place.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(task.launcher_log, flags, 0o600)
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


def _give(root: Path, identity: Identity) -> None:
    """Give a tree that only we could write to so far to its user."""
    for directory, _, files in os.walk(root):
        for name in files:
            os.lchown(Path(directory) / name, identity.uid, identity.gid)
        os.lchown(directory, identity.uid, identity.gid)


def storage_paths(config: Mapping[str, Any]) -> list[Path]:
    """Return the directories of the experiment's checkpoint storage that exist on this node."""
    storage = config.get("checkpoint_storage")
    if not isinstance(storage, Mapping):
        return []
    paths = [storage.get(key) for key in ("host_path", "container_path")]
    found = [Path(path) for path in paths if isinstance(path, str) and path.startswith("/")]
    with contextlib.suppress(OSError):
        return [path for path in found if path.is_dir()]
    return []
