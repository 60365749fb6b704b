"""Tasks of an agent that keeps them from the metadata service: the rules are held before each starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from detlab.launch.host.identity import Identity
from detlab.launch.taskdir import TaskDir
from detlab.testing.master import MasterDouble
from detlab_agent import cloud_metadata
from detlab_agent.cloud_metadata import MetadataGuard
from detlab_agent.runtimes.base import RefusedTask
from detlab_agent.runtimes.dispatch import NodeRuntime, RuntimeTable
from detlab_agent.runtimes.preparation import Order, TaskMaker
from detlab_agent.settings import AgentError


class Runtime:
    """One that notes what it makes."""

    name = "process"
    tasks_are = "here"
    reached = True

    def __init__(self, happened: list[str]) -> None:
        self.happened = happened

    def queue(self) -> None:
        """None."""

    async def ready(self, order: Order, say: Any) -> None:
        """It is."""

    def make(self, order: Order) -> Any:
        self.happened.append("made")
        return self


class Maker:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def admit(self, launch: Any, slots: Any) -> Order:
        task = TaskDir(self.directory / launch.allocation_id)
        return Order(launch, task, task.root.with_suffix(".json"), Identity("alice", 20000, 20000), [], 0)

    async def fetch(self, order: Order) -> None:
        """Nothing."""

    def choose_service(self, order: Order) -> None:
        """None."""


def start(tmp_path: Path, happened: list[str], before: Any) -> Any:
    table = RuntimeTable(cast(TaskMaker, Maker(tmp_path)), [cast(NodeRuntime, Runtime(happened))], before)
    launch = MasterDouble().allocate(["true"]).launch

    async def run() -> Any:
        return await table.start(launch, lambda *said: None, asyncio.Event())

    return asyncio.run(run())


def test_the_rules_are_held_before_a_task_is_made(tmp_path: Path) -> None:
    happened: list[str] = []
    start(tmp_path, happened, lambda: happened.append("held"))
    assert happened == ["held", "made"]


def test_a_task_is_refused_where_the_rules_cannot_be_made(tmp_path: Path) -> None:
    def fail() -> None:
        raise AgentError("iptables is gone")

    happened: list[str] = []
    with pytest.raises(RefusedTask, match="iptables is gone"):
        start(tmp_path, happened, fail)
    assert happened == []


def test_one_look_is_good_for_tasks_that_start_together(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, looks, made = MetadataGuard(), list[bool](), list[str]()
    monkeypatch.setattr(guard, "is_there", lambda: looks.append(True) or len(looks) > 1)
    monkeypatch.setattr(guard, "open", lambda: made.append("rules"))
    for _ in range(5):
        guard.hold()
    assert (len(looks), made) == (1, ["rules"])
    guard.hold(fresh=0.0)
    assert (len(looks), made) == (2, ["rules"])
    assert cloud_metadata.PERIOD <= 5, "what was flushed is missed soon, while tasks run"
