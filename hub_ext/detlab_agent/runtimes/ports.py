"""Ports for the tasks that serve HTTP: chosen by the agent, told to the task and to the master."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

from detlab_agent.runtimes.base import RefusedTask

_TRIES = 50


@dataclass(frozen=True)
class Service:
    """Where a task serves.

    Attributes:
        address: Where it is reached.
        port: Its port there.
        listen: The address as a number: where it listens, or is published.
    """

    address: str
    port: int
    listen: str

    def environment(self, listen: str | None = None) -> dict[str, str]:
        """Return the variables that tell the task; `listen` is where it binds to if not to `self.listen`."""
        return {"DET_SERVICE_ADDRESS": listen or self.listen, "DET_SERVICE_PORT": str(self.port)}


def as_number(address: str) -> str:
    """Return a host name or address as an address.

    Raises:
        RefusedTask: The name is not known here.
    """
    try:
        return str(socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise RefusedTask(f"this agent cannot listen on {address}: {error}; see its option --address") from error


def choose_port(address: str, allowed: tuple[int, int] | None = None, taken: frozenset[int] = frozenset()) -> int:
    """Return a port that is free on `address` now.

    Args:
        address: An address of this machine.
        allowed: First and last port that may be used; None for any.
        taken: Ports that tasks of this agent have, although they may not listen yet.

    Raises:
        RefusedTask: None is free, or the address is not this machine's.
    """
    try:
        if allowed is None:
            for _ in range(_TRIES):
                port = _bind(address, 0)
                if port not in taken:
                    return port
        else:
            ports = [port for port in range(allowed[0], allowed[1] + 1) if port not in taken]
            for port in random.sample(ports, len(ports)):  # one that was just given up may still be in use elsewhere
                if is_free(address, port):
                    return port
    except OSError as error:
        raise RefusedTask(f"this agent cannot listen on {address}: {error}; see its option --address") from error
    where = f"in {allowed[0]}-{allowed[1]}" if allowed else ""
    raise RefusedTask(f"no free port {where} on {address} for the task's service; see the agent's --service-ports")


def is_free(address: str, port: int) -> bool:
    """Whether a program could listen there now."""
    try:
        _bind(address, port)
    except OSError:
        return False
    return True


def _bind(address: str, port: int) -> int:
    family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind(where)
        return int(probe.getsockname()[1])
