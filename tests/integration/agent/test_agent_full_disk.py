"""An agent whose disk has no room: it refuses what it cannot take, which is no failure of the task, and goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_helpers import AgentProcess

from detlab.testing.master import MasterDouble
from testbed.small_disks import CannotRun, Disk, small_disk


@pytest.fixture
def disk(open_tmp: Path) -> Iterator[Disk]:
    try:
        with small_disk(open_tmp / "agent", 8, 0o711) as found:
            yield found
    except CannotRun as error:
        pytest.skip(str(error))


@pytest.fixture
def cramped(master: MasterDouble, disk: Disk) -> Iterator[Any]:
    """An agent on that disk."""
    options = () if os.geteuid() == 0 else ("--serves-user", "alice")
    agent = AgentProcess(master, disk.folder, *options)
    agent.start()
    try:
        master.wait_for(master.connected, what="the agent connects")
        yield agent
    finally:
        agent.end()


def test_a_task_for_which_there_is_no_room_is_refused_not_failed(
    master: MasterDouble, cramped: Any, disk: Disk
) -> None:
    disk.fill()
    refused = master.launch("true")
    master.wait_for(lambda: refused.exits)
    assert refused.exits[0].reason == "refused", refused.exits[0].message
    assert "No space left on device" in refused.exits[0].message
    assert not cramped.task_dir(refused).exists()
    disk.free()
    taken = master.launch("echo here I am")
    master.wait_for(lambda: taken.exits)
    assert taken.exits[0].exit_code == 0
    assert master.texts(taken) == ["here I am"]
