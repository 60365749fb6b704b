"""The supervisor with small programs in place of the parts: restarts, order, takeover, programs that will not end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from detlab.testing.ports import free_ports
from detlab_hub.embedded import parts as names
from detlab_hub.embedded.attached import Sources, code_of_parts, reload_changed
from detlab_hub.embedded.parts import ClusterPart
from detlab_hub.embedded.report import PartReport, PartState, read_report
from detlab_hub.embedded.state import FolderInUse, StartPlan, StateFolder
from detlab_hub.embedded.supervisor import Supervisor
from testbed.waiting import soon

IDLE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
print("up", flush=True)
time.sleep(600)
"""
LISTENS = "import socket\ns = socket.create_server(('127.0.0.1', {port}))\n" + IDLE
STUBBORN = IDLE.replace("lambda *a: sys.exit(0)", "signal.SIG_IGN")


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path / "state")
    found.create()
    found.make_secrets(["ann"], "ann")
    return found


@pytest.fixture
def plan() -> StartPlan:
    hub, api, master = free_ports(3)
    return StartPlan(port=1, hub_port=hub, proxy_api_port=api, master_port=master, operator="ann")


def programs(folder: StateFolder, plan: StartPlan, **other: str) -> dict[str, ClusterPart]:
    """Four idle programs; keyword arguments replace their code."""
    code = dict.fromkeys(names.NAMES, IDLE) | {"master": LISTENS.format(port=plan.master_port)} | other
    return {
        name: ClusterPart(name, (sys.executable, "-c", text), folder.log(name), folder.root, stop_grace=0.5)
        for name, text in code.items()
    }


@asynccontextmanager
async def supervised(folder: StateFolder, plan: StartPlan, parts: dict[str, ClusterPart]) -> AsyncIterator[Supervisor]:
    """A supervisor in this process, stopped at the end."""
    supervisor = Supervisor(folder, plan, parts)
    task = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        supervisor.request_stop()
        await task


def part(folder: StateFolder, name: str) -> PartReport:
    report = read_report(folder)
    return report.parts[name] if report and name in report.parts else PartReport()


def up(folder: StateFolder, name: str) -> bool:
    return part(folder, name).running is not None and folder.log(name).exists() and "up" in folder.log(name).read_text()


def all_up(folder: StateFolder) -> bool:
    return all(up(folder, name) for name in names.NAMES)


def test_each_part_has_the_code_that_it_runs() -> None:
    folders = code_of_parts()
    assert {folder.name for folder in folders["master"]} == {"detlab", "detlab_hub"}
    assert {folder.name for folder in folders["agent"]} == {"detlab", "detlab_agent"}
    assert {folder.name for folder in folders["hub"]} == {"spawners", "embedded"}


async def test_all_parts_run_and_are_stopped(folder: StateFolder, plan: StartPlan) -> None:
    async with supervised(folder, plan, programs(folder, plan)):
        await soon(lambda: all_up(folder))
        assert folder.locked
        assert folder.cluster_file.exists()
        pids = [part(folder, name).pid for name in names.NAMES]
        assert len(set(pids)) == 4
    assert not folder.locked
    assert not folder.cluster_file.exists()
    assert {part(folder, name).state for name in names.NAMES} == {PartState.STOPPED}
    assert not any(Path(f"/proc/{pid}/cwd").exists() for pid in pids)


async def test_a_second_supervisor_is_refused(folder: StateFolder, plan: StartPlan) -> None:
    async with supervised(folder, plan, programs(folder, plan)):
        await soon(lambda: all_up(folder))
        before = part(folder, "hub").pid
        with pytest.raises(FolderInUse):
            await Supervisor(folder, plan, programs(folder, plan)).run()
        assert part(folder, "hub").pid == before


async def test_a_killed_part_is_started_again_alone(folder: StateFolder, plan: StartPlan) -> None:
    async with supervised(folder, plan, programs(folder, plan)):
        await soon(lambda: all_up(folder))
        before = {name: part(folder, name).pid for name in names.NAMES}
        os.kill(before["hub"] or 0, signal.SIGKILL)
        await soon(lambda: part(folder, "hub").restarts == 1 and part(folder, "hub").running is not None)
        after = {name: part(folder, name).pid for name in names.NAMES}
        assert after.pop("hub") != before.pop("hub")
        assert after == before
        assert part(folder, "hub").exit_code == -signal.SIGKILL


async def test_a_part_that_ends_at_once_waits_longer_each_time(folder: StateFolder, plan: StartPlan) -> None:
    parts = programs(folder, plan, hub="print('no'); raise SystemExit(3)")
    async with supervised(folder, plan, parts):
        await soon(lambda: part(folder, "hub").restarts >= 3)
        assert part(folder, "hub").exit_code == 3
        assert part(folder, "proxy").restarts == 0
    assert part(folder, "hub").state is PartState.STOPPED


