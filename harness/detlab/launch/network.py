"""A network namespace for one task: a link to the host, its own loopback, and ways to a few of the host's ports.

The process that becomes a task's launcher enters it while it is still root. The kernel removes the namespace, and with
it the link, when the last process of the task has ended: no clean-up is needed, whichever process dies first.

A service on the host's loopback keeps its address inside: `127.0.0.1:PORT` is translated to the host's end of the link
here, and back to `127.0.0.1:PORT` there, by rules that the agent keeps (`detlab_agent.runtimes.process.network`). Only
the standard library is imported here.
"""

from __future__ import annotations

import ctypes
import ipaddress
import json
import os
import socket
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_CLONE_NEWNET = 0x40000000
_SYSCTL = Path("/proc/sys/net")
INSIDE = "eth0"
"""Name of the link in the namespace."""
LINKS = "det"
"""First letters of every link of every agent of this machine."""
ALIAS = "detlab:"
"""With the key of its plan the alias of a link on the host: whose it is."""
_THERE_ALREADY = "File exists"
"""What `ip` says of a link, an address or a route that somebody else has made."""
TIMEOUT = 30.0
PRIVATE, HOST = "private", "host"
"""What DET_NETWORK says."""


class NetworkFailed(Exception):
    """The namespace cannot be made; the message says what failed."""


@dataclass(frozen=True)
class Forward:
    """A port of the host's loopback that the task reaches under the same address.

    Attributes:
        address: On the host, in 127.0.0.0/8.
        port: Its number.
        protocol: tcp or udp.
        to: Where it really is, if that is another machine: the same port there.
    """

    address: str
    port: int
    protocol: str = "tcp"
    to: str = ""


