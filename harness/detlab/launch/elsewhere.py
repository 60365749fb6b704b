"""Run a task on a machine that shares nothing with its agent but the master: `python -m detlab.launch.elsewhere`.

A runtime whose tasks are elsewhere (a job of a batch system, a pod) starts this with `Parcel.encode()` in the
environment. It makes the task's directory here, gets the code from the master with the task's token, and starts the
launcher, which ships logs and metrics to the master as everywhere. How the task ended goes back by what every batch
system has: the exit status, and the text in `--exit-file`, as Kubernetes reads a container's termination message.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import http.client
import ipaddress
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from detlab.backoff import Backoff
from detlab.launch.archives import UnsafeBundle, digest_like
from detlab.launch.delivery.undelivered import leave
from detlab.launch.environment import SYSTEM_PATH, base_environment
from detlab.launch.layout import TaskDirectory, lay_out
from detlab.launch.taskdir import TaskDir, read_object
from detlab.loopback.connections import LoopbackConnection
from detlab.trust import VARIABLE as CERTIFICATE
from detlab.trust import tls_context

VARIABLE = "DET_PARCEL"
"""Holds the parcel; the task itself does not see it."""
NODE_RANK, NODE_NAME = "DET_NODE_RANK", "DET_NODE_NAME"
"""Where one launch starts a trial on several nodes: the place of this one in their order, and what it is called."""
LEAVE = "DET_LEAVE_SOON"
"""Set where the batch system has already said that it will end the job soon."""
ASK_CERTIFICATE = "DET_ASK_CERTIFICATE"
"""Set where the service is to have a certificate for DET_SERVICE_ADDRESS, which was not known at the launch."""
LONGEST = 120_000
"""Bytes of a parcel: Linux takes 131,072 for one variable."""
PASSED_ON = (
    *("DET_NODE_ADDRESS", "DET_SERVICE_ADDRESS", "DET_SERVICE_PORT"),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
)
"""Variables of the job that its task gets: where it is reached, and the devices that it was given there."""
NOT_PASSED_ON = ("DET_", "SLURM", "SRUN_", "SBATCH_", "PMI", "KUBERNETES_")
"""So begin the job's variables that its task does not get: libraries would take its processes for the job's own."""
SERVICE_CERTIFICATE, SERVICE_KEY = "service.pem", "service_key.pem"
"""The certificate of a server that is reached over a network, in its task's directory."""
PIN_FILE = "master.pem"
"""The master's pinned certificate among the files of a parcel."""
NOT_SET_UP = 125
"""The exit status of a task whose directory or code could not be made ready."""
PATIENCE = 600.0
"""Seconds to try for while the master does not answer."""
DELIVERY = 10.0
"""Seconds for which the launcher of a killed task may try to deliver; agents give the job a few more."""
LONGEST_MESSAGE = 600
"""Characters of a message in the exit file, each up to six bytes there: Kubernetes keeps 4,096."""
_TIMEOUT = 60.0
_LOOK = 0.1
"""Seconds after which a request to end is seen while the master is away."""
_MOST = 1 << 30
_FILES = {
    CERTIFICATE: PIN_FILE,
    "DET_SERVICE_CERT_FILE": SERVICE_CERTIFICATE,
    "DET_SERVICE_KEY_FILE": SERVICE_KEY,
}


class NotSetUp(Exception):
    """The task cannot be made ready; the message says why."""


