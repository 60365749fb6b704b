"""The profiler: what lies between two readings, when its means are reported, and what must not end a trial."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detlab import core
from detlab.core import DummyDistributedContext, DummyProfilerContext, ProfilerContext
from detlab.core.metrics.system import (
    Gpu,
    Means,
    NodeReader,
    Reading,
    parse_diskstats,
    parse_meminfo,
    parse_net_dev,
    parse_stat,
    sample_between,
)
from detlab.testing.master import MasterDouble
from testbed.task_dirs import make_task_dir
from testbed.waiting import until

FIRST = Reading(100.0, 50.0, 1000.0, 6e9, 2e9, 1e6, 2e6, 300.0, 4000.0, 5000.0)
SECOND = Reading(102.0, 90.0, 1200.0, 5e9, 3e9, 3e6, 2e6, 340.0, 4500.0, 9000.0)
WAIT = 10.0


def test_rates_between_two_readings() -> None:
    assert sample_between(FIRST, SECOND) == {
        "cpu": {"cpu_util_simple": 20.0},
        "memory": {"memory_free": 5e9, "memory_used": 3e9},
        "disk": {"disk_throughput_read": 1e6, "disk_throughput_write": 0.0, "disk_iops": 20.0},
        "network": {"net_throughput_sent": 250.0, "net_throughput_recv": 2000.0},
    }


def test_counters_that_stand_still_or_go_back_are_zero() -> None:
    same = sample_between(FIRST, FIRST)
    assert same["cpu"] == {"cpu_util_simple": 0.0}
    back = sample_between(SECOND, replace(FIRST, time=103.0))
    assert set(back["disk"].values()) | set(back["network"].values()) | set(back["cpu"].values()) == {0.0}


def test_gpus_are_numbered_and_a_slice_has_no_utilisation() -> None:
    sample = sample_between(FIRST, replace(SECOND, gpus=(Gpu(75.0, 1e9), Gpu(None, 2e9))))
    assert sample["gpu"] == {"gpu_util_0": 75.0, "gpu_free_memory_0": 1e9, "gpu_free_memory_1": 2e9}


def test_means_and_their_union() -> None:
    one, two = Means(), Means()
    for value in (1.0, 2.0):
        one.add({"cpu": {"x": value}})
    two.add({"cpu": {"x": 6.0}, "gpu": {"y": 4.0}})
    one.merge(two)
    assert (one.count, one.means()) == (3, {"cpu": {"x": 3.0}, "gpu": {"y": 4.0}})


def test_the_kernels_files_are_read() -> None:
    assert parse_stat("cpu  10 1 4 80 5 0 0 0 3 0\ncpu0 1 1 1 1\n") == (15.0, 100.0)
    assert parse_meminfo("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n") == (409600.0, 614400.0)
    disks = "8 0 sda 5 0 10 0 7 0 20 0\n8 1 sda1 5 0 10 0 7 0 20 0\n7 0 loop0 9 0 9 0 9 0 9 0\n"
    disks += "259 0 nvme0n1 1 0 2 0 1 0 4 0\n259 1 nvme0n1p1 1 0 2 0 1 0 4 0\n253 0 dm-0 9 0 9 0 9 0 9 0\n"
    disks += "259 3 nvme1n1 1 0 1 0 0 0 0 0\n8 16 sdb 0 0 0 0 0 0 0 0\n"
    assert parse_diskstats(disks) == (13 * 512.0, 24 * 512.0, 15.0)
    net = "a\nb\n    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0: 5 0 0 0 0 0 0 0 7 0\nveth1: 9 0 0 0 0 0 0 0 9 0\n"
    assert parse_net_dev(net) == (7.0, 5.0)


class _NvmlError(Exception):
    """What the driver raises."""


class _Nvml:
    """The part of pynvml that is used, on a machine without GPUs: two GPUs, the second one a slice."""

    NVMLError = _NvmlError

    def nvmlInit(self) -> None:
        """There is a driver."""

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-a": 0, "MIG-b": 1}[uuid]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if handle == 1:
            raise _NvmlError("not supported")
        return SimpleNamespace(gpu=33)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(free=1000 + handle)


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, (Gpu(33.0, 1000.0), Gpu(None, 1001.0))),
        ("MIG-b,GPU-a", (Gpu(None, 1001.0), Gpu(33.0, 1000.0))),
        ("0", (Gpu(33.0, 1000.0),)),
        ("", ()),
    ],
)
def test_only_the_tasks_gpus_are_read(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, found: tuple[Gpu, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _Nvml())
    reader = NodeReader({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert reader.read().gpus == found


def test_no_package_for_gpus_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert NodeReader({}).read().gpus == ()


def test_how_full_the_file_system_of_each_path_is(tmp_path: Path) -> None:
    reader = NodeReader(
        {"CUDA_VISIBLE_DEVICES": ""}, folders=[Path("/"), tmp_path / "nowhere", Path("/"), Path("/proc")]
    )
    disks = dict(reader.read().disks)
    assert list(disks) == ["/", "/proc"]  # each file system once, and only those that exist
    usage = shutil.disk_usage("/")
    assert disks["/"] == pytest.approx(100 * usage.used / (usage.used + usage.free), abs=1.0)
    sample = sample_between(FIRST, replace(SECOND, disks=(("/", 42.0), ("/determined_shared_fs", 7.5))))
    assert sample["disk"]["disk_util_/"] == 42.0
    assert sample["disk"]["disk_util_/determined_shared_fs"] == 7.5
    assert "/" in dict(NodeReader({"CUDA_VISIBLE_DEVICES": ""}).read().disks)


class Node:
    """A node whose counters grow by a known amount from reading to reading."""

    def __init__(self, fail_at: tuple[int, ...] = ()) -> None:
        self.readings = 0
        self.fail_at = fail_at

    def read(self) -> Reading:
        self.readings += 1
        if self.readings in self.fail_at:
            raise OSError(f"reading {self.readings} failed")
        return replace(FIRST, time=float(self.readings), net_sent=float(self.readings) ** 2)


class Reports:
    """Takes reports; `wait` returns once there are some."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int, dict[str, float]]] = []
        self._news = threading.Condition()

    def __call__(self, group: str, step: int, metrics: dict[str, float]) -> None:
        with self._news:
            self.taken.append((group, step, metrics))
            self._news.notify_all()

    def of(self, group: str) -> list[tuple[int, dict[str, float]]]:
        return [(step, metrics) for name, step, metrics in self.taken if name == group]

    def wait(self, done: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(done, WAIT)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "detlab-profiler"]


