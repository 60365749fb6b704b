"""Network namespaces around one bridge: machines on one machine, whose cables can be pulled. For root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_PROGRAM = shutil.which("ip") or "/usr/sbin/ip"


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run([_PROGRAM, *words], capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def why_not() -> str | None:
    """Why this machine cannot have them; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces are root's to make"
    name = f"dt{os.getpid()}x"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, RuntimeError) as error:
        return f"no network namespaces here: {error}"
    return None


@contextmanager
def _passed_by_iptables(bridge: str) -> Iterator[None]:
    """Let frames through from one port of a bridge to another where iptables sees them and drops what it forwards."""
    program = shutil.which("iptables", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    rule = ["FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"]

    def change(option: str) -> None:
        if program is not None:
            subprocess.run([program, "-w", option, *rule], capture_output=True, timeout=30, check=False)

    change("-I")
    try:
        yield
    finally:
        change("-D")


def _end_all(name: str) -> None:
    """End what still runs in a namespace: tasks outlive their agent."""
    found = subprocess.run([_PROGRAM, "netns", "pids", name], capture_output=True, text=True, timeout=30, check=False)
    for pid in map(int, found.stdout.split()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Island:
    """One namespace."""

    name: str
    cable: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """Put before a command, which then runs there, as the same process."""
        return ["nsenter", f"--net=/run/netns/{self.name}", "--"]

    def cut(self) -> None:
        """Pull its cable: nothing comes through any more, and nobody is told."""
        _ip("link", "set", "dev", self.cable, "down")

    @contextmanager
    def address_taken(self) -> Iterator[None]:
        """This machine answers at its address, as somebody else in its network could."""
        self.cut()
        _ip("addr", "add", f"{self.address}/32", "dev", "lo")
        try:
            yield
        finally:
            _ip("addr", "del", f"{self.address}/32", "dev", "lo")
            self.mend()

    def mend(self) -> None:
        """Put it back."""
        _ip("link", "set", "dev", self.cable, "up")


@dataclass(frozen=True)
class Sea:
    """The bridge, with this machine's own address on it, and who is connected."""

    address: str
    islands: list[Island]


@contextmanager
def sea(count: int) -> Iterator[Sea]:
    """Make a bridge and so many namespaces on it, for the time of the context; they reach each other."""
    with bridged(count) as found, _passed_by_iptables(f"dt{os.getpid()}b"):
        yield found


@contextmanager
def bridged(count: int) -> Iterator[Sea]:
    """Make the same, without a rule for iptables."""
    mark, net = f"dt{os.getpid()}", f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 250}"
    bridge = f"{mark}b"
    islands = [Island(f"{mark}n{n}", f"{mark}v{n}", f"{net}.{n + 2}") for n in range(count)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for island in islands:
            _ip("netns", "add", island.name)
            _ip("link", "add", island.cable, "type", "veth", "peer", "name", "eth0", "netns", island.name)
            _ip("link", "set", island.cable, "master", bridge, "up")
            for words in (
                ("addr", "add", f"{island.address}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip("-n", island.name, *words)
        yield Sea(f"{net}.1", islands)
    finally:
        for island in islands:
            _end_all(island.name)
            _ip("link", "del", island.cable, check=False)
            _ip("netns", "del", island.name, check=False)
        _ip("link", "del", bridge, check=False)
