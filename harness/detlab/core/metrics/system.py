"""System metrics of a node: counters of Linux's /proc and of NVIDIA's driver, and the rates between two readings.

Rates need two readings, so a sample is what lies between one reading and the next. Reading and reckoning are apart:
`sample_between` and `Means` know no clock and no file.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Sample = dict[str, dict[str, float]]
"""Group -> metric -> value."""

_SECTOR = 512
"""Bytes; /proc/diskstats counts in these, whatever the device's own are."""
_FOLDERS = (Path("/"), Path("/determined_shared_fs"))
"""Determined's; the second is where a container has shared storage."""
_COMPOSED_DISKS = ("loop", "ram", "zram", "dm-", "md")
"""No disks of their own: what they do is counted at the disks beneath them."""
_COMPOSED_LINKS = ("lo", "docker", "veth", "br-", "virbr", "ifb")
"""This machine's talk with itself, and copies of what passes through its real interfaces."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: `util` in percent, None where the driver does not say (a MIG slice); `free_memory` in bytes."""

    util: float | None
    free_memory: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A node's counters at one moment; all but time, memory and GPUs count since it booted.

    Attributes:
        time: Seconds of a clock that never goes back.
        cpu_busy: Time that all cores worked, in the kernel's ticks.
        cpu_total: Time of all cores, in the kernel's ticks.
        memory_free: Bytes that programs could have.
        memory_used: Bytes of all others.
        disk_read: Bytes.
        disk_written: Bytes.
        disk_operations: Reads and writes.
        net_sent: Bytes.
        net_received: Bytes.
        gpus: Those of the task, in its order.
        disks: Paths, and how much of the file system of each is used, in percent.
    """

    time: float
    cpu_busy: float
    cpu_total: float
    memory_free: float
    memory_used: float
    disk_read: float
    disk_written: float
    disk_operations: float
    net_sent: float
    net_received: float
    gpus: tuple[Gpu, ...] = ()
    disks: tuple[tuple[str, float], ...] = ()


def sample_between(before: Reading, after: Reading) -> Sample:
    """Return percentages and rates between two readings, and memory as it was at the second one.

    A counter that went back, because a disk or an interface is gone, counts as unchanged.
    """
    seconds = max(after.time - before.time, 1e-9)

    def rate(name: str) -> float:
        return max(0.0, getattr(after, name) - getattr(before, name)) / seconds

    ticks = after.cpu_total - before.cpu_total
    busy = max(0.0, after.cpu_busy - before.cpu_busy) / ticks if ticks > 0 else 0.0
    sample: Sample = {
        "cpu": {"cpu_util_simple": 100.0 * min(1.0, busy)},
        "memory": {"memory_free": after.memory_free, "memory_used": after.memory_used},
        "disk": {
            "disk_throughput_read": rate("disk_read"),
            "disk_throughput_write": rate("disk_written"),
            "disk_iops": rate("disk_operations"),
        },
        "network": {"net_throughput_sent": rate("net_sent"), "net_throughput_recv": rate("net_received")},
    }
    for path, used in after.disks:
        sample["disk"][f"disk_util_{path}"] = used
    if after.gpus:
        sample["gpu"] = {}
    for index, gpu in enumerate(after.gpus):
        sample["gpu"][f"gpu_free_memory_{index}"] = gpu.free_memory
        if gpu.util is not None:
            sample["gpu"][f"gpu_util_{index}"] = gpu.util
    return sample


class Means:
    """Sums of samples, from which their means are."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, sample: Sample) -> None:
        """Take one more sample; a metric that is not in all of them is averaged over those it is in."""
        self.count += 1
        for group, metrics in sample.items():
            for name, value in metrics.items():
                self._plus((group, name), value, 1)

    def merge(self, other: Means) -> None:
        """Take all samples of another one."""
        self.count += other.count
        for key, (total, count) in other._sums.items():
            self._plus(key, total, count)

    def _plus(self, key: tuple[str, str], total: float, count: int) -> None:
        before = self._sums.get(key, (0.0, 0))
        self._sums[key] = (before[0] + total, before[1] + count)

    def means(self) -> Sample:
        """Return the means by group and metric; nothing before the first sample."""
        result: Sample = {}
        for (group, name), (total, count) in self._sums.items():
            result.setdefault(group, {})[name] = total / count
        return result