def test_one_report_per_so_many_samples_and_the_rest_at_the_end() -> None:
    reports, steps = Reports(), iter(range(10, 1000))
    profiler = ProfilerContext(reports, lambda: next(steps), Node)
    profiler.on(sampling_interval=0.1, samples_per_report=3)
    reports.wait(lambda: len(reports.of("network")) == 2)
    profiler.off()
    sent = [(step, metrics["net_throughput_sent"]) for step, metrics in reports.of("network")]
    # Between readings k and k + 1 lie 2 k + 1 bytes in a second: samples 3, 5, 7, then 9, 11, 13.
    assert sent[:2] == [(10, 5.0), (11, 11.0)]
    assert len(sent) <= 3
    assert {group for group, _, _ in reports.taken} == {"cpu", "memory", "disk", "network"}


def test_reports_at_one_step_are_means_over_all_its_samples() -> None:
    reports = Reports()
    profiler = ProfilerContext(reports, lambda: 7, Node)
    profiler.on(sampling_interval=0.1, samples_per_report=2)
    reports.wait(lambda: len(reports.of("network")) == 2)
    profiler.off()
    assert [step for step, _ in reports.of("network")][:2] == [7, 7]
    assert [metrics["net_throughput_sent"] for _, metrics in reports.of("network")][:2] == [4.0, 6.0]


