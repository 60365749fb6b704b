"""Private networks of tasks: the host's links and rules for them, and which of its ports they reach.

The rules are the same for all tasks of an agent: they match its links by the first letters of their names. So the start
of a task changes only its own link on the host, and its end leaves nothing. The rules are in chains named
after the agent, rewritten at its start, and removed when it ends without tasks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import ipaddress
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from detlab.client.transport.discovery import is_loopback
from detlab.launch.environment import SYSTEM_PATH
from detlab.launch.network import ALIAS, LINKS, Forward, NetworkPlan
from detlab.schemas.wire import Launch
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.process.task import sparing

_log = logging.getLogger(__name__)

DEFAULT_SUBNETS = ("10.213.0.0/16", "10.214.0.0/16", "10.215.0.0/16")
"""The first of these that does not overlap a route of this machine is used, unless the operator names another."""
LOCKS = Path("/run/detlab")
"""Folder where each agent with private networks holds a lock named after its links: rules without one are removed."""
PROBE = "probe"
"""Name, instead of an allocation's, of the network that `TaskNetworks.open` tries out."""
TIMEOUT = 30.0
LOOK_SECONDS = 30.0
"""Seconds between two checks, at starts of tasks, whether the rules still exist."""
FEWEST_CONNECTIONS = 4096
"""Connections that one task may have at a time on any machine."""
CLEANING_SECONDS = 5.0
"""Seconds that an agent waits for its lock: another that starts may hold it while it removes abandoned rules."""
_JUMPS = (
    ("nat", "PREROUTING", "PRE"),
    ("nat", "POSTROUTING", "POST"),
    ("filter", "INPUT", "IN"),
    ("filter", "FORWARD", "FWD"),
    ("filter", "OUTPUT", "OUT"),
)
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_RULE = re.compile(r"-p (tcp|udp) .*--dport (\d+) .*--to-destination (127[0-9.]+)")
_HUB_VARIABLES = ("JUPYTERHUB_API_URL", "JUPYTERHUB_ACTIVITY_URL")
"""Set by the Hub in every server's environment, whatever its user asks for."""
_RESOLVER_PORT = 53
_RESOLVERS, _UPSTREAM = Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")
_SYSTEMD = ("127.0.0.53", "127.0.0.54")


class NoPrivateNetwork(Exception):
    """Tasks cannot have networks of their own here; the message says why."""


@dataclass(frozen=True)
class Programs:
    """Absolute paths of the programs that are run."""

    ip: str
    iptables: str
    restore: str

    @classmethod
    def find(cls) -> Programs:
        """Find the programs.

        Raises:
            NoPrivateNetwork: A program is missing.
        """
        path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
        found = {name: shutil.which(name, path=path) for name in ("ip", "iptables", "iptables-restore")}
        missing = [name for name, where in found.items() if where is None]
        if missing:
            raise NoPrivateNetwork(f"{', '.join(missing)} not found (packages iproute2 and iptables)")
        return cls(str(found["ip"]), str(found["iptables"]), str(found["iptables-restore"]))