class NodeReader:
    """Reads the counters of this node, and of those of its GPUs that are this task's.

    Args:
        env: Names the GPUs in CUDA_VISIBLE_DEVICES; all are read without it.
        proc: Where Linux shows its counters.
        folders: Whose file systems are looked at, each file system once; those that do not exist are left out.
    """

    def __init__(
        self, env: Mapping[str, str], proc: Path = Path("/proc"), folders: Sequence[Path] | None = None
    ) -> None:
        self._proc = proc
        self._folders = list(
            _one_of_each_file_system([*_FOLDERS, _mount_point(Path.cwd())] if folders is None else folders)
        )
        self._nvml, self._gpus = _open_gpus(env.get("CUDA_VISIBLE_DEVICES"))

    def read(self) -> Reading:
        """Read everything once.

        Raises:
            OSError: The files do not exist (this is not Linux).
            ValueError: The files are not as Linux writes them.
        """
        busy, total = parse_stat(self._text("stat"))
        free, used = parse_meminfo(self._text("meminfo"))
        read, written, operations = parse_diskstats(self._text("diskstats"))
        sent, received = parse_net_dev(self._text("net/dev"))
        gpus = tuple(_read_gpu(self._nvml, gpu) for gpu in self._gpus)
        disks = tuple((str(folder), _used_percent(folder)) for folder in self._folders)
        return Reading(
            time.monotonic(), busy, total, free, used, read, written, operations, sent, received, gpus, disks
        )

    def _text(self, name: str) -> str:
        return (self._proc / name).read_text(encoding="utf-8", errors="replace")


def parse_stat(text: str) -> tuple[float, float]:
    """Return busy and total ticks of all cores, from /proc/stat.

    Raises:
        ValueError: The text is not as Linux writes it.
    """
    fields = [float(field) for field in text.split("\n", 1)[0].split()[1:9]]  # the guests' are in the user's already
    if len(fields) < 4:
        raise ValueError(f"/proc/stat begins with {text[:80]!r}")
    idle = fields[3] + (fields[4] if len(fields) > 4 else 0.0)
    return sum(fields) - idle, sum(fields)


def parse_meminfo(text: str) -> tuple[float, float]:
    """Return free and used bytes, from /proc/meminfo.

    Raises:
        ValueError: The text is not as Linux writes it.
    """
    sizes = {name: rest.split() for name, _, rest in (line.partition(":") for line in text.splitlines())}
    try:
        total, free = (1024.0 * float(sizes[name][0]) for name in ("MemTotal", "MemAvailable"))
    except (KeyError, IndexError) as error:
        raise ValueError(f"/proc/meminfo lacks {error}") from error
    return free, total - free


def parse_diskstats(text: str) -> tuple[float, float, float]:
    """Return bytes read, bytes written and operations of the whole disks, from /proc/diskstats."""
    sums = [0.0, 0.0, 0.0]
    disk = ""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 10 or fields[2].startswith(_COMPOSED_DISKS):
            continue
        # The partitions of a disk follow it and are named after it: sda, sda1; nvme0n1, nvme0n1p1.
        if disk and fields[2].startswith(disk) and fields[2][len(disk) :].lstrip("p").isdigit():
            continue
        disk = fields[2]
        sums[0] += _SECTOR * float(fields[5])
        sums[1] += _SECTOR * float(fields[9])
        sums[2] += float(fields[3]) + float(fields[7])
    return sums[0], sums[1], sums[2]


def parse_net_dev(text: str) -> tuple[float, float]:
    """Return bytes sent and received through the real interfaces, from /proc/net/dev."""
    sent = received = 0.0
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if len(fields) < 9 or name.strip().startswith(_COMPOSED_LINKS):
            continue
        received += float(fields[0])
        sent += float(fields[8])
    return sent, received


def _mount_point(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.is_mount() or path == path.parent)


def _one_of_each_file_system(folders: Sequence[Path]) -> Iterator[Path]:
    seen = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            device = folder.stat().st_dev
            if device not in seen:
                seen.add(device)
                yield folder


def _used_percent(folder: Path) -> float:
    """Return how full a file system is for programs that are not root's, as `df` says."""
    usage = os.statvfs(folder)
    used = usage.f_blocks - usage.f_bfree
    return 100.0 * used / max(1, used + usage.f_bavail)


def _open_gpus(visible: str | None) -> tuple[Any, list[Any]]:
    """Return pynvml and the task's GPUs; none where there is no such package, no driver or no GPU."""
    if visible is not None and visible.strip() in {"", "-1"}:
        return None, []
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None, []
    try:
        nvml.nvmlInit()
        names = [str(i) for i in range(nvml.nvmlDeviceGetCount())] if visible is None else visible.split(",")
        return nvml, [_gpu(nvml, name.strip()) for name in names]
    except nvml.NVMLError:
        return None, []


def _gpu(nvml: Any, name: str) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)


def _read_gpu(nvml: Any, gpu: Any) -> Gpu:
    try:
        util: float | None = float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
    except nvml.NVMLError:
        util = None
    return Gpu(util, float(nvml.nvmlDeviceGetMemoryInfo(gpu).free))
