"""Slot discovery with a driver of our own making (the seam is the pynvml module)."""

from types import SimpleNamespace

import pytest

from detlab.schemas.wire import SlotView
from detlab_agent.slots import GpuError, discover_slots, load_nvml, slot_environment, visible


class DriverError(Exception):
    pass


class Driver:  # its methods have pynvml's names
    """What `pynvml` offers, with `count` GPUs."""

    NVMLError = DriverError

    def __init__(self, count, fails_at=None):
        self.count = count
        self.fails_at = fails_at
        self.loaded = 0

    def _check(self, where):
        if self.fails_at == where:
            raise DriverError(f"{where} failed")

    def nvmlInit(self):
        self._check("init")
        self.loaded += 1

    def nvmlShutdown(self):
        self.loaded -= 1

    def nvmlDeviceGetCount(self):
        self._check("count")
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return b"Old GPU" if handle == 0 else "New GPU"

    def nvmlDeviceGetMemoryInfo(self, handle):
        self._check("memory")
        return SimpleNamespace(total=(handle + 1) << 30)

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{'abc'[handle]}0000"


def ids(slots):
    return [slot.id for slot in slots]


def test_the_memory_of_gpus_is_told_where_the_driver_tells_it():
    assert [slot.memory for slot in discover_slots(Driver(2), {})] == [1 << 30, 2 << 30]
    silent = Driver(2, fails_at="memory")
    assert [slot.memory for slot in discover_slots(silent, {})] == [0, 0]
    assert silent.loaded == 0


def test_gpus_are_slots_with_names_and_uuids():
    driver = Driver(2)
    slots = discover_slots(driver, {})
    assert [(s.id, s.kind, s.name, s.uuid) for s in slots] == [
        ("cuda0", "cuda", "Old GPU", "GPU-a0000"),
        ("cuda1", "cuda", "New GPU", "GPU-b0000"),
    ]
    assert driver.loaded == 0


@pytest.mark.parametrize("driver", [None, Driver(0), Driver(3, fails_at="init")])
def test_without_gpus_there_are_cpu_slots(driver):
    assert ids(discover_slots(driver, {}, 3)) == ["cpu0", "cpu1", "cpu2"]
    assert len(discover_slots(driver, {}, None, cores=5)) == 5
    assert discover_slots(driver, {}, 0) == []


def test_a_broken_driver_is_an_error_and_not_a_cpu_node():
    driver = Driver(2, fails_at="count")
    with pytest.raises(GpuError, match="count failed"):
        discover_slots(driver, {})
    assert driver.loaded == 0


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, ["cuda0", "cuda1", "cuda2"]),
        ("", []),
        ("-1", []),
        ("2,0", ["cuda2", "cuda0"]),
        ("0,9,1", ["cuda0"]),
        ("0,0", ["cuda0"]),
        ("GPU-b", ["cuda1"]),
        ("GPU-b0000, GPU-c", ["cuda1", "cuda2"]),
        ("GPU-", []),
        ("rubbish", []),
    ],
)
def test_cuda_visible_devices_hides_gpus(mask, expected):
    env = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    gpus = discover_slots(Driver(3), {})
    assert ids(visible(gpus, mask)) == expected
    assert ids(discover_slots(Driver(3), env, 1)) == (expected[:1] or ["cpu0"])


def test_slots_keep_a_task_to_its_devices():
    cpu = [SlotView(id="cpu0"), SlotView(id="cpu1")]
    gpu = discover_slots(Driver(2), {})
    assert slot_environment(cpu, 1) == {
        "DET_UNIQUE_PORT_OFFSET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "2",
    }
    assert slot_environment(gpu, 0)["CUDA_VISIBLE_DEVICES"] == "GPU-a0000,GPU-b0000"
    assert slot_environment([], 0)["CUDA_VISIBLE_DEVICES"] == "", "no slot, no GPU"


def test_the_real_library_is_what_discovery_expects():
    """On a machine without a driver it says so by NVMLError; with one it lists GPUs."""
    nvml = load_nvml()
    assert nvml is not None
    assert all(slot.kind in {"cpu", "cuda"} for slot in discover_slots(nvml, {}, 1))