class TaskNetworks:
    """Give tasks networks of their own.

    Args:
        directory: The agent's directory, after which its links and rules are named.
        subnets: Candidate addresses for links: the first that this machine does not use otherwise is taken.
        ports: Ports of this machine's loopback that every task reaches.
        master: Address by which this agent reaches the master.
    """

    def __init__(self, directory: Path, subnets: Sequence[str], ports: Sequence[int], master: str) -> None:
        self.prefix = own_prefix(directory)
        self._chain = self.prefix.upper()
        self._subnets = [ipaddress.IPv4Network(subnet) for subnet in subnets]
        self._subnet = self._subnets[0]
        self._forwards: set[Forward] = {Forward("127.0.0.1", port) for port in ports}
        self._forwards |= set(forwards_of([master]))
        self._master = master
        self._most_connections: int | None = _most_connections()
        self._looked = 0.0
        self._lock = threading.Lock()
        self._programs = Programs("", "", "")
        self._held = -1

    # --- its life -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the rules, and try them out with a namespace.

        Raises:
            NoPrivateNetwork: Something is missing or refused.
        """
        self._programs = Programs.find()
        try:
            self._hold_lock()
            self._remove_abandoned()
            self._subnet = self._choose_subnet()
            if self._links():  # of tasks of this agent's earlier life
                self._forwards |= self._known_forwards()
            self._forwards |= set(loopback_resolvers())
            with _routed_packets(self._programs):
                self._try_out()
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            raise NoPrivateNetwork(str(error)) from error
        except NoPrivateNetwork:
            self.close()
            raise

    def close(self) -> None:
        """Remove the rules unless tasks still need them."""
        if self._held < 0:
            return
        try:
            if not self._links():
                _remove_rules(self._programs, self._chain)
                (LOCKS / self.prefix).unlink(missing_ok=True)
        except (OSError, NoPrivateNetwork) as error:
            _log.warning("rules of %s stay: %s", self._chain, error)
        os.close(self._held)
        self._held = -1

    def sweep(self, kept: Collection[str]) -> None:
        """Remove the links of tasks that this agent no longer knows: it was killed, and its records were deleted.

        Such a link is identified by its name, which only the holder of this agent's lock uses, and by its alias, which
        is the allocation. Processes that still run behind it are cut off.

        Args:
            kept: The known allocations.
        """
        try:
            said = json.loads(_run([self._programs.ip, "-j", "link", "show", "type", "veth"]) or "[]")
            for link in said:
                name, alias = str(link.get("ifname", "")), str(link.get("ifalias", ""))
                if not name.startswith(self.prefix) or not alias.startswith(ALIAS):
                    continue
                allocation = alias.removeprefix(ALIAS)
                if allocation not in kept and allocation != PROBE:
                    _log.warning(
                        "link %s of task %s is removed: this agent has no record of the task", name, allocation
                    )
                    _run([self._programs.ip, "link", "delete", name])
        except NoPrivateNetwork as error:  # one went by itself meanwhile, with its task
            _log.info("links of unknown tasks: %s", error)

    def plan(self, launch: Launch) -> NetworkPlan | None:
        """Return the plan of the task's network; None for a task on several nodes, whose ranks are reached by address.

        Raises:
            SetupFailed: A rule for what it must reach cannot be made.
        """
        if len(launch.info.container_addrs or ()) > 1:
            return None
        try:
            self._add(self.wanted(launch))
        except (OSError, NoPrivateNetwork) as error:
            raise SetupFailed(f"the task's network: {error}") from error
        return self._plan(launch.allocation_id, self._forwards)

    @staticmethod
    def wanted(launch: Launch) -> list[Forward]:
        """Return the forwards that a launch itself requires: none of them comes from the task's user."""
        hub = [launch.environment.get(name, "") for name in _HUB_VARIABLES] if launch.service is not None else []
        return forwards_of([launch.info.master_url, *hub])

    def _plan(self, key: str, forwards: Iterable[Forward]) -> NetworkPlan:
        ordered = tuple(sorted(forwards, key=lambda one: (one.address, one.port, one.protocol)))
        return NetworkPlan(self.prefix, str(self._subnet), key, ordered, self._programs.ip, self._programs.restore)

    def _add(self, wanted: Iterable[Forward]) -> None:
        with self._lock:
            if not set(wanted) <= self._forwards or self._are_flushed():
                self._forwards |= set(wanted)
                self._write_rules()

    def _are_flushed(self) -> bool:
        """Whether this machine's rules have been flushed: without ours, tasks could reach each other."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        try:
            _run([self._programs.iptables, "-w", "-C", "FORWARD", "-j", f"{self._chain}-FWD"])
        except NoPrivateNetwork:
            _log.warning("the rules of tasks' networks were gone from this machine's iptables: they are made again")
            return True
        return False

    # --- the host -----------------------------------------------------------------------------------------

    def _hold_lock(self) -> None:
        LOCKS.mkdir(mode=0o755, exist_ok=True)
        last = time.monotonic() + CLEANING_SECONDS
        while (held := _locked(LOCKS / self.prefix, os.O_CREAT)) is None:
            if time.monotonic() > last:
                raise NoPrivateNetwork(f"another agent has links named {self.prefix}")
            time.sleep(0.05)
        self._held = held

    def _remove_abandoned(self) -> None:
        """Remove the rules of agents that ended without removing them, once their tasks have ended as well."""
        for path in LOCKS.iterdir():
            if path.name == self.prefix or not re.fullmatch(rf"{LINKS}[0-9a-f]{{4}}", path.name):
                continue
            if (held := _locked(path)) is None:
                continue
            try:
                if not _links_named(path.name):
                    _remove_rules(self._programs, path.name.upper())
                    path.unlink(missing_ok=True)
            finally:
                os.close(held)

    def _links(self) -> list[str]:
        return _links_named(self.prefix)

    def _choose_subnet(self) -> ipaddress.IPv4Network:
        """Return the subnet of running tasks, or else a free one."""
        for name in self._links():
            at = ipaddress.IPv4Address(int(name.removeprefix(self.prefix), 16))
            for subnet in self._subnets:
                if at in subnet:
                    return subnet
        routes = json.loads(_run([self._programs.ip, "-j", "-4", "route", "show"]) or "[]")
        others = [route for route in routes if not str(route.get("dev", "")).startswith(LINKS)]
        used = [str(route["dst"]) for route in others if route.get("dst", "default") != "default"]
        for subnet in self._subnets:
            if not any(ipaddress.IPv4Network(where, strict=False).overlaps(subnet) for where in used):
                return subnet
        raise NoPrivateNetwork(
            f"{', '.join(map(str, self._subnets))} overlaps a route of this machine ({', '.join(used)}): choose other "
            "addresses with --task-subnet"
        )

    def _known_forwards(self) -> set[Forward]:
        """Return the forwards in the rules from before this agent's restart."""
        try:
            text = _run([self._programs.iptables, "-w", "-t", "nat", "-S", f"{self._chain}-PRE"])
        except NoPrivateNetwork:
            return set()
        return {Forward(address, int(port), protocol) for protocol, port, address in _RULE.findall(text)}

    def _write_rules(self) -> None:
        _run([self._programs.restore, "-w", "--noflush"], self.rules())
        for table, chain, own in _JUMPS:
            jump = [chain, "-j", f"{self._chain}-{own}"]
            command = [self._programs.iptables, "-w", "-t", table]
            try:
                _run([*command, "-C", *jump])
            except NoPrivateNetwork:
                _run([*command, "-I", *jump])

    def rules(self) -> str:
        """Return this agent's chains, as iptables-restore reads them.

        From a task: the forwarded ports of the host's loopback and nothing else there; no other task; the world. To a
        task: only replies, also from users of this machine. No task can fill the machine's table of connections.
        """
        name, links, subnet = self._chain, f"{self.prefix}+", self._subnet
        here = (one for one in self._forwards if not one.to)
        ordered = sorted(here, key=lambda one: (one.address, one.port, one.protocol))
        lines = ["*nat", f":{name}-PRE - [0:0]", f":{name}-POST - [0:0]"]
        lines += [
            f"-A {name}-PRE -i {links} -d {subnet} -p {one.protocol} --dport {one.port} "
            f"-j DNAT --to-destination {one.address}"
            for one in ordered
        ]
        lines += [f"-A {name}-POST -s {subnet} ! -o {LINKS}+ -j MASQUERADE", "COMMIT"]
        lines += ["*filter", f":{name}-IN - [0:0]", f":{name}-FWD - [0:0]", f":{name}-OUT - [0:0]"]
        if self._most_connections is not None:  # the table of connections is the whole machine's
            many = f"-m connlimit --connlimit-above {self._most_connections} --connlimit-mask 32"
            lines += [f"-A {name}-{own} -i {links} -m conntrack --ctstate NEW {many} -j DROP" for own in ("IN", "FWD")]
        lines += [
            f"-A {name}-IN -i {links} -d 127.0.0.0/8 -m conntrack --ctstate DNAT -j ACCEPT",
            f"-A {name}-IN -i {links} -d 127.0.0.0/8 -j DROP",
            f"-A {name}-FWD -i {links} -o {LINKS}+ -j DROP",
            f"-A {name}-FWD -i {links} -j ACCEPT",
            f"-A {name}-FWD -o {links} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-A {name}-FWD -o {links} -j DROP",
            f"-A {name}-OUT -o {links} -m conntrack --ctstate NEW -j DROP",
        ]
        return "\n".join([*lines, "COMMIT", ""])

    def _try_out(self) -> None:
        """Make a namespace like a task's, and connect from it to a port of this process and to the master.

        Raises:
            NoPrivateNetwork: That does not work. The master counts only if this machine itself reaches it now.
        """
        beyond = self._master_beyond()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            probe = Forward("127.0.0.1", int(listening.getsockname()[1]))
            self._forwards.add(probe)
            self._write_first_rules()
            try:
                plan = self._plan(PROBE, [probe])
                command = [sys.executable, "-s", "-P", "-m", "detlab.launch.network", plan.encode()]
                _run([*command, *(beyond or ())], keep_path=True)
            finally:
                self._forwards.discard(probe)
        self._write_rules()
        self._looked = time.monotonic()

    def _write_first_rules(self) -> None:
        try:
            self._write_rules()
        except NoPrivateNetwork as error:
            self._most_connections = None
            self._write_rules()
            _log.warning("tasks may open any number of connections: this kernel does not count them (%s)", error)

    def _master_beyond(self) -> tuple[str, str] | None:
        """Return host and port of a master that is not on this machine's loopback and that answers now.

        Raises:
            NoPrivateNetwork: It is on the loopback of IPv6, to which no port can be forwarded.
        """
        parts = urlsplit(self._master)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if is_loopback(host):
            if ":" in host:
                raise NoPrivateNetwork(
                    f"the master's address is {host}; from a task's network only 127.0.0.1 is reached"
                )
            return None
        try:
            socket.create_connection((host, port), timeout=5.0).close()
        except OSError:  # it is away: what a task would see cannot be told
            return None
        return host, str(port)


