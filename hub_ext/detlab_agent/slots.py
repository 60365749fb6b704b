"""Which slots this node offers: its GPUs, or CPU slots where there are none."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Mapping
from typing import Any, Protocol

from detlab.schemas.wire import SlotView

_log = logging.getLogger(__name__)


class GpuError(Exception):
    """The driver's management library is installed but does not work."""


class Nvml(Protocol):
    """The part of `pynvml` (nvidia-ml-py) that discovery uses; tests pass their own."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:
        """Load the driver's library."""
        ...

    def nvmlShutdown(self) -> None:
        """Unload it."""
        ...

    def nvmlDeviceGetCount(self) -> int:
        """Count the GPUs."""
        ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        """Open a GPU, in the order of the PCI bus."""
        ...

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:
        """Return the product's name."""
        ...

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        """Return an object whose `total` is its memory in bytes."""
        ...

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:
        """Return its UUID, which begins with `GPU-`."""
        ...


def load_nvml() -> Nvml | None:
    """Return `pynvml`, or None when it is not installed."""
    try:
        module: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    return module


def discover_slots(
    nvml: Nvml | None, env: Mapping[str, str], requested: int | None = None, cores: int | None = None
) -> list[SlotView]:
    """Return the slots of this node.

    Args:
        nvml: The GPU library, or None.
        env: The agent's environment; CUDA_VISIBLE_DEVICES hides GPUs from it as from any CUDA program.
        requested: Most GPUs to offer; without GPUs, the exact number of CPU slots.
        cores: CPU cores; by default those that this process may use.
    """
    gpus = visible(_gpus(nvml), env.get("CUDA_VISIBLE_DEVICES"))
    if gpus:
        return gpus[:requested] if requested is not None else gpus
    count = requested if requested is not None else cores or len(os.sched_getaffinity(0))
    return [SlotView(id=f"cpu{index}", kind="cpu", name="CPU") for index in range(count)]


def visible(gpus: list[SlotView], mask: str | None) -> list[SlotView]:
    """Keep the GPUs that CUDA_VISIBLE_DEVICES names, in its order.

    As CUDA does, the first entry that names no GPU ends the list. Entries are numbers in PCI order, UUIDs or
    beginnings of UUIDs.
    """
    if mask is None:
        return gpus
    chosen: list[SlotView] = []
    for entry in (part.strip() for part in mask.split(",")):
        match = _named(gpus, entry)
        if match is None or match in chosen:
            break
        chosen.append(match)
    return chosen


def _named(gpus: list[SlotView], entry: str) -> SlotView | None:
    if entry.isdigit():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    found = [gpu for gpu in gpus if entry and gpu.uuid and gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _gpus(nvml: Nvml | None) -> list[SlotView]:
    """List the node's GPUs; none where there is no driver."""
    if nvml is None:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        _log.info("no GPUs: %s", error)
        return []
    try:
        slots = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = _text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlDeviceGetUUID(handle))
            slots.append(
                SlotView(id=f"cuda{index}", kind="cuda", name=name, uuid=uuid, memory=_memory_of(nvml, handle))
            )
        return slots
    except nvml.NVMLError as error:
        # Offering CPU slots instead would silently train on the wrong device.
        raise GpuError(f"the GPU driver answers with an error: {error}") from error
    finally:
        nvml.nvmlShutdown()


def _memory_of(nvml: Nvml, handle: Any) -> int:
    """Return the bytes of a GPU's own memory; 0 if the driver does not report it, as when it is the machine's."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        return 0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def slot_environment(slots: list[SlotView], port_offset: int) -> dict[str, str]:
    """Return the variables that restrict a task to its slots.

    Args:
        slots: The slots of the task.
        port_offset: A number that no other task of this node has, by which programs can choose ports.
    """
    env = {"DET_UNIQUE_PORT_OFFSET": str(port_offset)}
    gpus = [slot.uuid for slot in slots if slot.kind != "cpu" and slot.uuid]
    # Empty hides every GPU: a task that asked for none must not take one.
    env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if slots and not gpus:
        env["OMP_NUM_THREADS"] = str(len(slots))
    return env
