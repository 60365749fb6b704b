"""Notebooks, shells and commands by `det` at a real cluster, as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.agents import printed_agent
from testbed.cluster import Cluster, running_cluster
from testbed.front.local_terminal import on_a_terminal
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one slot and two users."""
    config = "c.EmbeddedCluster.extra_users = ['ada']\n"
    with running_cluster(tmp_path_factory.mktemp("task_commands"), slots=1, config=config) as running:
        yield running


def det(place: Cluster, *words: str, stdin: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `det` at that cluster."""
    return subprocess.run(
        place.command(*words), cwd=place.root, env={**place.environment, **environ}, input=stdin, capture_output=True,
        text=True, timeout=200, check=False,
    )  # fmt: skip


def newest(place: Cluster, group: str) -> str:
    """The id of the newest task of a kind."""
    return str(json.loads(det(place, group, "list", "--json").stdout)[0]["id"])


def test_a_command_brings_code_output_and_exit_code(place: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("import sys\nprint('in', sys.argv)\nsys.exit(7)\n")
    done = det(place, "cmd", "run", "--context", str(tmp_path), "--", "python3", "hello.py", "--x")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "in ['hello.py', '--x']\n"
    assert "failed, exit code 7" in done.stderr
    again = det(place, "cmd", "logs", newest(place, "cmd"))
    assert "in ['hello.py', '--x']" in again.stdout


def test_a_command_line_for_the_shell(place: Cluster) -> None:
    done = det(place, "cmd", "run", "--slots", "0", "echo a b | wc -w && echo $((6*7))")
    assert (done.returncode, done.stdout.split()) == (0, ["2", "42"]), done.stderr


def test_queue_place_reason_kill_and_killing_what_is_over(place: Cluster) -> None:
    assert det(place, "cmd", "run", "--detach", "--", "sleep", "300").returncode == 0
    holder = newest(place, "cmd")
    assert det(place, "cmd", "run", "--detach", "--name", "waiter", "--", "true").returncode == 0
    waiter = newest(place, "cmd")
    queue = det(place, "queue").stdout
    assert "waiter" in queue
    killed = det(place, "cmd", "kill", holder)
    assert killed.returncode == 0
    assert det(place, "task", "wait", waiter, "--timeout", "60").returncode == 0
    assert det(place, "task", "wait", holder, "--timeout", "60").returncode in {3, 137, 143}
    over = det(place, "cmd", "kill", holder)
    assert over.returncode == 0
    assert "has already ended" in over.stderr


def test_another_users_task_is_not_there(place: Cluster) -> None:
    assert det(place, "cmd", "run", "--slots", "0", "--", "true").returncode == 0
    mine = newest(place, "cmd")
    other = {"DET_URL": place.url, "DET_TOKEN": place.make_token(*_WRITE, user="ada")}
    for words in (("describe", mine), ("logs", mine), ("kill", mine)):
        refused = det(place, "task", *words, **other)
        assert refused.returncode == 1
        assert f"there is no task '{mine}' of yours" in refused.stderr
    assert det(place, "task", "list", **other).stdout.startswith("No tasks yet.")


_WRITE = ("custom:detlab:write", "access:services!service=detlab")


def test_a_shell_in_the_local_terminal_and_another_users_refused(place: Cluster) -> None:
    started = det(place, "shell", "start", "--name", "mine", "--no-open")
    assert started.returncode == 0, started.stderr
    shell = newest(place, "shell")
    with on_a_terminal(place.command("shell", "open", shell), place.environment, cwd=place.root) as terminal:
        terminal.type(b"echo so $((6*7))\r")
        terminal.press_ctrl_d(b"so 42", 60)
        assert terminal.end(60) == 0, terminal.seen
    assert f"det shell kill {shell}".encode() in terminal.seen
    piped = det(place, "shell", "open", shell, stdin="echo piped $((20+3))\n")
    assert "piped 23" in piped.stdout, piped.stderr
    token = place.make_token(*_WRITE, "access:servers!user=ada", user="ada")
    refused = det(place, "shell", "open", shell, DET_URL=place.url, DET_TOKEN=token)
    assert refused.returncode == 1
    assert "of yours" in refused.stderr
    _listed_with_its_log(place, "shell", shell)
    assert json.loads(det(place, "shell", "open", shell, "--json").stdout)["address"].endswith("/terminals/1")
    _killed(place, "shell", shell)


def _listed_with_its_log(place: Cluster, group: str, task: str) -> None:
    """Insist that a server that runs is listed so, and that `logs` brings what its process wrote."""
    row = next(line for line in det(place, group, "list").stdout.splitlines() if task in line)
    assert "RUNNING" in row
    running = json.loads(det(place, group, "list", "--state", "active", "--json").stdout)
    assert [(view["id"], view["owner"]) for view in running] == [(task, place.user)]
    shown = det(place, group, "logs", task)
    assert shown.returncode == 0, shown.stderr
    assert "Serving notebooks from local directory" in shown.stdout, shown.stdout
    last = [json.loads(line) for line in det(place, group, "logs", task, "--tail", "2", "--json").stdout.splitlines()]
    assert [line["text"] for line in last] == [line["text"] for line in _log(place, group, task)[-2:]]


def _log(place: Cluster, group: str, task: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in det(place, group, "logs", task, "--json").stdout.splitlines()]


def _killed(place: Cluster, group: str, task: str) -> None:
    """Kill a server that runs; what is over stays in the list with its reason, and its log can still be read."""
    before = _log(place, group, task)
    killed = det(place, group, "kill", task)
    assert killed.returncode == 0, killed.stderr
    assert det(place, "task", "wait", task, "--timeout", "60").returncode in {0, 3, 137, 143}
    row = next(line for line in det(place, group, "list").stdout.splitlines() if task in line)
    assert "killed" in row
    assert json.loads(det(place, group, "list", "--state", "active", "--json").stdout) == []
    after = _log(place, group, task)
    assert after[: len(before)] == before


def test_a_notebook_is_up_when_its_address_is_printed(place: Cluster) -> None:
    import httpx

    started = det(place, "notebook", "start", "--no-open", "--json")
    assert started.returncode == 0, started.stderr
    told = json.loads(started.stdout)
    headers = {"Authorization": f"token {place.token}"}
    server = told["address"].removesuffix("lab")
    found = httpx.get(f"{server}api/status", headers=headers, trust_env=False, timeout=60)
    assert found.status_code == 200, found.text
    opened = det(place, "notebook", "open", told["id"], "--json")
    assert json.loads(opened.stdout)["address"] == told["address"], opened.stderr
    _listed_with_its_log(place, "notebook", told["id"])
    _killed(place, "notebook", told["id"])
    gone = det(place, "notebook", "open", told["id"])
    assert gone.returncode == 1
    assert "has ended" in gone.stderr


def test_a_config_with_mistakes_is_refused_with_all_of_them(place: Cluster, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("resources: {slots: -1, slotz: 2}\nidle_timeout: soon\nruntime: a podman\n")
    refused = det(place, "shell", "start", "--config-file", str(tmp_path / "bad.yaml"))
    assert refused.returncode == 2
    for path in ("resources.slots", "resources.slotz", "idle_timeout", "runtime"):
        assert path in refused.stderr


def test_an_image_without_an_engine_is_told_why(place: Cluster) -> None:
    """No node of this cluster runs containers: the command says so while it waits, and is ended by hand."""
    asked = det(place, "cmd", "run", "--detach", "--image", "nowhere.example/none:1", "--", "true")
    assert asked.returncode == 0, asked.stderr
    waits = newest(place, "cmd")
    until(lambda: "no agent can run containers" in det(place, "cmd", "describe", waits).stdout, place.logs)
    assert det(place, "cmd", "kill", waits).returncode == 0


def test_agents_are_disabled_and_enabled(place: Cluster) -> None:
    agent = json.loads(det(place, "agent", "list", "--json").stdout)[0]["id"]
    assert "disabled" in det(place, "agent", "disable", agent).stdout
    assert "disabled" in det(place, "agent", "list").stdout
    assert "enabled" in det(place, "agent", "enable", agent).stdout
    assert det(place, "audit", "--action", "agent.disable").stdout.count(agent) >= 1
    assert os.environ.get("DET_URL") is None


def test_a_second_agent_comes_by_the_printed_command_and_is_refused_once_it_is_removed(
    place: Cluster, tmp_path: Path
) -> None:
    printed = det(place, "agent", "enrol")
    assert printed.returncode == 0, printed.stderr
    command = printed.stderr.rpartition("→")[2].strip()
    assert command.startswith("det agent run "), printed.stderr
    with printed_agent(command, printed.stdout.strip(), tmp_path, "second", place.environment) as second:
        second.until_it_says("enrolled as second", "connected to cluster")
        agents = {agent["id"]: agent for agent in json.loads(det(place, "agent", "list", "--json").stdout)}
        assert agents["second"]["state"] == "connected"
        assert len(agents["second"]["slots"]) == 1
        assert det(place, "agent", "remove", "second", "--yes").returncode == 0
        second.until_it_says("the master does not know this agent's key, and the master refuses the enrolment token")
    left = json.loads(det(place, "agent", "list", "--json").stdout)
    assert "connected" not in [agent["state"] for agent in left if agent["id"] == "second"]
