"""A private Docker engine for tests: its own containerd and dockerd in a folder, so that each can be killed alone.

As a module: `with engine() as docker: docker.url`. From the shell:

    python tests/testbed/containers/docker.py up DIRECTORY     # start (or find) it, build the image, print DOCKER_HOST
    python tests/testbed/containers/docker.py down DIRECTORY   # end its containers, stop it, remove the folder

It needs root and Debian's packages docker.io and busybox-static (tests/testbed/system_packages.sh). It shares nothing
with an engine that runs already: a socket, a bridge and an address range of its own, and no firewall rules, so that
containers on the bridge reach this machine and nothing else. Containers outlive the engine (live-restore).
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "detlab-docker-"
SECONDS = 30.0
"""How long a start or a stop may take."""


class CannotRun(Exception):
    """The engine cannot run here; the message says why."""


@dataclass(frozen=True)
class Engine:
    """An engine in a folder; what is running is known by its pid files."""

    directory: Path

    @property
    def socket(self) -> Path:
        """The engine's socket."""
        return self.directory / "docker.sock"

    @property
    def url(self) -> str:
        """What DOCKER_HOST says."""
        return f"unix://{self.socket}"

    @property
    def gateway(self) -> str:
        """This machine's address on the engine's bridge."""
        return (self.directory / "gateway").read_text(encoding="ascii")

    # --- life ---------------------------------------------------------------------------------------------

    def start(self, *options: str, live_restore: bool = True, programs: Path | None = None) -> None:
        """Start what does not run, and wait until it answers.

        Args:
            options: Further ones of dockerd.
            live_restore: Whether containers outlive it.
            programs: A folder of programs that dockerd finds before all others.

        Raises:
            CannotRun: It does not start; the message has the end of its log.
        """
        self._start_containerd()
        if not self.answers():
            (self.directory / "dockerd.pid").unlink(missing_ok=True)
            live = ("--live-restore",) if live_restore else ()
            self._spawn("dockerd", [*self._dockerd(), *live, *options], programs)
            self._wait("dockerd", self.answers)

    def _start_containerd(self) -> None:
        address = self.directory / "exec/containerd.sock"
        if alive(self._pid("containerd")):
            return
        address.unlink(missing_ok=True)
        (self.directory / "containerd.toml").write_text(
            f'version = 2\nroot = "{self.directory}/containerd"\nstate = "{self.directory}/exec/containerd"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\noom_score = 0\n[grpc]\naddress = "{address}"\n'
        )
        self._spawn("containerd", ["containerd", "--config", str(self.directory / "containerd.toml")])
        self._wait("containerd", lambda: _accepts(address))

    def _dockerd(self) -> list[str]:
        where = self.directory
        return [
            *("dockerd", "--host", self.url, "--data-root", f"{where}/data", "--exec-root", f"{where}/exec/docker"),
            *("--pidfile", f"{where}/dockerd.pid", "--containerd", f"{where}/exec/containerd.sock"),
            *("--bridge", self._bridge(), "--iptables=false", "--ip-masq=false", "--ip-forward=false"),
            *("--default-shm-size", "64m", "--shutdown-timeout", "5"),
        ]

    def kill(self, part: str) -> None:
        """SIGKILL `dockerd` or `containerd`; containers run on."""
        _end(self._pid(part), signal.SIGKILL)

    def stop(self) -> None:
        """Stop dockerd as its service would be stopped; with live-restore containers run on."""
        _end(self._pid("dockerd"), signal.SIGTERM)

    def answers(self) -> bool:
        """Whether the engine answers."""
        return self.request("GET", "/_ping")[0] == 200

    def containers(self, *, running: bool = False) -> list[str]:
        """Ids of all containers, or of those that run."""
        path = "/containers/json" if running else "/containers/json?all=1"
        return re.findall(r'"Id":"([0-9a-f]{64})"', self.request("GET", path)[1].decode())

    def add_image(self, name: str, archive: bytes, *changes: str) -> None:
        """Make an image of a tar of its files; `changes` are lines of a Dockerfile."""
        repository, _, tag = name.partition(":")
        query = f"fromSrc=-&repo={repository}&tag={tag or 'latest'}"
        query += "".join(f"&changes={line.replace(' ', '%20')}" for line in changes)
        status, reply = self.request("POST", f"/images/create?{query}", archive)
        if status != 200 or b'"error"' in reply:
            raise CannotRun(f"image {name}: {reply.decode(errors='replace')}")

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Ask the engine; status 0 when nobody answers."""
        connection = http.client.HTTPConnection("localhost", timeout=SECONDS)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(SECONDS)
        try:
            connection.sock.connect(str(self.socket))
            connection.request(method, path, body, {"Content-Type": "application/x-tar"} if body else {})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def remove_containers(self) -> None:
        """End and remove every container."""
        for container in self.containers():
            self.request("DELETE", f"/containers/{container}?force=1&v=1")

    # --- inside -------------------------------------------------------------------------------------------

    def _pid(self, part: str) -> int | None:
        try:
            return int((self.directory / f"{part}.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def _spawn(self, part: str, command: Sequence[str], programs: Path | None = None) -> None:
        path = os.environ.get("PATH", os.defpath)
        environ = {**os.environ, "PATH": path if programs is None else f"{programs}:{path}"}
        with (self.directory / f"{part}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        _children[process.pid] = process
        if part == "containerd":
            (self.directory / "containerd.pid").write_text(str(process.pid), encoding="ascii")

    def _wait(self, part: str, ready: object) -> None:
        deadline = time.monotonic() + SECONDS
        while not ready():
            if time.monotonic() > deadline:
                log = (self.directory / f"{part}.log").read_text(errors="replace").splitlines()[-10:]
                raise CannotRun(f"{part} did not start:\n" + "\n".join(log))
            time.sleep(0.02)

    def _bridge(self) -> str:
        """Return the bridge of this engine, made in the first free range of addresses."""
        name = f"dlb{self.directory.stat().st_ino % 10**9}"
        if Path(f"/sys/class/net/{name}").exists():
            return name
        _ip("link", "add", "name", name, "type", "bridge")
        for number in range(os.getpid() % 200, os.getpid() % 200 + 50):
            gateway = f"10.213.{number}.1"
            if f"{gateway}/24" not in _ip("-4", "addr", "show"):
                break
        _ip("addr", "add", f"{gateway}/24", "dev", name)
        _ip("link", "set", name, "up")
        (self.directory / "gateway").write_text(gateway, encoding="ascii")
        return name


_children: dict[int, subprocess.Popen[bytes]] = {}


def up(directory: Path | None = None) -> Engine:
    """Return the running engine of `directory` (default: a new one), starting it if need be.

    Raises:
        CannotRun: Not root, not installed, or it does not start.
    """
    if os.geteuid() != 0:
        raise CannotRun("needs root: a Docker engine of the tests' own")
    for program in ("dockerd", "containerd", "runc", "busybox"):
        if _which(program) is None:
            raise CannotRun(f"{program} is not installed; sh tests/testbed/system_packages.sh")
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    directory = directory.absolute()
    (directory / "exec").mkdir(parents=True, exist_ok=True)
    directory.chmod(0o711)
    if not (directory / "owner").exists():
        (directory / "owner").write_text(str(os.getpid()), encoding="ascii")
    found = Engine(directory)
    found.start()
    return found


def down(directory: Path) -> None:
    """End the containers, stop the engine and remove its folder; whatever of it is still there."""
    found = Engine(directory.absolute())
    if found.answers():
        found.remove_containers()
    for part in ("dockerd", "containerd"):
        _end(found._pid(part), signal.SIGTERM)
    _end_shims(directory)
    for line in reversed(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()):
        where = line.split()[4]
        if where.startswith(f"{directory.absolute()}/"):
            subprocess.run(["umount", "-l", where], check=False, capture_output=True)
    if directory.exists():
        bridge = f"dlb{directory.stat().st_ino % 10**9}"
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)


def sweep() -> None:
    """Take down engines whose test run was killed before it could do so."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/owner"):
        pid = owner.read_text(encoding="ascii").strip()
        if owner.stat().st_uid == os.getuid() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            down(owner.parent)