@dataclass(frozen=True)
class Parcel:
    """All that a task elsewhere is made of, but its code.

    Attributes:
        contents: Of its directory.
        environment: What the agent says about its slots.
    """

    contents: TaskDirectory
    environment: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> str:
        """Return it as the value of a variable.

        Raises:
            NotSetUp: It is too long for one.
        """
        value = {
            "launch": self.contents.launch,
            "token": self.contents.token,
            "files": dict(self.contents.files),
            "environment": dict(self.environment),
        }
        text = base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0)).decode()
        if len(text) > LONGEST:
            raise NotSetUp(
                f"the launch has {len(text)} bytes packed, and {LONGEST} fit into the environment of a job: shorten "
                "what is large in the config (environment.environment_variables, hyperparameters, data)"
            )
        return text

    def of_node(self, rank: int, name: str = "") -> Parcel:
        """Return the part of one of the nodes of a trial that is launched on all by one message.

        Args:
            rank: Its place in their order.
            name: What the batch system calls it.

        Raises:
            NotSetUp: There is no such place.
        """
        launch = self.contents.launch
        counts = [int(count) for count in launch["info"].get("container_slot_counts") or ()]
        if not 0 <= rank < len(counts):
            raise NotSetUp(f"{NODE_RANK} is {rank}, and the trial has {len(counts)} nodes")
        before = sum(counts[:rank])
        info = {
            **launch["info"],
            "agent_id": f"{launch['info']['agent_id']}/{name or rank}",
            "container_rank": rank,
            "slot_ids": list(range(counts[rank])),
        }
        told = {**launch, "info": info, "slots": launch["slots"][before : before + counts[rank]]}
        return replace(self, contents=replace(self.contents, launch=told))

    @classmethod
    def decode(cls, text: str) -> Parcel:
        """Read what `encode` wrote."""
        value = json.loads(gzip.decompress(base64.b64decode(text)))
        return cls(TaskDirectory(value["launch"], value["token"], value["files"]), value["environment"])


