"""Instances that are agents on this very machine: each a process with a directory of its own.

    ROOT/<agent id>/
        instance.json    {"agent_id", "launched_at", "life"}: written before there is a process
        process          the process's own line of /proc, written by itself before it becomes the agent
        enrolment_token  0600; removed when the instance goes
        agent/           the agent's state
        agent.log
    ROOT/logs/           logs of instances that have ended

As each process records its own identity, none is lost if the master dies while it starts one.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from detlab.files import write_atomic
from detlab.launch.host import procfs
from detlab.launch.taskdir import read_object, write_json
from detlab_hub.backends.instances.base import InstanceOrder, ProviderError, Trouble
from detlab_hub.core.provisioning import Instance, InstanceState

_log = logging.getLogger(__name__)
_SELF = '{ read -r me < /proc/self/stat && printf "%s\\n" "$me" > "$0.new" && mv "$0.new" "$0" && exec "$@"; } &'
"""For sh: a detached process records its identity, then becomes the program. Its process id and start time stay the
same; it is not our child, as it will outlive us."""
_BORN = 10.0
"""Seconds that a process may take to record its identity."""
_POLL_SECONDS = 1.5
"""Seconds for which a new agent is watched: with wrong options it ends within them."""
_STEP = 0.05
_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_KEPT_LOGS = 50
_TAIL = 5


class LocalProvider:
    """Starts and ends agents of this machine.

    Args:
        root: Where their directories are kept; one for each pool.
        master: Address of the service, as agents get it.
        arguments: Further options of `det agent run`, such as `--slots 2`.
        command: The command that starts an agent.
    """

    def __init__(
        self,
        root: Path,
        master: str,
        arguments: Sequence[str] = (),
        command: Sequence[str] = (sys.executable, "-m", "detlab_agent"),
    ) -> None:
        self._root = root
        self._master = master
        self._arguments = tuple(arguments)
        self._command = tuple(command)
        self._poll_seconds = _POLL_SECONDS

    def launch(self, order: InstanceOrder) -> Instance:
        """Start an agent. See `Provider`.

        Raises:
            ProviderError: The agent's name cannot name a directory, or no agent could be started there.
        """
        place = self._root / order.agent_id
        if not _is_name(order.agent_id):
            raise ProviderError(Trouble.CONFIGURATION, f"{order.agent_id!r} cannot name a directory")
        try:
            if not (place / "instance.json").exists():
                self._start(place, order)
                self._watch(place)
        except (OSError, subprocess.SubprocessError) as error:
            raise ProviderError(Trouble.CONFIGURATION, f"no agent could be started in {place}: {error}") from error
        return self._look_at(place, order.now) or Instance(order.agent_id, order.agent_id, launched_at=order.now)

    def _start(self, place: Path, order: InstanceOrder) -> None:
        place.mkdir(mode=0o711, parents=True, exist_ok=True)
        token = place / "enrolment_token"
        write_atomic(token, order.enrolment_token.encode() + b"\n", durable=True)
        note = {"agent_id": order.agent_id, "launched_at": order.now, "life": procfs.machine_life()}
        write_json(place / "instance.json", note, durable=True)
        argv = [
            *("/bin/sh", "-c", _SELF, str(place / "process")),
            *self._command,
            *("--master", self._master, "--name", order.agent_id, "--dir", str(place / "agent")),
            *("--enrolment-token-file", str(token)),
            *self._arguments,
        ]
        descriptor = os.open(place / "agent.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=subprocess.STDOUT,
                env=_environment(os.environ),
                cwd=place,
                start_new_session=True,
                check=True,
            )
        finally:
            os.close(descriptor)

    def _watch(self, place: Path) -> None:
        """Give a new agent a moment to fail.

        Raises:
            ProviderError: It has already ended.
        """
        until = time.monotonic() + self._poll_seconds
        while (process := _process(place)) is None or procfs.is_alive(*process):
            if time.monotonic() > until:
                return
            time.sleep(_STEP)
        said = "; ".join(_tail(place / "agent.log")) or "without a word"
        self._remove(place)
        raise ProviderError(
            Trouble.CONFIGURATION,
            f"the agent {place.name} ended immediately: {said}",
            "see the options of this pool's provider, and det agent run --help",
        )

    def list(self) -> tuple[Instance, ...]:
        """List the instances that have a directory. See `Provider`.

        Raises:
            ProviderError: The directory cannot be read.
        """
        now = time.time()
        try:
            places = sorted(self._root.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ProviderError(Trouble.CONFIGURATION, f"{self._root}: {error}") from error
        return tuple(found for place in places if (found := self._look_at(place, now)) is not None)

    def _look_at(self, place: Path, now: float) -> Instance | None:
        note = read_object(place / "instance.json")
        if note is None:
            return None
        launched_at = float(note.get("launched_at", 0.0))
        process = _process(place)
        same_life = note.get("life") == procfs.machine_life()
        if process is not None and same_life and procfs.is_alive(*process):
            state = InstanceState.RUNNING
        elif process is None and same_life and place.stat().st_mtime > now - _BORN:
            state = InstanceState.PENDING
        else:
            state = InstanceState.STOPPED
        return Instance(place.name, place.name, state, launched_at)

    def terminate(self, ids: Collection[str]) -> None:
        """End agents, and the remaining processes of a crashed agent's tasks. See `Provider`."""
        for name in ids:
            place = self._root / name
            note = read_object(place / "instance.json") if _is_name(name) else None
            if note is None:
                continue
            if note.get("life") == procfs.machine_life():
                self._end(place)
            self._remove(place)

    def _end(self, place: Path) -> None:
        born = time.monotonic() + self._poll_seconds
        while (process := _process(place)) is None and time.monotonic() < born:
            time.sleep(_STEP)  # it may just be starting
        if process is not None:
            _end_process(*process)
        # Tasks outlive an agent that crashed; after this nothing would stop them.
        left = [found for found in procfs.processes() if found.alive and _is_task_of(found.pid, place)]
        if procfs.send_signal(left, signal.SIGKILL):
            _log.warning("instance %s: %d processes of its tasks were left and are killed", place.name, len(left))

    def _remove(self, place: Path) -> None:
        try:
            self._keep_log(place)
            (place / "instance.json").unlink(missing_ok=True)
            shutil.rmtree(place)
        except FileNotFoundError:
            _log.info("instance %s: another process removes it, too", place.name)
        except OSError as error:
            raise ProviderError(Trouble.OTHER, f"{place} cannot be removed: {error}") from error

    def _keep_log(self, place: Path) -> None:
        logs = self._root / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        if (place / "agent.log").exists():
            (place / "agent.log").replace(logs / f"{place.name}.log")
        for old in sorted(logs.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT_LOGS]:
            old.unlink()