@contextmanager
def engine() -> Iterator[Engine]:
    """A new engine, and its end."""
    sweep()
    found = up()
    try:
        yield found
    finally:
        down(found.directory)


def alive(pid: int | None) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return pid is not None and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _end(pid: int | None, number: signal.Signals) -> None:
    """Signal a process and wait for its end; SIGKILL if it takes too long."""
    if pid is None:
        return
    deadline = time.monotonic() + SECONDS
    while alive(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        inner = time.monotonic() + 10
        while alive(pid) and time.monotonic() < inner:
            time.sleep(0.02)
        number = signal.SIGKILL
        if time.monotonic() > deadline:
            raise CannotRun(f"process {pid} does not end")
    child = _children.pop(pid, None)
    if child is not None:
        child.wait()


def _end_shims(directory: Path) -> None:
    """End the helpers of containers that a killed engine left."""
    mark = str(directory.absolute()).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if b"containerd-shim" in command.split(b"\0")[0] and mark in command:
                os.kill(int(entry.name), signal.SIGKILL)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _ip(*arguments: str) -> str:
    program = [_which("ip") or "ip"] if _which("ip") else ["busybox", "ip"]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRun(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) != 2 or not re.fullmatch("up|down", arguments[0]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if arguments[0] == "down":
            down(Path(arguments[1]))
        else:
            from testbed.containers import docker_images

            running = up(Path(arguments[1]))
            docker_images.build_all(running)
            print(running.url)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # this file's own folder would hide the package `docker`
    raise SystemExit(main(sys.argv[1:]))