class Elsewhere:
    """One task on this machine.

    Args:
        parcel: What it is made of.
        exit_file: Where the batch system reads how it ended; None: it reads the exit status only.
    """

    def __init__(self, parcel: Parcel, exit_file: Path | None) -> None:
        self._parcel = parcel
        self._exit_file = exit_file
        self._child: subprocess.Popen[bytes] | None = None
        self._asked: list[int] = []
        self._leaving = False

    def run(self, parent: Path) -> int:
        """Run the task in a directory below `parent`; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._pass_on)
        task = TaskDir(parent / "task")
        signal.signal(signal.SIGUSR2, lambda number, frame: self._leave_soon(task))
        try:
            if self._parcel.contents.launch.get("point_due"):
                raise NotSetUp("the trial has no hyperparameters: its runtime does not start it by late_point")
            if (rank := os.environ.pop(NODE_RANK, "")).isdigit():
                self._parcel = self._parcel.of_node(int(rank), os.environ.pop(NODE_NAME, ""))
            archive = self._fetch(parent / "code.tar.gz")
            address = os.environ.get("DET_SERVICE_ADDRESS", "")
            if os.environ.pop(ASK_CERTIFICATE, "") and not is_loopback(address):
                self._certify(address)
            lay_out(task, self._parcel.contents, archive)
            if self._asked:  # to end
                self._say({"exit_code": -signal.SIGTERM, "message": "ended before it started"})
                return 128 + signal.SIGTERM
            self._child = self._start(task)
        except (NotSetUp, UnsafeBundle, OSError, ValueError) as error:
            self._say({"exit_code": None, "reason": "setup", "message": str(error)})
            return NOT_SET_UP
        if os.environ.pop(LEAVE, ""):
            self._leave_soon(task)
        for asked in self._asked:  # between the two
            self._signal(self._child, asked)
        status = self._child.wait()
        report = read_object(task.exit)
        said = report or {"exit_code": None, "reason": "launcher_lost", "message": self._last_words(task)}
        self._say(said)
        if not (report or {}).get("delivered"):
            with suppress(OSError):  # nobody keeps the output
                leave(task, sys.stdout.buffer)
        return status if status >= 0 else 128 - status

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._asked.append(number)
        if self._child is not None and self._child.returncode is None:
            self._signal(self._child, number)

    @staticmethod
    def _signal(child: subprocess.Popen[bytes], number: int) -> None:
        """Pass a signal on; a launcher that was told to kill its task and cannot deliver is ended before we are."""
        child.send_signal(number)
        if number == signal.SIGUSR1:
            timer = threading.Timer(DELIVERY, child.kill)
            timer.daemon = True
            timer.start()

    def _leave_soon(self, task: TaskDir) -> None:
        """Have the master ask the task to save and leave, since the batch system will end it: its time is nearly up."""
        if not self._leaving:
            self._leaving = True
            threading.Thread(target=self._ask_to_leave, args=(task,), daemon=True).start()

    def _ask_to_leave(self, task: TaskDir) -> None:
        backoff, until = Backoff(), time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                # The launcher renews the token there.
                token = task.token.read_text(encoding="ascii").strip() or self._parcel.contents.token
                status, _ = self._post("task/preempt", token)
            except (OSError, http.client.HTTPException):
                status = 0
            if 200 <= status < 300 or status in {403, 404, 409}:  # or there is nothing to leave any more
                return
            time.sleep(backoff.next_pause())

    def _certify(self, address: str) -> None:
        """Get the certificate of the service, as soon as the agent has told the master the address.

        Raises:
            NotSetUp: The master makes none.
        """
        backoff, until, said = Backoff(), time.monotonic() + PATIENCE, ""
        while not self._asked and time.monotonic() < until:
            try:
                status, content = self._post("task/certificate", self._parcel.contents.token, {"address": address})
                said = f"status {status}: {content[:500].decode('utf-8', errors='replace')}"
                if status == http.HTTPStatus.OK:
                    made = json.loads(content)
                    files = {SERVICE_CERTIFICATE: str(made["certificate"]), SERVICE_KEY: str(made["key"])}
                    contents = self._parcel.contents
                    contents = replace(contents, files={**contents.files, **files})
                    self._parcel = replace(self._parcel, contents=contents)
                    return
                if status in {400, 403, 404, 422} or b"stale_attempt" in content:
                    break
            except (OSError, http.client.HTTPException) as error:
                said = str(error)
            again = time.monotonic() + min(1.0, backoff.next_pause())
            while time.monotonic() < again and not self._asked:
                time.sleep(_LOOK)
        if not self._asked:
            raise NotSetUp(f"no certificate for the server at {address}: the master answers {said}")

    def _post(self, path: str, token: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        master = str(self._parcel.contents.launch["info"]["master_url"])
        parts = urlsplit(master.rstrip("/") + f"/api/v1/{path}")
        connection = _connect(master, self._parcel.contents.files.get(PIN_FILE))
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", parts.path, body=json.dumps(body or {}).encode(), headers=headers)
            reply = connection.getresponse()
            return reply.status, reply.read(1 << 20)
        finally:
            connection.close()

    def _start(self, task: TaskDir) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-s", "-P", "-m", "detlab.launch.task", "--dir", str(task.root)]
        env = self._environment(task)
        with task.launcher_log.open("ab") as log:
            return subprocess.Popen(command, cwd=task.work, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _environment(self, task: TaskDir) -> dict[str, str]:
        own = Path(os.environ.get("HOME") or "/")
        kept = self._parcel.contents.launch.get("user_home") and own != Path("/") and os.access(own, os.W_OK)
        # The job's variables are no agent's: they are what its image, its modules and its setup script have set.
        env = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED_ON)}
        env |= base_environment(
            os.environ,
            bin_dir=Path(sys.executable).parent,
            home=own if kept else task.home,  # files of a notebook are to outlive it
            user=_user(),
            tmp=task.tmp,
        )
        env["PATH"] = _path(os.environ.get("PATH", ""), str(Path(sys.executable).parent))
        env |= {**self._parcel.environment, "DET_TASK_DIR": str(task.root)}
        env |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        for variable, name in _FILES.items():
            if name in self._parcel.contents.files:
                env[variable] = str(task.root / name)
        return env

    @staticmethod
    def _last_words(task: TaskDir) -> str:
        with suppress(OSError):
            said = task.launcher_log.read_bytes()[-500:].decode("utf-8", errors="replace").strip()
            return f"the launcher of the task ended without a report: {said}"
        return "the launcher of the task ended without a report"

    def _say(self, report: Mapping[str, Any]) -> None:
        """Leave the report where the batch system reads it."""
        if self._exit_file is None:
            return
        message = str(report.get("message") or "")[:LONGEST_MESSAGE]
        text = json.dumps({**report, "message": message, "ended_at": time.time()})
        try:
            self._exit_file.write_text(text, encoding="ascii")
        except OSError as error:
            sys.stderr.write(f"{self._exit_file}: {error}\n")

    # --- the code -----------------------------------------------------------------------------------------

    def _fetch(self, target: Path) -> Path | None:
        """Get the task's code from the master; None if it has none, or is to end meanwhile.

        Raises:
            NotSetUp: It does not exist, is not what its digest says, or the master is away for too long.
        """
        launch = self._parcel.contents.launch
        digest = launch.get("bundle")
        if not digest:
            return None
        backoff, until, told = Backoff(), time.monotonic() + PATIENCE, ""
        while not self._asked:
            try:
                self._download(str(launch["info"]["master_url"]), str(digest), target)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > until:
                    raise NotSetUp(f"bundle {digest}: the master does not answer: {error}") from error
                if str(error) != told:
                    told = str(error)
                    sys.stderr.write(f"detlab: the master at {launch['info']['master_url']} does not answer: {told}\n")
                    sys.stderr.flush()
                again = time.monotonic() + backoff.next_pause()
                while time.monotonic() < again and not self._asked:
                    time.sleep(_LOOK)
            else:
                return target
        return None

    def _download(self, master: str, digest: str, target: Path) -> None:
        parts = urlsplit(master.rstrip("/") + f"/api/v1/bundles/{digest}")
        connection = _connect(master, self._parcel.contents.files.get(PIN_FILE))
        headers = {"Authorization": f"Bearer {self._parcel.contents.token}", "Accept-Encoding": "identity"}
        size = 0
        try:
            connection.request("GET", parts.path, headers=headers)
            reply = connection.getresponse()
            if 400 <= reply.status < 500 and reply.status not in {401, 408, 429}:
                said = reply.read(2000).decode("utf-8", errors="replace")
                raise NotSetUp(f"bundle {digest}: the master answers with status {reply.status}: {said}")
            if reply.status != http.HTTPStatus.OK:
                raise http.client.HTTPException(f"status {reply.status}")
            with target.open("wb") as file:
                while piece := reply.read(1 << 20):
                    size += len(piece)
                    if size > _MOST:
                        raise NotSetUp(f"bundle {digest}: larger than {_MOST} bytes")
                    file.write(piece)
        finally:
            connection.close()
        try:
            found = digest_like(digest, target)
        except UnsafeBundle as error:
            raise NotSetUp(f"bundle {digest}: {error}") from error
        if found != digest:
            raise NotSetUp(f"bundle {digest}: what was downloaded does not match the digest")


def is_loopback(address: str) -> bool:
    """Whether an address is reached from its own machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in {"", "localhost"}


def _connect(master: str, pinned: str | None) -> http.client.HTTPConnection:
    parts = urlsplit(master)
    if parts.scheme != "https":
        return LoopbackConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    context = tls_context(master, pinned)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT, context=context)


def _path(found: str, own: str) -> str:
    """Return the job's PATH, in which our own Python comes first unless it is on it already."""
    return found if own in found.split(os.pathsep) else f"{own}{os.pathsep}{found or SYSTEM_PATH}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the task whose parcel is in the environment; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m detlab.launch.elsewhere", description=__doc__)
    parser.add_argument("--exit-file", type=Path, help="where the batch system reads how the task ended")
    options = parser.parse_args(arguments)
    text = os.environ.pop(VARIABLE, "")
    if not text:
        parser.error(f"{VARIABLE} is not set: the runtime of an agent sets it for the job")
    with tempfile.TemporaryDirectory(prefix="detlab-", ignore_cleanup_errors=True) as folder:
        return Elsewhere(Parcel.decode(text), options.exit_file).run(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