def test_nothing_is_reported_before_the_training_has_said_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reports, node = Reports(), Node()
    profiler = ProfilerContext(reports, lambda: None, lambda: node)
    profiler.on(sampling_interval=0.1, samples_per_report=1)
    until(lambda: node.readings >= 3)
    profiler.off()
    assert reports.taken == []
    assert "has not reported a step" in caplog.text


def test_off_ends_the_thread_at_once_and_may_be_repeated() -> None:
    node = Node()
    profiler = ProfilerContext(Reports(), lambda: 1, lambda: node)
    profiler.on(sampling_interval=3600.0)
    profiler.on()  # goes on as before
    assert len(threads()) == 1
    until(lambda: node.readings == 1)
    before = time.monotonic()
    profiler.off()
    profiler.off()
    assert time.monotonic() - before < 2.0
    assert threads() == []


def test_errors_are_one_warning_and_sampling_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    reports = Reports()
    profiler = ProfilerContext(reports, lambda: 1, lambda: node)
    node = Node(fail_at=(2, 3))
    profiler.on(sampling_interval=0.1, samples_per_report=2)
    reports.wait(lambda: bool(reports.of("network")))
    profiler.off()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the profiler cannot read system metrics: OSError: reading 2 failed"
    ]


def test_a_report_that_fails_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    calls = Reports()

    def full(group: str, step: int, metrics: dict[str, float]) -> None:
        calls(group, step, metrics)
        raise OSError("disk full")

    profiler = ProfilerContext(full, lambda: 1, Node)
    profiler.on(sampling_interval=0.1, samples_per_report=1)
    calls.wait(lambda: len(calls.taken) >= 2)
    profiler.off()
    assert caplog.text.count("disk full") == 1


def test_a_system_without_such_files_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    profiler = ProfilerContext(Reports(), lambda: 1, lambda: NodeReader({"CUDA_VISIBLE_DEVICES": ""}, tmp_path))
    profiler.on(sampling_interval=0.1)
    until(lambda: "cannot read system metrics" in caplog.text)
    profiler.off()
    assert caplog.text.count("cannot read system metrics") == 1


@pytest.mark.parametrize("profiler", [DummyProfilerContext(), ProfilerContext()])
def test_off_cluster_and_other_ranks_start_no_thread(profiler: ProfilerContext) -> None:
    profiler.on()
    assert threads() == []
    profiler.off()


@pytest.mark.parametrize("arguments", [(0.05, 10), (1, 0), (1, 2.5)])
def test_bad_arguments_are_refused(arguments: tuple[Any, Any]) -> None:
    for profiler in (DummyProfilerContext(), ProfilerContext(Reports())):
        with pytest.raises(ValueError, match="must be"):
            profiler.on(*arguments)


@pytest.mark.parametrize(("rank", "sampling"), [(0, 1), (1, 0)])
def test_one_rank_samples_for_its_node_until_the_context_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, sampling: int
) -> None:
    for name in [name for name in os.environ if name.startswith("DET_")]:
        monkeypatch.delenv(name)
    distributed = DummyDistributedContext()
    distributed.rank = rank
    with MasterDouble() as server:
        storage = {"type": "shared_fs", "host_path": str(tmp_path / "checkpoints")}
        root = make_task_dir(tmp_path / "task", server.url, storage=storage)
        monkeypatch.setenv("DET_TASK_DIR", str(root))
        with core.init(distributed=distributed) as context:
            if rank == 0:
                context.train.report_training_metrics(12, {"loss": 1.0})
            context.profiler.on(sampling_interval=0.1, samples_per_report=1)
            assert len(threads()) == sampling
            spool = root / "spool" / "metrics.jsonl"
            until(lambda: not sampling or spool.read_text().count('"cpu"') >= 2, seconds=WAIT)
        assert threads() == []
    records = [json.loads(line) for line in spool.read_text().splitlines()] if spool.exists() else []
    assert {record["steps_completed"] for record in records} == ({12} if sampling else set())
