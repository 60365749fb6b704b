"""Shares of devices: in a pool that says `slots_per_device: 4` each device of its agents is four slots.

The master divides what agents offer. Device `cuda0` becomes `cuda0.0` to `cuda0.3`; a slot that is a whole device is
called as the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from detlab.schemas.wire import SlotView


def device_of(slot: str) -> str:
    """Return the device of a slot: `cuda0` for both `cuda0.3` and `cuda0`."""
    device, _, number = slot.rpartition(".")
    return device if device and number.isdecimal() else slot


def devices_of(slots: Iterable[str]) -> list[str]:
    """Return the devices of slots, each once, in the order in which they first appear."""
    return list(dict.fromkeys(map(device_of, slots)))


def share_number(slot: str) -> int:
    """Which share of its device a slot is, from 0; 0 too of a whole one."""
    return 0 if device_of(slot) == slot else int(slot.rpartition(".")[2])


def divide(devices: Sequence[SlotView], parts: int) -> list[SlotView]:
    """Divide each device into `parts` slots with an equal share of its memory; 1 leaves the devices whole."""
    if parts == 1:
        return list(devices)
    return [
        device.model_copy(
            update={
                "id": f"{device.id}.{number}",
                "device": device.id,
                "shares": parts,
                "memory": device.memory // parts,
            }
        )
        for device in devices
        for number in range(parts)
    ]


def fractions(slots: Sequence[str], shares: Sequence[int]) -> list[float]:
    """How much of each device is had with slots; empty if all of them are had whole.

    Args:
        slots: The slots.
        shares: Into how many the device of each is divided.
    """
    had = Counter[str]()
    parts: dict[str, int] = {}
    for slot, divided in zip(slots, shares, strict=True):
        had[device_of(slot)] += 1
        parts[device_of(slot)] = divided
    if all(count == parts[device] for device, count in had.items()):
        return []
    return [min(1.0, count / parts[device]) for device, count in had.items()]
