"""Doubles of an agent's tasks have what agents ask of tasks: benches, run rarely, failed when a member was added."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import FunctionType

import pytest

from detlab_agent.runtimes.base import RunningTask
from detlab_agent.runtimes.slurm.client import SlurmClient
from detlab_agent.tasks import TaskTable

ROOT = Path(__file__).parents[3]


def members(kind: type) -> dict[str, object]:
    """Its public members, those of dataclasses that are only fields among them."""
    found: dict[str, object] = {}
    for one in reversed(kind.__mro__):
        found |= dict.fromkeys(getattr(one, "__annotations__", {})) | vars(one)
    return {name: value for name, value in found.items() if not name.startswith("_")}


def differences(double: type, wanted: type) -> list[str]:
    """What a double lacks, and methods of it that take other arguments."""
    found = members(double)
    told = [name for name in members(wanted) if name not in found]
    for name, value in members(wanted).items():
        mine = found.get(name)
        if isinstance(value, FunctionType) and isinstance(mine, FunctionType):
            asked, taken = (list(inspect.signature(one).parameters) for one in (value, mine))
            told += [] if asked == taken else [f"{name}({', '.join(taken)}) instead of ({', '.join(asked)})"]
    return told


def test_the_light_tasks_of_benches_are_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from load import fleet

    assert differences(fleet.LightTask, RunningTask) == []
    assert differences(fleet._Table, TaskTable) == []


def test_the_tasks_of_the_simulation_are_tasks() -> None:
    from simulation.machines.batch import Client
    from simulation.machines.node import Task
    from simulation.machines.pods import Pod

    assert differences(Task, RunningTask) == []
    assert differences(Pod, RunningTask) == []
    assert differences(Client, SlurmClient) == []


def test_a_double_that_lacks_something_is_told() -> None:
    class Old:
        allocation_id, run, slots, pid, address, port = "", 0, (), None, None, None
        secure, node, waits, host = False, "", False, ""

        async def finished(self) -> None: ...

        def interrupt(self) -> None: ...

        async def kill(self, delivery_grace: float) -> None: ...

        def leftovers(self) -> None: ...

        async def remove(self, *, clean: bool) -> None: ...

    assert differences(Old, RunningTask) == ["begun", "interrupt(self) instead of (self, grace)"]