def own_prefix(directory: Path) -> str:
    """Return the first letters of the names of an agent's links, which its directory decides."""
    return LINKS + hashlib.sha256(os.fsencode(directory)).hexdigest()[:4]


def forwards_of(urls: Iterable[str]) -> list[Forward]:
    """Return the ports of this machine's loopback that addresses name."""
    found = []
    for url in urls:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if host and is_loopback(host) and ":" not in host:
            address = host if host[0].isdigit() else "127.0.0.1"
            found.append(Forward(address, parts.port or (443 if parts.scheme == "https" else 80)))
    return found


def loopback_resolvers(path: Path = _RESOLVERS, upstream: Path = _UPSTREAM) -> list[Forward]:
    """Return the name servers on this machine's loopback, since names must resolve in a task as well.

    Args:
        path: The file that programs read.
        upstream: File with the servers that systemd-resolved uses. It answers on the device lo only, so that tasks use
            those.
    """
    asked = [address for address in _name_servers(upstream) if not address.startswith("127.") and ":" not in address]
    found = []
    for address in _name_servers(path):
        if address.startswith("127."):
            to = asked[0] if address in _SYSTEMD and asked else ""
            found += [Forward(address, _RESOLVER_PORT, protocol, to) for protocol in ("tcp", "udp")]
    return found


