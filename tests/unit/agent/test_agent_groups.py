"""The parents of tasks' control groups, in folders that look like those of the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from detlab.launch.host import procfs
from detlab.launch.host.identity import Identity
from detlab.launch.taskdir import TaskDir
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.preparation import Order, TaskMaker
from detlab_agent.runtimes.process.control_groups import NoGroups, TaskControlGroups, TaskGroups
from detlab_agent.runtimes.process.runtime import ProcessRuntime
from testbed.waiting import until

LIMITS = ("pids.max", "memory.max", "memory.swap.max")


class Kernel:
    """Folders as the kernel shows them; what a group may have is in files of its folder."""

    def __init__(self, folder: Path, own: str, unified: bool) -> None:
        self.root, self.proc = folder / "cgroup", folder / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "sys/kernel").mkdir(parents=True)
        (self.proc / "sys/kernel/pid_max").write_text("32768\n")
        (self.proc / "sys/kernel/threads-max").write_text("100000\n")
        self.top = self.root if unified else self.root / "pids"
        (self.top / own).mkdir(parents=True)
        (self.proc / "self/cgroup").write_text(f"0::/{own}\n" if unified else f"8:pids:/{own}\n0::/\n")
        if unified:
            (self.root / "cgroup.controllers").touch()
        self.groups = TaskGroups(folder / "agent", None, None, self.root, self.proc)

    def parent(self) -> Path:
        """Open the groups, and again with the files that the kernel puts into a new group."""
        self.groups.open()
        (made,) = self.top.glob("detlab-*")
        for name in LIMITS:
            (made / name).write_text("max")
        self.groups.open()
        return made


def limits_of(parent: Path) -> list[str]:
    return [(parent / name).read_text() for name in LIMITS]


@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize(("threads", "most"), [(100_000, 26_214), (10_000, 8_000)])
def test_all_tasks_together_leave_the_agent_processes_to_start(
    tmp_path: Path, unified: bool, threads: int, most: int
) -> None:
    kernel = Kernel(tmp_path, "system.slice/agent.service", unified)
    (kernel.proc / "sys/kernel/threads-max").write_text(f"{threads}\n")
    assert limits_of(kernel.parent()) == [str(most), "max", "max"]


def test_the_limits_of_the_agents_unit_hold_its_tasks_under_version_2(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, "system.slice/agent.service", unified=True)
    unit = kernel.root / "system.slice/agent.service"
    (unit / "memory.max").write_text("8000000000\n")
    (unit / "memory.swap.max").write_text("0\n")
    (unit / "pids.max").write_text("max\n")
    (unit.parent / "pids.max").write_text("4096\n")
    (unit.parent / "memory.max").write_text("9000000000\n")
    assert limits_of(kernel.parent()) == ["4096", "8000000000", "0"], "the smallest of the unit's and those above"


def test_a_limit_that_was_lifted_is_lifted_for_tasks_at_the_agents_next_start(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, "agent.service", unified=True)
    said = kernel.root / "agent.service/memory.max"
    said.write_text("1000000\n")
    parent = kernel.parent()
    assert (parent / "memory.max").read_text() == "1000000"
    said.write_text("max\n")
    kernel.groups.open()
    assert (parent / "memory.max").read_text() == "max"


def test_a_parent_that_another_agent_removed_is_made_again(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, "agent.service", unified=False)
    kernel.groups.open()
    kernel.groups.make("1.1", None)
    (parent,) = kernel.top.glob("detlab-*")
    shutil.rmtree(parent)
    assert kernel.groups.make("2.1", None) == TaskControlGroups((parent / "2.1",))
    assert (parent / "2.1").is_dir()


class Looking(TaskGroups):
    """Looks, when a group is asked for, whether the task's code is there; makes none."""

    def __init__(self, task: TaskDir) -> None:
        super().__init__(task.root, None, None)
        self._task = task
        self.unpacked: list[bool] = []

    def make(self, allocation_id: str, memory: int | None) -> TaskControlGroups:
        self.unpacked.append(self._task.launch.exists())
        raise NoGroups("enough seen")


def test_a_group_is_made_when_the_code_is_unpacked_so_that_it_is_not_empty_for_long(tmp_path: Path) -> None:
    """Agents that start remove groups that have been empty for a minute."""
    launch = MasterDouble().allocate(["true"], owner="alice").launch
    task = TaskDir(tmp_path / "tasks" / launch.allocation_id)
    nothing: Any = None
    maker = TaskMaker(tmp_path / "tasks", [], nothing, nothing, nothing)
    groups = Looking(task)
    order = Order(launch, task, task.root.with_suffix(".json"), Identity("alice", os.getuid(), os.getgid()), [], 0)
    with pytest.raises(SetupFailed, match="enough seen"):
        ProcessRuntime(maker, {}, groups=groups).make(order)
    assert groups.unpacked == [True]


@pytest.mark.parametrize("how", ["the same folder", "renamed", "copied"])
def test_an_agent_in_a_copy_of_its_folder_ends_no_task_of_the_original(tmp_path: Path, how: str) -> None:
    original, here = tmp_path / "original" / "1.1", tmp_path / ("original" if how == "the same folder" else "here")
    original.mkdir(parents=True)
    nothing: Any = None
    runtime = ProcessRuntime(TaskMaker(here, [], nothing, nothing, nothing), {})
    launcher = subprocess.Popen(["sleep", "60"], env={"DET_TASK_DIR": str(original)}, start_new_session=True)
    try:
        TaskDir(original).launcher.write_text("{}")
        until(lambda: b"DET_TASK_DIR" in Path(f"/proc/{launcher.pid}/environ").read_bytes())  # it is empty for a moment
        noted = {"run": 1, "slots": [], "pid": launcher.pid, "start_time": procfs.start_time(launcher.pid)}
        noted |= {"uid": os.getuid(), "groups": [str(tmp_path / "group")]}
        if how == "renamed":
            original.parent.rename(here)
        elif how == "copied":
            shutil.copytree(original.parent, here, dirs_exist_ok=True)
        task = runtime.recover(here / "1.1.json", noted)
        assert task is not None
        assert task.is_over() == (how == "copied")
        assert bool(task.group.paths) == (how != "copied")
    finally:
        launcher.kill()
        launcher.wait()
