"""The rendezvous of the nodes of one trial: through the master, whose address each of them has.

The master sends the nodes, their order and their slots with the launch (`info.json`). Only the chief's node (the first)
knows where it listens: its launcher takes free ports and reports them to the master, and the launchers of the other
nodes query them. No node starts before all are present: a gang is all or nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detlab.backoff import Backoff
from detlab.errors import AuthError, master_said
from detlab.info import ClusterInfo, read_token

if TYPE_CHECKING:
    from detlab.launch.delivery.sender import Transport

WAIT = 20.0
"""Seconds that one question waits at the master for the other nodes."""
SAY_AFTER = 60.0
"""Seconds between two messages about which nodes are missing while it waits."""
KEY_BYTES = 32
NODE_ADDRESS = "DET_NODE_ADDRESS"
"""The variable with the address at which the other nodes reach this one; where it is not set, the agents' are used."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SIOCGIFADDR = 0x8915


class MeetingError(Exception):
    """The nodes cannot meet; the message says why."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a node knows once all are there.

    Attributes:
        node: Its place in the order of nodes; 0 is the chief.
        addresses: Of all nodes, in that order.
        port: Of the chief, where torchrun's processes meet.
        messages_port: Of the chief, for messages between ranks.
        key: The secret of the ranks, hexadecimal.
    """

    node: int
    addresses: tuple[str, ...]
    port: int
    messages_port: int
    key: str

    @property
    def chief(self) -> str:
        """Address of the chief's node."""
        return self.addresses[0]

    @property
    def address(self) -> str:
        """Address of this node."""
        return self.addresses[self.node]


def free_ports(count: int) -> list[int]:
    """Return different ports on which no program listens."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def arrival(info: ClusterInfo, number: int) -> dict[str, Any]:
    """Return what this node tells the master (`schemas.wire.Arrival`)."""
    told: dict[str, Any] = {"node": info.container_rank, "number": number, "machine": _machine()}
    if os.environ.get(NODE_ADDRESS):
        told["address"] = os.environ[NODE_ADDRESS]
    if info.container_rank == 0:
        port, messages_port = free_ports(2)
        told |= {"port": port, "messages_port": messages_port, "key": secrets.token_hex(KEY_BYTES)}
    return told


def meet(info: ClusterInfo, transport: Transport, say: Callable[[str], None], wait: float = WAIT) -> Meeting:
    """Tell the master that this node is present, and wait until all nodes are, through any outage of the master.

    Args:
        info: The task.
        transport: Connection to the master.
        say: Called with a message for people about what it waits for.
        wait: Seconds that one request waits at the master.

    Raises:
        MeetingError: The attempt is over, or the master says that these nodes cannot meet.
    """
    body = json.dumps(arrival(info, _next_number(info.task_dir))).encode()
    backoff, said_at = Backoff(), time.monotonic()
    while True:
        reply, trouble = _ask(info, transport, body, wait)
        if reply is not None and reply.get("ready"):
            return Meeting(
                node=info.container_rank,
                addresses=tuple(reply.get("addresses") or info.container_addrs),
                port=int(reply["port"]),
                messages_port=int(reply["messages_port"]),
                key=str(reply["key"]),
            )
        if time.monotonic() - said_at > SAY_AFTER:
            said_at = time.monotonic()
            missing = [] if reply is None else reply.get("missing") or []
            say(f"detlab: waiting for {trouble or 'the nodes of ' + ', '.join(map(str, missing))}")
        if reply is None:
            time.sleep(backoff.next_pause())
        else:
            backoff.reset()


def _ask(info: ClusterInfo, transport: Transport, body: bytes, wait: float) -> tuple[dict[str, Any] | None, str]:
    """One question: the master's answer, or None and what is wrong for now."""
    from detlab.launch.delivery.sender import TransportError

    try:
        status, content = transport.post(f"task/rendezvous?timeout_seconds={wait:g}", body, read_token(info.task_dir))
    except (TransportError, AuthError) as error:
        return None, f"the master: {error}"
    try:
        reply = json.loads(content)
    except ValueError:
        reply = None
    if status == 200 and isinstance(reply, dict):
        return reply, ""
    said = master_said(content)
    told = "" if said is None else said["message"]
    if said is not None and status in {400, 403, 404, 409, 422}:
        raise MeetingError(str(told or f"the master refused the rendezvous: status {status}"))
    # What a proxy that knows no way to the master says in its stead is an outage, whatever its status.
    return None, f"the master: status {status} {told}".rstrip()


def _next_number(task_dir: Path) -> int:
    """Count the meetings of this attempt: a script may start several launchers, one after the other."""
    path = task_dir / "meetings"
    try:
        number = int(path.read_text(encoding="ascii")) + 1
    except (FileNotFoundError, ValueError):
        number = 1
    path.write_text(f"{number}\n", encoding="ascii")
    return number


def _machine() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def interface_of(address: str) -> str | None:
    """Return the network interface that has an address of this machine; None if none has it, or it is not IPv4."""
    with suppress(OSError):
        wanted = socket.gethostbyname(address)
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
            for _, name in socket.if_nameindex():
                if _address_of(probe, name) == wanted:
                    return name
    return None


def _address_of(probe: socket.socket, name: str) -> str | None:
    request = struct.pack("256s", name.encode()[:15])
    try:
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
    except OSError:
        return None


def meet_the_others(info: ClusterInfo) -> Meeting:
    """`meet` with the master that this task's launch named."""
    from detlab.launch.delivery.plain_http import PlainTransport

    transport = PlainTransport(info.master_url.rstrip("/") + "/api/v1/")

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    with closing(transport):
        return meet(info, transport, say)


def meeting_environment(meeting: Meeting) -> dict[str, str]:
    """Return the variables by which the ranks of this node find the chief, and tell their networks apart."""
    found = {
        "DET_CHIEF_IP": meeting.chief,
        "DET_CHIEF_PORT": str(meeting.messages_port),
        "DET_RANK_KEY": meeting.key,
    }
    interface = interface_of(meeting.address)
    if interface is not None:
        found |= {name: interface for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if not os.environ.get(name)}
    return found
