"""An agent measures its GPUs, and reports them beside its heartbeats: with a driver of our own making."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

from detlab.schemas.wire import Heartbeat, SlotView
from detlab_agent.connection import Connector
from detlab_agent.endpoints import Endpoints
from detlab_agent.gpu_watch import GpuWatch

SLOTS = [SlotView(id=f"cuda{n}", kind="cuda", name="H100", uuid=f"GPU-{n}") for n in range(3)]
SLOTS.append(SlotView(id="cpu0", kind="cpu", name="CPU"))


class DriverError(Exception):
    pass


class Driver:  # its methods have pynvml's names
    """What each GPU does in each second; an exception is what the driver answers."""

    NVMLError = DriverError

    def __init__(self, **seen: list[int | Exception]) -> None:
        self.seen = {f"GPU-{name[1:]}": iter(values) for name, values in seen.items()}
        self.begun = 0
        self.broken = False

    def nvmlInit(self) -> None:
        if self.broken:
            raise DriverError("driver not loaded")
        self.begun += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.seen:
            raise DriverError("not found")
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        value = next(self.seen[handle])
        if isinstance(value, Exception):
            raise value
        return SimpleNamespace(gpu=value)


async def _at_once(seconds: float) -> None:
    pass


def measured(driver: Driver, seconds: float = 3.0) -> dict[str, float]:
    return dict(asyncio.run(GpuWatch(driver, SLOTS, _at_once).measure(seconds)))


def test_the_greatest_of_each_second_is_told() -> None:
    assert measured(Driver(g0=[0, 7, 0], g1=[0, 0, 0], g2=[1, 2, 3])) == {"cuda0": 7.0, "cuda1": 0.0, "cuda2": 3.0}


def test_what_is_not_measured_each_time_is_left_out() -> None:
    """A device that MIG divides has no utilisation; another falls off the bus for a second."""
    divided, lost = DriverError("not supported"), DriverError("GPU is lost")
    assert measured(Driver(g0=[0, 0, 0], g1=[divided] * 3, g2=[0, lost, 0])) == {"cuda0": 0.0}
    assert measured(Driver()) == {}


def test_a_driver_that_comes_later_is_begun_once() -> None:
    driver = Driver(g0=[0] * 9)
    watch = GpuWatch(driver, SLOTS, _at_once)
    driver.broken = True
    assert asyncio.run(watch.measure(3)) == {}
    driver.broken = False
    assert asyncio.run(watch.measure(3)) == {"cuda0": 0.0}
    assert asyncio.run(watch.measure(3)) == {"cuda0": 0.0}
    assert driver.begun == 1


def test_a_node_without_gpus_measures_nothing() -> None:
    assert GpuWatch.of_node([SLOTS[-1]]) is None


def test_the_agent_says_it_in_a_heartbeat() -> None:
    """As the real connection makes the message; an older master passes over what it does not know."""

    async def one() -> str:
        outbox: asyncio.Queue[str] = asyncio.Queue()
        nothing = cast("Any", None)
        connector = Connector(Endpoints("http://127.0.0.1:1"), nothing, nothing, nothing, clock=lambda: 5.0)
        watch = GpuWatch(Driver(g0=[0] * 10 + [4] * 10, g1=[0] * 20), SLOTS, _at_once)
        job = asyncio.create_task(connector._measure(watch, outbox))
        said = await outbox.get()
        job.cancel()
        return said

    said = asyncio.run(one())
    assert json.loads(said)["gpus"] == {"cuda0": 0.0, "cuda1": 0.0}
    assert Heartbeat.model_validate_json(said).gpus == {"cuda0": 0.0, "cuda1": 0.0}
