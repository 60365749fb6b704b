"""Measures what this node's GPUs do, so that the master finds those that are held and not used.

It looks once a second, since the driver's number is of less than that, and reports the greatest of them. A GPU that
could not be measured each time is left out of the report: the master takes it for unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from detlab.schemas.wire import SlotView
from detlab_agent.slots import load_nvml

_log = logging.getLogger(__name__)
PERIOD = 1.0
"""Seconds between two looks."""


class MeasuringNvml(Protocol):
    """The part of `pynvml` that it uses; tests pass their own."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:
        """Load the driver's library."""
        ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        """Open a GPU."""
        ...

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        """Return an object whose `gpu` is the percentage of the last moment in which a kernel ran."""
        ...


class GpuWatch:
    """The GPUs of this node.

    Args:
        nvml: The driver's library.
        slots: Those of this node; only GPUs count.
        pause: Waits for some seconds; tests pass their own.
    """

    def __init__(
        self, nvml: MeasuringNvml, slots: Sequence[SlotView], pause: Callable[[float], Any] = asyncio.sleep
    ) -> None:
        self._nvml = nvml
        self._slots = {slot.id: slot.uuid for slot in slots if slot.kind == "cuda" and slot.uuid}
        self._pause = pause
        self._handles: dict[str, Any] | None = None

    @classmethod
    def of_node(cls, slots: Sequence[SlotView]) -> GpuWatch | None:
        """Return one for slots that are GPUs of this machine; None where none is."""
        nvml = load_nvml()
        if nvml is None or not any(slot.kind == "cuda" and slot.uuid for slot in slots):
            return None
        return cls(cast(MeasuringNvml, nvml), slots)

    async def measure(self, seconds: float) -> Mapping[str, float]:
        """Return the greatest utilisation of each GPU within some seconds, in %, by slot; without what is not known."""
        most: dict[str, float] | None = None
        for _ in range(max(1, round(seconds / PERIOD))):
            await self._pause(PERIOD)
            now = await asyncio.to_thread(self._look)
            most = now if most is None else {slot: max(most[slot], now[slot]) for slot in most.keys() & now.keys()}
        return most or {}

    def _look(self) -> dict[str, float]:
        found = {}
        try:
            if self._handles is None:
                self._nvml.nvmlInit()
                self._handles = {}
        except self._nvml.NVMLError as error:
            _log.debug("GPUs are not measured: %s", error)
            return {}
        for slot, uuid in self._slots.items():
            try:
                if slot not in self._handles:
                    self._handles[slot] = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
                found[slot] = float(self._nvml.nvmlDeviceGetUtilizationRates(self._handles[slot]).gpu)
            except self._nvml.NVMLError as error:  # as of one that is divided by MIG
                self._handles.pop(slot, None)
                _log.debug("GPU %s is not measured: %s", slot, error)
        return found
