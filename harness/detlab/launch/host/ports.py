"""The ports of this machine that a server can have again: no client's own end is at one of them.

Who connects, or asks for any port, gets one of the kernel's range (`ip_local_port_range`) for as long as the connection
lasts. A server that was given one of those may find it taken when it is started again.
"""

from __future__ import annotations

from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL = (32768, 60999)
_FIRST, _LAST = 10_000, 65_535
"""Below are the usual ports of many well-known services."""


def lasting_ports() -> list[int]:
    """Return the ports from 10000 on that the kernel gives to nobody who names none; few or none on some machines."""
    try:
        first, last = map(int, _RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        first, last = _USUAL
    return [*range(_FIRST, first), *range(max(_FIRST, last + 1), _LAST + 1)]