def _is_name(text: str) -> bool:
    return bool(text) and text not in {".", "..", "logs"} and not set(text) & set("/\\\0")


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without the service's own variables."""
    return {name: value for name, value in ours.items() if not name.startswith(("JUPYTERHUB_", "DET_"))}


def _process(place: Path) -> tuple[int, int] | None:
    """Read the process id and start time that the process wrote down; None if they cannot be read."""
    try:
        text = (place / "process").read_text(encoding="utf-8", errors="replace")
        return int(text.split(None, 1)[0]), int(text[text.rindex(")") + 2 :].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _end_process(pid: int, started: int) -> None:
    """Ask a process to end, and kill it after a while; another process that got its id is left alone."""
    for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
        process = procfs.read_process(pid)
        if process is None or not process.alive or process.start_time != started:
            return
        procfs.send_signal([process], number)
        until = time.monotonic() + patience
        while time.monotonic() < until and procfs.is_alive(pid, started):
            time.sleep(_STEP)


def _is_task_of(pid: int, place: Path) -> bool:
    mark = procfs.read_environment(pid).get("DET_TASK_DIR", "")
    if f"/{place.name}/agent/" not in mark:
        return False
    # `det down` may have reached its directory by another path than `det up`: a link, a mount.
    return os.path.realpath(mark).startswith(f"{os.path.realpath(place)}/agent/")


def _tail(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
    except OSError:
        return []
