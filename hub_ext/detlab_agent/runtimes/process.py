"""Tasks as process groups on this node, each under its user's own uid when the agent is root.

A task directory is made by the agent and given to the task's user in one step before the launcher starts; from then
on the agent only reads from it (through `taskfiles`) and in the end removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import detlab
from detlab.launch import procfs
from detlab.launch.environment import base_environment
from detlab.launch.identity import Identity, IdentityError, UserIds
from detlab.launch.taskdir import TaskDir, read_object, write_atomic, write_json
from detlab.schemas.wire import Launch, SlotView
from detlab_agent.bundles import BundleCache
from detlab_agent.runtimes.base import RefusedTask, RunningTask, SetupFailed
from detlab_agent.runtimes.process_task import ProcessTask, discard_tree
from detlab_agent.slots import slot_environment
from detlab_agent.taskfiles import open_owned_log
from detlab_agent.unpack import UnsafeBundle, unpack

_log = logging.getLogger(__name__)
_ALLOCATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_START_TIMEOUT = 60.0


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
        if not procfs.adopt_orphans():
            _log.warning("not a subreaper: daemons of a task whose launcher is killed may outlive it")

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
            discard_tree(task.root)
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
            discard_tree(task.root)
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
            task.launcher_log.touch(mode=0o600)
            if os.geteuid() == 0:
                _give(task.root, identity)
        except UnsafeBundle as error:
            raise SetupFailed(f"bundle {launch.bundle}: {error}") from error

    def _spawn(self, task: TaskDir, launch: Launch, identity: Identity) -> subprocess.Popen[bytes]:
        env = self._environment(task, launch, identity)
        command = [sys.executable, "-s", "-P", "-m", "detlab.launch.task", "--dir", str(task.root)]
        if os.geteuid() != 0:
            return _popen(command, task, identity.uid, env, ())
        return self._spawn_as(identity, command, task, launch, env)

    def _spawn_as(
        self, identity: Identity, command: list[str], task: TaskDir, launch: Launch, env: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start the launcher as its user; wait until it is that user or failed to become it."""
        status_read, status_write = os.pipe()
        become = [sys.executable, "-s", "-P", "-m", "detlab.launch.become"]
        become += ["--uid", str(identity.uid), "--gid", str(identity.gid), "--status-fd", str(status_write)]
        for group in identity.groups:
            become += ["--group", str(group)]
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            if name in env:
                become += ["--reach", env[name]]
        for path in (task.root, *directories(launch.reach)):
            become += ["--reach-rw", str(path)]
        try:
            child = _popen([*become, "--", *command], task, identity.uid, env, (status_write,))
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
                discard_tree(path)
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
        life = str(noted.get("life") or procfs.machine_life())
        return ProcessTask(record.stem, int(noted["run"]), slots, task, record, owner, pid, started, life=life)


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
    command: list[str], task: TaskDir, owner: int, env: dict[str, str], descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a launcher in a session of its own: it must outlive the agent."""
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


def _give(root: Path, identity: Identity) -> None:
    """Give a tree that only we could write to so far to its user.

    From the leaves up: as long as the root is ours and 0700, no other process of the user gets in to put a link in
    the place of what is given away next.
    """
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            os.lchown(Path(directory) / name, identity.uid, identity.gid)
        os.lchown(directory, identity.uid, identity.gid)


def directories(paths: Sequence[str]) -> list[Path]:
    """Return those that are directories on this node."""
    found = [Path(path) for path in paths if path.startswith("/")]
    with contextlib.suppress(OSError):
        return [path for path in found if path.is_dir()]
    return []