@dataclass(frozen=True)
class NetworkPlan:
    """How a task's namespace is made.

    Attributes:
        prefix: First letters of the names of this agent's links on the host.
        subnet: Addresses for links, four for each.
        key: Says where in the subnet a free place is looked for first.
        forwards: What the task reaches on the host's loopback.
        ip: The program of that name.
        restore: The program iptables-restore.
    """

    prefix: str
    subnet: str
    key: str
    forwards: tuple[Forward, ...]
    ip: str
    restore: str

    def encode(self) -> str:
        """Return the plan as one argument of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> NetworkPlan:
        """Read a plan of our own agent."""
        value: dict[str, Any] = json.loads(text)
        return cls(**{**value, "forwards": tuple(Forward(**one) for one in value["forwards"])})


@dataclass(frozen=True)
class NetworkLink:
    """The two ends of a link.

    Attributes:
        name: Of the host's end: it names the addresses, so that no two tasks get the same ones.
        gateway: Where the task reaches the host.
        own: Address of the task's end.
    """

    name: str
    gateway: str
    own: str


def link_at(plan: NetworkPlan, index: int) -> NetworkLink:
    """Return the link of this number."""
    base = ipaddress.IPv4Network(plan.subnet)[4 * index]
    return NetworkLink(f"{plan.prefix}{int(base):08x}", str(base + 1), str(base + 2))


def enter(plan: NetworkPlan) -> None:
    """Move this process into a new network namespace that is ready for a task; needs root and one thread.

    Raises:
        NetworkFailed: The kernel, `ip` or `iptables-restore` refused.
    """
    try:
        host = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _libc("unshare", _CLONE_NEWNET)
        ours = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _libc("setns", host, _CLONE_NEWNET)
            try:
                link = _make_link(plan, ours)
            finally:
                _libc("setns", ours, _CLONE_NEWNET)
        finally:
            os.close(host)
            os.close(ours)
        _set_up_inside(plan, link)
    except OSError as error:
        raise NetworkFailed(f"a network namespace for the task: {error}") from error


def _make_link(plan: NetworkPlan, namespace: int) -> NetworkLink:
    """Make a link from the host, where we are, into a namespace.

    Raises:
        NetworkFailed: The subnet is used up, or `ip` refused.
    """
    places = ipaddress.IPv4Network(plan.subnet).num_addresses // 4
    first = zlib.crc32(plan.key.encode())
    for step in range(places):
        link = link_at(plan, (first + step) % places)
        if _at_place(plan, link):
            continue
        try:
            _run(
                [plan.ip, "-batch", "-"],
                [f"link add {link.name} type veth peer name {INSIDE} netns /proc/self/fd/{namespace}"],
                (namespace,),
            )
        except NetworkFailed as error:
            if _THERE_ALREADY in str(error):
                continue  # another task was quicker; it may have ended since
            raise
        try:
            _set_up_outside(plan, link)
        except NetworkFailed as error:
            _run([plan.ip, "link", "delete", link.name], ())
            taken = _taken(plan, link)
            if taken is not None:
                raise taken from error
            if _THERE_ALREADY in str(error):
                continue  # another agent's task was quicker; it may have ended since
            raise
        return link
    raise NetworkFailed(f"all {places} links of {plan.subnet} are in use; see the agent's --task-subnet")


def _at_place(plan: NetworkPlan, link: NetworkLink) -> bool:
    """Whether a link of any agent of this machine has these addresses."""
    place = link.name.removeprefix(plan.prefix)
    there = (name for _, name in socket.if_nameindex() if name.startswith(LINKS) and name.endswith(place))
    return any(len(name) == len(link.name) for name in there)


def _taken(plan: NetworkPlan, link: NetworkLink) -> NetworkFailed | None:
    """Return the error of a link whose addresses another program has, which it names; None where nobody has them."""
    holders = []
    for address in (link.gateway, link.own):
        holders += _run([plan.ip, "route", "show", "table", "all", "exact", f"{address}/32"], ()).splitlines()
    holders = [holder for holder in holders if f" dev {LINKS}" not in holder]
    if not holders:
        return None
    return NetworkFailed(
        f"the addresses {link.gateway} and {link.own} of a task's link are taken on this machine: "
        f"{'; '.join(' '.join(holder.split()) for holder in holders)}. Another program seems to use addresses of "
        f"{plan.subnet}. Look: ip route show table all root {plan.subnet}. Choose others: det agent run --task-subnet"
    )


def _set_up_outside(plan: NetworkPlan, link: NetworkLink) -> None:
    """Lead the gateway's address here and the task's into the link, by routes, which go with it.

    The device has no address of its own: where one comes or goes, browsers on this machine give up all requests that
    wait for a connection (ERR_NETWORK_CHANGED), and tasks start and end all the time.
    """
    _set("ipv6", link.name, "disable_ipv6", "1")
    _set("ipv4", link.name, "route_localnet", "1")
    lines = [
        f"link set {link.name} alias {ALIAS}{plan.key}",
        f"link set {link.name} up",
        f"route add local {link.gateway}/32 dev {link.name} table local",
        f"route add {link.own}/32 dev {link.name}",
    ]
    _run([plan.ip, "-batch", "-"], lines)


def _set_up_inside(plan: NetworkPlan, link: NetworkLink) -> None:
    _set("ipv6", INSIDE, "disable_ipv6", "1")
    lines = [
        "link set lo up",
        f"addr add {link.own}/30 dev {INSIDE}",
        f"link set {INSIDE} up",
        f"route add default via {link.gateway}",
    ]
    _run([plan.ip, "-batch", "-"], lines)
    if not plan.forwards:
        return
    for device in ("all", INSIDE):
        _set("ipv4", device, "route_localnet", "1")
    rules = [
        f"-A OUTPUT -d {one.address}/32 -p {one.protocol} --dport {one.port} "
        f"-j DNAT --to-destination {one.to or link.gateway}"
        for one in plan.forwards
    ]
    rules = ["*nat", *rules, f"-A POSTROUTING -o {INSIDE} -j SNAT --to-source {link.own}", "COMMIT"]
    _run([plan.restore, "-w"], rules)


def _set(family: str, device: str, name: str, value: str) -> None:
    path = _SYSCTL / family / "conf" / device / name
    if family == "ipv6" and not path.exists():  # a kernel without IPv6
        return
    path.write_text(value, encoding="ascii")


def _run(command: Sequence[str], lines: Sequence[str], descriptors: Sequence[int] = ()) -> str:
    try:
        done = subprocess.run(
            command,
            input="\n".join([*lines, ""]),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            pass_fds=descriptors,
            env={},
        )
    except subprocess.TimeoutExpired as error:
        raise NetworkFailed(f"{command[0]} did not end within {TIMEOUT:g} s") from error
    if done.returncode != 0:
        raise NetworkFailed(f"{' '.join(command)}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout


def _libc(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _reach(host: str, port: str) -> None:
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError as error:
        raise NetworkFailed(
            f"{host}:{port}, where the master is, is reached from this machine but not from a task's network ({error}):"
            " a firewall of this machine may refuse what it forwards, or the address is one of IPv6"
        ) from error


def main(arguments: Sequence[str]) -> int:
    """Try a plan: enter a namespace, connect to each of its forwarded ports, and to HOST PORT if they are given.

    Returns:
        The exit status.
    """
    plan, *beyond = NetworkPlan.decode(arguments[0]), *arguments[1:]
    try:
        enter(plan)
        for one in plan.forwards:
            socket.create_connection((one.address, one.port), timeout=5.0).close()
        if beyond:
            _reach(*beyond)
    except (NetworkFailed, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