async def test_changed_code_restarts_what_runs_it_and_mended_code_is_started_at_once(
    folder: StateFolder, plan: StartPlan, tmp_path: Path
) -> None:
    packages = {name: tmp_path / name for name in ("shared", "only_agent")}
    for package in packages.values():
        package.mkdir()
    code = packages["shared"] / "code.py"
    code.write_text(IDLE)
    sources = Sources({"master": [packages["shared"]], "agent": list(packages.values())})
    runs_the_file = f"exec(open({str(code)!r}).read())"
    said: list[str] = []
    async with supervised(folder, plan, programs(folder, plan, master=runs_the_file)) as supervisor:
        reloading = asyncio.create_task(reload_changed(supervisor, sources, said.append))
        await soon(lambda: all_up(folder))
        before = {name: part(folder, name).pid for name in names.NAMES}
        (packages["shared"] / "notes.txt").write_text("no code")
        code.write_text("raise SystemExit('does not compile')")
        await soon(lambda: part(folder, "master").restarts >= 4)  # by now it would wait for seconds
        code.write_text(f"import time\nprint({str(code)!r})\n{IDLE}")
        await soon(lambda: str(code) in folder.log("master").read_text())
        (packages["only_agent"] / "new.py").touch()
        await soon(lambda: len(said) == 3 and part(folder, "agent").restarts == 3 and up(folder, "agent"))
        reloading.cancel()
        assert {name for name in names.NAMES if part(folder, name).pid == before[name]} == {"hub", "proxy"}
    assert said == [*2 * ["code.py changed: restarting master, agent"], "new.py changed: restarting agent"]


async def test_a_program_that_is_not_there_is_said_in_its_log(folder: StateFolder, plan: StartPlan) -> None:
    parts = programs(folder, plan)
    parts["proxy"] = replace(parts["proxy"], argv=("/nonexistent/proxy",))
    async with supervised(folder, plan, parts):
        await soon(lambda: part(folder, "proxy").restarts >= 1)
    assert "cannot be started" in folder.log("proxy").read_text()


async def test_a_part_that_ignores_sigterm_is_killed(folder: StateFolder, plan: StartPlan) -> None:
    async with supervised(folder, plan, programs(folder, plan, proxy=STUBBORN)):
        await soon(lambda: all_up(folder))
        stubborn = part(folder, "proxy").running
        assert stubborn is not None
    assert not stubborn.alive


async def test_parts_of_a_killed_supervisor_are_taken_over(folder: StateFolder, plan: StartPlan) -> None:
    killed = await orphans(folder, plan)
    changed = programs(folder, plan, hub=IDLE + "  # settings changed")
    async with supervised(folder, plan, changed):
        await soon(lambda: all_up(folder) and part(folder, "hub").pid != killed["hub"])
        for name in ("proxy", "master", "agent"):
            assert part(folder, name).pid == killed[name], f"{name} was not taken over"
        os.kill(killed["agent"], signal.SIGKILL)  # not our child, and yet we notice
        await soon(lambda: part(folder, "agent").pid not in {None, killed["agent"]})
    assert not any(part(folder, name).running for name in names.NAMES)


async def test_what_is_taken_over_is_in_the_first_report_already(folder: StateFolder, plan: StartPlan) -> None:
    killed = await orphans(folder, plan)
    supervisor = Supervisor(folder, plan, programs(folder, plan))
    task = asyncio.create_task(supervisor.run())
    earlier = read_report(folder)
    while (report := read_report(folder)) == earlier:
        await asyncio.sleep(0)  # one step of the loop: no keeper does a second one in between
    supervisor.request_stop()
    await task
    assert report is not None
    assert {name: found.pid for name, found in report.parts.items()} == killed


async def orphans(folder: StateFolder, plan: StartPlan) -> dict[str, int]:
    """Start the programs under a supervisor in another process and kill that one; returns their pids."""
    here = Path(__file__)
    places = [str(here.parent), str(here.parents[3])]
    code = f"import sys; sys.path[:0] = {places!r}; import {here.stem} as t; t.run_alone(sys.argv[1])"
    folder.write_plan(plan)
    child = subprocess.Popen([sys.executable, "-c", code, str(folder.root)], start_new_session=True)
    await soon(lambda: all_up(folder))
    child.kill()
    child.wait()
    await soon(lambda: not folder.locked)
    return {name: part(folder, name).pid or 0 for name in names.NAMES}


def run_alone(root: str) -> None:
    """What that other process does."""
    folder = StateFolder(Path(root))
    plan = folder.read_plan()
    assert plan is not None
    asyncio.run(Supervisor(folder, plan, programs(folder, plan)).run())
