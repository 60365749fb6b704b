"""What a task has to itself under a root agent: its privileges are gone, its limits hold, its daemons end with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agent_docker import exited, in_spec
from agent_helpers import AgentProcess, make_bundle, wait_until

from detlab.launch.host import procfs
from detlab.schemas import wire
from detlab_agent.runtimes.process.control_groups import NoGroups, TaskGroups

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an agent that is not root has no privileges to give up")

STATUS = """
import json
found = dict(line.split(":", 1) for line in open("/proc/self/status"))
names = ("NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapAmb", "Groups", "Uid")
print("STATUS " + json.dumps({name: found[name].split() for name in names}), flush=True)
"""
GIVEN_UP = {
    "NoNewPrivs": ["1"],
    "CapInh": ["0" * 16],
    "CapPrm": ["0" * 16],
    "CapEff": ["0" * 16],
    "CapAmb": ["0" * 16],
}


def status_of(master, task, timeout=60):
    master.wait_for(lambda: any("STATUS" in text for text in master.texts(task)), timeout=timeout)
    line = next(text for text in master.texts(task) if text.startswith("STATUS"))
    return json.loads(line.removeprefix("STATUS "))


def check_given_up(found):
    assert {name: found[name] for name in GIVEN_UP} == GIVEN_UP
    assert set(found["Groups"]) <= {found["Uid"][0]}, "no further groups"
    assert all(int(uid) >= 23000 for uid in found["Uid"])


@pytest.mark.parametrize("kind", ["cold", "server", "container"])
def test_a_task_has_given_up_its_privileges_however_it_was_started(master, docker_agent, kind):
    spec = in_spec("docker" if kind == "container" else "process")
    service = wire.ServiceSpec() if kind == "server" else None
    task = master.launch([sys.executable, "-c", STATUS], service=service, **spec)
    check_given_up(status_of(master, task))


def test_a_forked_task_has_given_up_its_privileges(master, open_tmp):
    agent = AgentProcess(master, open_tmp / "agent", "--uid-range", "23000-23099", "--warm-pool", forked=False)
    agent.start()
    try:
        master.wait_for(master.connected)
        wait_until(lambda: " is ready after" in agent.log.read_text(), 120, "the zygote is ready")
        bundle = master.add_bundle(make_bundle({"train.py": (STATUS, 0o644)}))
        task = master.launch(["python3", "train.py"], bundle=bundle)
        check_given_up(status_of(master, task))
        launched = (agent.task_dir(task) / "launcher.log").read_text() if agent.task_dir(task).exists() else ""
        assert "started cold" not in launched
    finally:
        agent.end()


# --- limits -----------------------------------------------------------------------------------------------------


@pytest.fixture
def limited(master, open_tmp):
    """An agent whose tasks may have 100 processes and threads and 300 MiB each."""
    try:
        TaskGroups(open_tmp / "looked", None, None).open()
    except NoGroups as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    options = ("--uid-range", "23000-23099", "--task-pids", "100", "--task-memory", "300M")
    agent = AgentProcess(master, open_tmp / "agent", *options)
    agent.start()
    try:
        master.wait_for(master.connected)
        yield agent
    finally:
        agent.end()


BOMB = """
import os, time
alive = 0
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        alive += 1
    except OSError as error:
        print("refused", error.errno, alive, flush=True)
        break
else:
    print("all 300", flush=True)
time.sleep(60)
"""


def test_a_fork_bomb_stops_at_its_limit_and_hinders_nobody(master, limited):
    bomb = master.launch([sys.executable, "-c", BOMB], owner="mallory")
    master.wait_for(lambda: any("refused" in text or "all" in text for text in master.texts(bomb)), timeout=40)
    (said,) = master.texts(bomb)
    assert said.startswith("refused 11 ")
    assert int(said.split()[-1]) < 100
    forks = "import subprocess; subprocess.run(['true'], check=True)"
    other = master.launch([sys.executable, "-c", forks], owner="ada", slots=("cpu1",))
    master.wait_for(exited(other), timeout=40)
    assert other.exits[0].exit_code == 0
    master.send_kill(bomb, grace=0.5)
    master.wait_for(exited(bomb), timeout=40)
    assert limited.processes(bomb) == []


HOG = """
held = []
for _ in range(64):
    held.append(bytearray(b"x" * (16 << 20)))
print("all of it", flush=True)
"""


@pytest.mark.parametrize("asked", [None, 200 << 20])
def test_a_task_beyond_its_memory_limit_is_told_so(master, limited, asked):
    config = {"resources": {"memory": asked}} if asked else {}
    task = master.launch([sys.executable, "-c", HOG], config=config)
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].reason == "oom", (task.exits, master.texts(task))
    assert "memory limit" in task.exits[0].message
    assert "all of it" not in master.texts(task)


DAEMON = """
import os, sys, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)"], {})
    os._exit(0)
print("daemon", os.read(read, 20).decode(), flush=True)
time.sleep(300)
"""


@pytest.fixture
def haunted(master, limited):
    """A task with a daemon: a double fork, a session of its own, no environment. (task, record, daemon)"""
    task = master.launch([sys.executable, "-c", DAEMON], owner="mallory")
    master.wait_for(lambda: any("daemon" in text for text in master.texts(task)), timeout=40)
    daemon = procfs.read_process(int(master.texts(task)[0].split()[1]))
    wait_until(lambda: procfs.read_environment(daemon.pid) == {} and not procfs.is_in_exec(daemon.pid))
    yield task, limited.directory / "tasks" / f"{task.launch.allocation_id}.json", daemon
    procfs.send_signal([daemon], signal.SIGKILL)


def test_a_daemon_ends_although_launcher_and_agent_were_killed_together(master, limited, haunted):
    """Nothing but its control group tells whose it is."""
    task, record, daemon = haunted
    limited.process.send_signal(signal.SIGSTOP)  # so that it does not see the launcher die
    os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
    limited.kill()
    assert procfs.is_alive(daemon.pid, daemon.start_time)
    limited.start()
    master.wait_for(exited(task), timeout=40)
    assert not procfs.is_alive(daemon.pid, daemon.start_time)


def test_processes_whose_task_has_no_record_are_ended_at_the_agents_start(limited, haunted):
    _, record, daemon = haunted
    limited.kill()
    record.unlink()
    limited.start()
    wait_until(lambda: not procfs.is_alive(daemon.pid, daemon.start_time))


JOINS = """
import subprocess, sys
from pathlib import Path
from detlab.launch.host.cgroup import join
join(Path(word) for word in sys.argv[1:])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True, env={})
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("root", ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"])
def test_a_group_ends_with_all_its_processes_under_both_versions_of_the_kernel(open_tmp, root):
    groups = TaskGroups(open_tmp, 1 << 30, 50, Path(root))
    try:
        groups.open()
    except NoGroups as error:
        pytest.skip(f"not here: {error}")
    group = groups.make("1.a.1", None)
    joined = subprocess.Popen(
        [sys.executable, "-c", JOINS, *map(str, group.paths)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    daemon = procfs.read_process(int(joined.stdout.readline()))
    assert {process.pid for process in group.processes()} == {joined.pid, daemon.pid}
    group.end()
    joined.communicate()
    assert joined.returncode == -signal.SIGKILL
    assert not procfs.is_alive(daemon.pid, daemon.start_time)
    assert not any(path.exists() for path in group.paths)
    groups.close()
    assert not any(path.parent.exists() for path in group.paths)
