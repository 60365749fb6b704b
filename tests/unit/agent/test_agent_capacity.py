"""What a machine has for its tasks: as its files and the control groups around this process say it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from detlab_agent.capacity import free_memory, usable_cpus, usable_memory
from detlab_agent.commands import run


def machine(root: Path, **files: str) -> Path:
    """A machine of 8 GiB on which this process is in the control group /pod/task."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal:        8388608 kB\nMemAvailable: 12 kB\n")
    (root / "proc/self/cgroup").write_text("0::/pod/task\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_max", ".max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_all_of_a_machine_without_limits(tmp_path: Path) -> None:
    root = machine(tmp_path, pod__task__cpu_max="max 100000", pod__task__memory_max="max\n")
    assert usable_memory(root) == 8 << 30
    assert usable_cpus(root, affinity=6) == 6.0


def test_the_tightest_group_around_the_agent_counts(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        pod__cpu_max="150000 100000",
        pod__task__cpu_max="400000 100000\n",
        pod__memory_max="2147483648\n",
        pod__task__memory_max="4294967296\n",
    )
    assert usable_memory(root) == 2 << 30
    assert usable_cpus(root, affinity=6) == 1.5
    assert usable_cpus(root, affinity=1) == 1.0


def test_where_nothing_is_told_memory_is_not_counted(tmp_path: Path) -> None:
    assert usable_memory(tmp_path) is None
    assert usable_cpus(tmp_path, affinity=2) == 2.0


def old_machine(root: Path, place: str, **files: str) -> Path:
    """A machine of 8 GiB with control groups of version 1; `place` is what the process is told of its own."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal:        8388608 kB\nMemAvailable:    8388608 kB\n")
    (root / "proc/self/cgroup").write_text(f"9:memory:{place}\n4:cpu,cpuacct:{place}\n1:name=systemd:{place}\n0::/\n")
    for name, text in files.items():
        controller, _, rest = name.partition("__")
        path = root / "sys/fs/cgroup" / {"cpu": "cpu,cpuacct"}.get(controller, controller) / rest.replace("__", "/")
        path = path.with_name(f"{controller}.{path.name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


NO_LIMIT = "9223372036854771712\n"


def test_control_groups_of_version_1_count_too(tmp_path: Path) -> None:
    root = old_machine(
        tmp_path,
        "/slurm/job_7",
        cpu__cfs_quota_us="-1\n",
        cpu__slurm__job_7__cfs_quota_us="250000\n",
        cpu__slurm__job_7__cfs_period_us="100000\n",
        memory__limit_in_bytes=NO_LIMIT,
        memory__slurm__limit_in_bytes="3221225472\n",
        memory__slurm__usage_in_bytes="1073741824\n",
        memory__slurm__stat="inactive_file 1\ntotal_inactive_file 536870912\n",
        memory__slurm__job_7__limit_in_bytes=NO_LIMIT,
    )
    assert usable_cpus(root, affinity=6) == 2.5
    assert usable_memory(root) == 3 << 30
    assert free_memory(root) == (2 << 30) + (512 << 20)


def test_a_container_of_version_1_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    root = old_machine(
        tmp_path,
        "/docker/0123",
        cpu__cfs_quota_us="50000\n",
        cpu__cfs_period_us="100000\n",
        memory__limit_in_bytes="1073741824\n",
    )
    assert usable_cpus(root, affinity=6) == 0.5
    assert usable_memory(root) == 1 << 30


def test_version_1_without_limits_is_all_of_the_machine(tmp_path: Path) -> None:
    root = old_machine(tmp_path, "/", cpu__cfs_quota_us="-1\n", memory__limit_in_bytes=NO_LIMIT)
    assert usable_cpus(root, affinity=6) == 6.0
    assert usable_memory(root) == 8 << 30


@pytest.mark.parametrize("size", ["lots", "-1", "8 GiB of it"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    done = CliRunner().invoke(run, ["--master", "http://127.0.0.1:1", "--memory", size])
    assert done.exit_code == 2
    assert "is not a size" in done.output


def test_cpus_that_would_round_to_none_are_refused() -> None:
    """They became 0, which stands for: not counted."""
    done = CliRunner().invoke(run, ["--master", "http://127.0.0.1:1", "--cpus", "0.0004"])
    assert done.exit_code == 2
    assert "less than 0.001" in done.output