def _name_servers(path: Path) -> list[str]:
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    return [line[1] for line in lines if len(line) > 1 and line[0] == "nameserver"]


@contextlib.contextmanager
def _routed_packets(programs: Programs) -> Iterator[None]:
    """Make the kernel forward packets. If it did not before, it still does not for others, as with Docker.

    Frames between the ports of a bridge are not routed: they pass as before. Changes are undone if the block fails.
    """
    switch = Path("/proc/sys/net/ipv4/ip_forward")
    if switch.read_text(encoding="ascii").strip() != "0":
        yield
        return
    command = [programs.iptables, "-w", "-P", "FORWARD"]
    before = "DROP" if "-P FORWARD DROP" in _run([programs.iptables, "-w", "-S", "FORWARD"]) else "ACCEPT"
    with contextlib.ExitStack() as undo:
        if before == "ACCEPT":
            _pass_bridged(programs, undo)
            undo.callback(_run, [*command, before])
        _run([*command, "DROP"])
        undo.callback(switch.write_text, "0", encoding="ascii")
        switch.write_text("1", encoding="ascii")
        _log.info(
            "packets of tasks are forwarded: net.ipv4.ip_forward is 1 now, and the policy of iptables' FORWARD DROP"
        )
        yield
        undo.pop_all()


def _pass_bridged(programs: Programs, undo: contextlib.ExitStack) -> None:
    """Let frames between the ports of a bridge through the chain FORWARD, if this kernel shows them to it."""
    try:
        shown = _BRIDGED.read_text(encoding="ascii").strip() != "0"
    except OSError:  # no: and to match them would load the module that does
        return
    if shown:
        rule = ["FORWARD", "-m", "physdev", "--physdev-is-bridged", "-j", "ACCEPT"]
        try:
            _run([programs.iptables, "-w", "-A", *rule])
        except NoPrivateNetwork as error:
            _log.warning("what is on a bridge of this machine may not reach its neighbours now (%s)", error)
        else:
            undo.callback(_run, [programs.iptables, "-w", "-D", *rule])


def _most_connections() -> int:
    """Return how many connections one task may have: a sixteenth of what this machine can track."""
    try:
        most = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return FEWEST_CONNECTIONS
    return max(FEWEST_CONNECTIONS, most // 16)


def _locked(path: Path, flags: int = 0) -> int | None:
    """Open and lock a file that its holder may remove; None where another holds it, or it has gone meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except FileNotFoundError:
        return None
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                undo.pop_all()
                return descriptor
    return None


def _links_named(prefix: str) -> list[str]:
    return [name for _, name in socket.if_nameindex() if name.startswith(prefix)]


def _remove_rules(programs: Programs, name: str) -> None:
    for table, chain, own in _JUMPS:
        command = [programs.iptables, "-w", "-t", table]
        for words in (["-D", chain, "-j", f"{name}-{own}"], ["-F", f"{name}-{own}"], ["-X", f"{name}-{own}"]):
            with contextlib.suppress(NoPrivateNetwork):  # it was not there
                _run([*command, *words])


def _run(command: Sequence[str], text: str = "", *, keep_path: bool = False) -> str:
    """Run a program; return its output.

    Raises:
        NoPrivateNetwork: It failed.
    """
    environment = dict(os.environ) if keep_path else {}
    try:
        with sparing():  # a child of this agent without a task
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT, env=environment
            )
    except subprocess.TimeoutExpired as error:
        raise NoPrivateNetwork(f"{command[0]} did not end within {TIMEOUT:g} s") from error
    if done.returncode != 0:
        raise NoPrivateNetwork(f"{' '.join(command[:6])}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout
