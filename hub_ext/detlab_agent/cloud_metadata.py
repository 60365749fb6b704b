"""Keep tasks away from a cloud's metadata service: it gives this machine's credentials to whoever can connect.

What runs as root here still reaches it. Names and time, which some clouds serve at the same address, stay open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
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
PERIOD = 30.0
"""Seconds between two looks whether the rules are still there."""


class MetadataGuard:
    """The rules of this machine's firewall; they stay when the agent ends, as its tasks may.

    What a task in the machine's own network sends is refused in OUTPUT, by its uid. What comes out of a network
    namespace or of a container is dropped before it is routed: no order of rules in FORWARD matters there, which
    others write anew.
    """

    def __init__(self) -> None:
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
                    if not _has(program, table, chain, own):
                        _run([program, "-w", "-t", table, "-I", chain, "-j", own])
            except (OSError, subprocess.SubprocessError) as error:
                raise AgentError(
                    f"--task-metadata block: {error}. Tasks could take this machine's credentials from the cloud; "
                    "--task-metadata allow lets them"
                ) from error

    def is_there(self) -> bool:
        """Whether the rules are as they were made."""
        try:
            return all(
                program is not None and _has(program, table, chain, own) and _ends_in_refusal(program, table, own)
                for _, program, _ in self._families
                for table, chain, own in _JUMPS
            )
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("the rules that keep tasks from the metadata service cannot be looked at: %s", error)
            return True

    async def keep(self) -> None:
        """Make the rules again whenever somebody has removed them; for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            if not await asyncio.to_thread(self.is_there):
                _log.warning("the rules that keep tasks from the metadata service were gone: they are made again")
                try:
                    await asyncio.to_thread(self.open)
                except AgentError as error:
                    _log.error("tasks reach the cloud's metadata service: %s", error)


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


def _has(program: str, table: str, chain: str, own: str) -> bool:
    command = [program, "-w", "-t", table, "-C", chain, "-j", own]
    with sparing():
        done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT, env={})
    return done.returncode == 0


def _ends_in_refusal(program: str, table: str, own: str) -> bool:
    listed = _run([program, "-w", "-t", table, "-S", own]).splitlines()
    return bool(listed) and any(word in listed[-1] for word in ("REJECT", "DROP"))


def _run(command: Sequence[str], text: str = "") -> str:
    with sparing():
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT, env={})
    if done.returncode != 0:
        raise OSError(f"{' '.join(command[:6])}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout
