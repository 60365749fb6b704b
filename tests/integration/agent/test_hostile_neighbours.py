"""A hostile task against another user's processes, the agent's, and in a container against the machine's.

Every way that the kernel has is tried (`hostile_neighbour.py`); what it must refuse is refused, and the others live on.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from agent_docker import exited, in_container, python
from agent_helpers import AgentProcess, trial

from detlab.launch.host import procfs

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="uids can only be changed by root")
PROGRAM = Path(__file__).with_name("hostile_neighbour.py").read_text(encoding="utf-8")
REFUSED = {"EPERM", "EACCES", "ENOSYS"}
NOT_THERE = {"ENOENT", "ESRCH"}
SECRET = "bobs-secret-in-his-environment"


@pytest.fixture
def forked():
    """The command line of an agent is read here: it is that of its own start."""
    return False


def victim(master, agent):
    """Bob's running task; its processes by name, and the agent's own."""
    bob = master.launch(trial("NeverExits"), owner="bob", slots=["cpu1"], environment={"PASSWORD": SECRET})
    master.wait_for(lambda: "up" in master.texts(bob))
    launcher = json.loads((agent.task_dir(bob) / "launcher.json").read_text())["pid"]
    (program,) = [process.pid for process in procfs.descendants(launcher)]
    return bob, {"their program": program, "their launcher": launcher, "the agent": agent.process.pid}


def pry(master, victims, paths, *, in_a_container=False, **environment):
    """Run the hostile program as alice."""
    given = {"VICTIMS": json.dumps(victims), "PATHS": json.dumps([str(path) for path in paths]), **environment}
    options = {"owner": "alice", "slots": ["cpu0"], "environment": given}
    if in_a_container:
        task = in_container(master, python(PROGRAM), **options)
    else:
        task = master.launch([sys.executable, "-I", "-c", PROGRAM], **options)
    master.wait_for(exited(task), timeout=60)
    said = {}
    for line in master.texts(task, "stdout"):
        said |= json.loads(line)
    return task, said


@needs_root
def test_another_users_task_and_the_agent_cannot_be_read_steered_or_ended(master, agent):
    bob, victims = victim(master, agent)
    theirs = agent.task_dir(bob)
    paths = [theirs, *theirs.rglob("*"), theirs.parent, agent.directory / "key.json", agent.token_file]
    assert {"token", "launch.json", "info.json"} <= {path.name for path in paths}
    paths += [Path(f"/proc/{pid}/root{theirs}/token") for pid in victims.values()]
    task, said = pry(master, victims, paths)
    assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
    for name, pid in victims.items():
        command = said[name].pop("cmdline")
        assert {what: how for what, how in said[name].items() if how not in REFUSED} == {}, name
        assert len(said[name]) > 40
        assert procfs.is_alive(pid, None), name
        token = (theirs / "token").read_text().strip()
        assert not [secret for secret in (SECRET, token, "dttask_", "dtagent_") if secret in command]
    assert {path: said[str(path)] for path in paths if said[str(path)] not in REFUSED} == {}
    # (A read-only /sys, as in a container, says so.)
    assert set(said["the machine"].values()) <= {*REFUSED, "ENOENT", "EROFS"}
    master.send_kill(bob)
    master.wait_for(exited(bob))
    assert bob.exits[0].exit_code != 0


@pytest.fixture
def agent(master, open_tmp):
    """With users of its own: what ends all processes of a user ends none of another test's, which may run beside it."""
    master.uids_from = 23_300
    process = AgentProcess(master, open_tmp / "agent", forked=False)
    process.start()
    master.wait_for(master.connected, what="the agent connects")
    yield process
    process.end()


@pytest.fixture
def agent_with_secrets(master, open_tmp):
    master.uids_from = 23_300
    process = AgentProcess(master, open_tmp / "agent", forked=False)
    process.token_file.chmod(0o644)
    process.environ = {"OPERATORS_TOKEN": "operators-secret", "JUPYTERHUB_API_TOKEN": "hubs-secret"}
    process.start()
    yield process
    process.end()


@needs_root
def test_what_a_task_is_given_holds_nothing_of_the_agents(master, agent_with_secrets):
    """Its launcher runs as the same user, so that whatever that holds is the task's to take."""
    agent = agent_with_secrets
    master.wait_for(master.connected)
    assert f"other users can read {agent.token_file}" in agent.log.read_text()
    task, said = pry(master, {}, [])
    assert task.exits[0].exit_code == 0, master.texts(task)
    names = {pair.partition("=")[0] for pair in said["launcher"]}
    assert "DET_TASK_DIR" in names
    assert not [pair for pair in said["launcher"] if "secret" in pair or "TOKEN" in pair]
    own = str(agent.directory / "tasks" / task.launch.allocation_id)
    files = [path for path in said["held"] if path.startswith("/") and not path.startswith(("/dev/", "/proc/", own))]
    # It may import a module at that moment, which anybody may read.
    lock = re.compile(r"/tmp/det-\w+/\.lock")  # of its launcher, whose folder is the short name of TMPDIR
    assert [path for path in files if not path.endswith(".pyc") and not lock.fullmatch(path)] == []


@needs_root
def test_a_task_that_kills_whatever_it_may_ends_its_own_users_tasks_only(master, agent):
    bob, victims = victim(master, agent)
    task, _ = pry(master, {}, [], THEN="kill all")
    assert task.exits[0].reason == "launcher_lost"
    assert all(procfs.is_alive(pid, None) for pid in victims.values())
    after = master.launch(trial("DiesOnStart"), owner="alice", slots=["cpu0"])
    master.wait_for(exited(after), timeout=30)
    assert after.exits[0].exit_code == 1, "the slot is free again, the user's next task runs"
    assert bob.exits == []
    master.send_kill(bob)
    master.wait_for(exited(bob))


def test_a_task_in_a_container_finds_neither_the_machines_processes_nor_the_engine(master, docker_agent):
    """And a task beside the containers finds the engine's socket closed: who has it is root."""
    bob, victims = victim(master, docker_agent)
    victims |= {"the engine": int((docker_agent.engine.directory / "dockerd.pid").read_text())}
    sockets = [docker_agent.engine.socket, Path("/var/run/docker.sock"), Path("/run/containerd/containerd.sock")]
    paths = [docker_agent.directory / "key.json", docker_agent.token_file, docker_agent.task_dir(bob), *sockets]
    for in_a_container in (False, True):
        task, said = pry(master, victims, paths, in_a_container=in_a_container)
        assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
        allowed = REFUSED | NOT_THERE if in_a_container else REFUSED
        for name in victims:
            assert ("cmdline" in said[name]) == (not in_a_container), "there is no such process at all"
            said[name].pop("cmdline", None)
            assert {what: how for what, how in said[name].items() if how not in allowed} == {}, name
        assert {path: said[str(path)] for path in paths if said[str(path)] not in {*REFUSED, "ENOENT"}} == {}
        assert said[str(sockets[0])] == ("ENOENT" if in_a_container else "EACCES")
        assert set(said["the machine"].values()) <= {*REFUSED, "ENOENT", "EROFS"}
        assert not [pair for pair in said["launcher"] if "dtagent_" in pair]
    assert all(procfs.is_alive(pid, None) for pid in victims.values())
    master.send_kill(bob)
    master.wait_for(exited(bob))
