"""Keep tasks away from a cloud's metadata service: it gives this machine's credentials to whoever can connect.

What runs as root here still reaches it. Names and time, which some clouds serve at the same address, stay open.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from detlab.launch.environment import SYSTEM_PATH
from detlab_agent.runtimes.process.task import sparing
from detlab_agent.settings import AgentError

_log = logging.getLogger(__name__)

ADDRESSES = (
    "169.254.169.0/24",  # AWS, Google, Azure, Oracle, OpenStack, DigitalOcean
    "169.254.170.0/24",  # AWS: roles of containers
    "169.254.42.42/32",  # Scaleway
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure: what its agents speak to
)
ADDRESSES6 = ("fd00:ec2::/64", "fd20:ce::/64", "fd00:42::42/128")
_OPEN = (("udp", 53), ("tcp", 53), ("udp", 123))
"""Names and time."""
_OUT, _IN = "DETLAB-METADATA", "DETLAB-METADATA-IN"
_JUMPS = (("filter", "OUTPUT", _OUT), ("raw", "PREROUTING", _IN))
TIMEOUT = 30.0
PERIOD = 5.0
"""Seconds between two looks whether the rules are still there, and in the first place."""
_FRESH = 1.0
"""Seconds for which a look is good: tasks that start together need one."""


class MetadataGuard:
    """The rules of this machine's firewall; they stay when the agent ends, as its tasks may.

    What a task in the machine's own network sends is refused in OUTPUT, by its uid. What comes out of a network
    namespace or of a container is dropped before it is routed: no order of rules in FORWARD matters there, which
    others write anew. Both are the first rule of their chain: an earlier one may let everything pass. A firewall
    that is loaded again flushes them, so they are looked for before each task starts, and every `PERIOD`.
    """

    def __init__(self) -> None:
        self._looked = -math.inf
        self._lock = threading.Lock()
        path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
        families: list[tuple[str, tuple[str, ...]]] = [("iptables", ADDRESSES)]
        if Path("/proc/net/if_inet6").exists():
            families.append(("ip6tables", ADDRESSES6))
        self._families = [(name, shutil.which(name, path=path), addresses) for name, addresses in families]

    def open(self) -> None:
        """Make the rules.

        Raises:
            AgentError: They cannot be made.
        """
        if os.geteuid() != 0:
            raise AgentError("--task-metadata block: only an agent that is root can make rules of the firewall")
        for name, program, addresses in self._families:
            try:
                if program is None:
                    raise OSError(f"{name} not found (package iptables)")
                _run([f"{program}-restore", "-w", "--noflush"], rules(addresses))
                for table, chain, own in _JUMPS:
                    _jump_first(program, table, chain, own)
            except (OSError, subprocess.SubprocessError) as error:
                raise AgentError(
                    f"--task-metadata block: {error}. Tasks could take this machine's credentials from the cloud; "
                    "--task-metadata allow lets them"
                ) from error

    def is_there(self) -> bool:
        """Whether the rules are as they were made, and where."""
        try:
            return all(
                program is not None
                and _places_of(program, table, chain, own) == [1]
                and _ends_in_refusal(program, table, own)
                for _, program, _ in self._families
                for table, chain, own in _JUMPS
            )
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("the rules that keep tasks from the metadata service cannot be looked at: %s", error)
            return False

    def hold(self, fresh: float = _FRESH) -> None:
        """Make the rules again if somebody has removed them, or put others in front.

        Args:
            fresh: Seconds for which an earlier look is good.

        Raises:
            AgentError: They cannot be made.
        """
        with self._lock:
            if time.monotonic() - self._looked < fresh:
                return
            if not self.is_there():
                _log.warning("the rules that keep tasks from the metadata service were gone: they are made again")
                self.open()
            self._looked = time.monotonic()

    async def keep(self) -> None:
        """Hold the rules, for ever."""
        while True:
            try:
                await asyncio.to_thread(self.hold)
            except AgentError as error:
                _log.error("tasks reach the cloud's metadata service: %s", error)
            await asyncio.sleep(PERIOD)


def rules(addresses: Sequence[str]) -> str:
    """Return our chains, as iptables-restore reads them."""
    opened = [f"-p {protocol} --dport {port} -j RETURN" for protocol, port in _OPEN]
    reset = [f"-d {one} -p tcp -j REJECT --reject-with tcp-reset" for one in addresses]
    refused = [*reset, *(f"-d {one} -j REJECT" for one in addresses)]
    dropped = [f"-d {one} -j DROP" for one in addresses]
    out = [f"-A {_OUT} {rule}" for rule in ("-m owner --uid-owner 0 -j RETURN", *opened, *refused)]
    passing = [f"-A {_IN} {rule}" for rule in ("-i lo -j RETURN", *opened, *dropped)]
    filtered = ["*filter", f":{_OUT} - [0:0]", *out, "COMMIT"]
    return "\n".join([*filtered, "*raw", f":{_IN} - [0:0]", *passing, "COMMIT", ""])


def _jump_first(program: str, table: str, chain: str, own: str) -> None:
    """Have the chain begin with the one jump into ours; at no moment is there none, if there was one."""
    if _places_of(program, table, chain, own)[:1] != [1]:
        _run([program, "-w", "-t", table, "-I", chain, "1", "-j", own])
    for place in reversed(_places_of(program, table, chain, own)[1:]):
        _run([program, "-w", "-t", table, "-D", chain, str(place)])


def _places_of(program: str, table: str, chain: str, own: str) -> list[int]:
    """Return which of the chain's rules, counted from 1, jump into ours unconditionally."""
    listed = [line for line in _run([program, "-w", "-t", table, "-S", chain]).splitlines() if line.startswith("-A ")]
    return [place for place, line in enumerate(listed, 1) if line.strip() == f"-A {chain} -j {own}"]


def _ends_in_refusal(program: str, table: str, own: str) -> bool:
    listed = _run([program, "-w", "-t", table, "-S", own]).splitlines()
    return bool(listed) and any(word in listed[-1] for word in ("REJECT", "DROP"))


def _run(command: Sequence[str], text: str = "") -> str:
    with sparing():
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT, env={})
    if done.returncode != 0:
        raise OSError(f"{' '.join(command[:6])}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout
