"""Tasks that do to their own directory whatever may trip a root agent which reads and removes it."""

import os
import sys

import pytest
from agent_helpers import trial, wait_until

from detlab.launch.host import procfs

DEEP = """
import os
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
print("deep", flush=True)
"""

KILL_LAUNCHER = """
import json, os, signal
task = os.environ["DET_TASK_DIR"]
with open(os.path.join(task, {name!r}), "a") as file:
    file.write({text})
os.kill(json.load(open(os.path.join(task, "launcher.json")))["pid"], signal.SIGKILL)
"""

BRACKETS = "'[' * 100_000 + ']' * 100_000"  # an expression: no argument of a program may be so long


def still_serves(master):
    """The agent lives, and the slot of the hostile task is free."""
    task = master.launch(trial("DiesOnStart"), slots=["cpu0"])
    master.wait_for(lambda: task.exits, timeout=30)
    return task.exits[0].exit_code == 1


def test_a_directory_three_thousand_levels_deep_is_removed(master, agent):
    """shutil.rmtree met it with RecursionError, which ended the agent; and so again after each restart."""
    task = master.launch([sys.executable, "-c", DEEP], slots=["cpu0"])
    master.wait_for(lambda: task.exits, timeout=30)
    wait_until(lambda: not agent.task_dir(task).exists())
    assert agent.process.poll() is None
    assert still_serves(master)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exit.json", BRACKETS),
        ("exit.json", """'{"exit_code": 1e999, "rank": ' + "9" * 4000 + "}" """),
        ("spool/logs.jsonl", f"""'{{"seq": ' + {BRACKETS} + "}}\\n" """),
        ("spool/metrics.jsonl", """"9" * 5000 + "\\n" """),
    ],
)
def test_json_thousands_of_brackets_deep_does_not_keep_the_slot(master, agent, name, text):
    """json raises RecursionError for it: the task's watcher died, and its slots were never free again."""
    task = master.launch([sys.executable, "-c", KILL_LAUNCHER.format(name=name, text=text)], slots=["cpu0"])
    master.wait_for(lambda: task.exits, timeout=30)
    assert task.exits[0].exit_code is None  # the program did what it was to do
    assert still_serves(master)


@pytest.mark.parametrize("forked", [False], ids=["as-started"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent reads for others")
def test_a_daemon_in_the_agents_clothes_is_ended_with_its_task(master, agent):
    """A child with the agent's own command line was taken for one about to start, whoever's it was."""
    command = procfs.read_command(agent.process.pid)
    daemon = "import time; time.sleep(600)"
    program = f"""
import json, os, signal, subprocess, sys
task = os.environ["DET_TASK_DIR"]
argv = {command!r}
script = os.path.join(task, "work", "sitecustomize.py")
with open(script, "w") as file:
    file.write({daemon!r})
env = {{"PYTHONPATH": os.path.join(task, "work")}}
child = subprocess.Popen(argv, executable=sys.executable, env=env, start_new_session=True)
print(child.pid, flush=True)
import time; time.sleep(1)
os.kill(json.load(open(os.path.join(task, "launcher.json")))["pid"], signal.SIGKILL)
"""
    task = master.launch([sys.executable, "-c", program])
    pid = int(master.wait_for(lambda: master.texts(task))[0])
    master.wait_for(lambda: task.exits, timeout=30)
    assert not procfs.is_alive(pid, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open closed directories for others")
def test_an_experiments_own_path_opens_no_closed_directory(master, agent, open_tmp):
    """host_path is the author's word: a root agent bound it in from behind anybody's 0700 directory."""
    closed = open_tmp / "closed"
    (closed / "drop").mkdir(parents=True)
    (closed / "drop").chmod(0o777)
    (closed / "drop" / "payroll").write_text("secret")
    closed.chmod(0o700)
    allocation = master.allocate(["cat", str(closed / "drop" / "payroll")])
    allocation.launch.info.config["checkpoint_storage"] = {"type": "shared_fs", "host_path": str(closed / "drop")}
    master.send(allocation.launch)
    master.wait_for(lambda: allocation.exits, timeout=30)
    assert "secret" not in master.texts(allocation)
    assert allocation.exits[0].exit_code == 1
    # What the master names, the operator's own storage, is opened.
    chosen = master.allocate(["cat", str(closed / "drop" / "payroll")])
    chosen.launch.reach = [str(closed / "drop")]
    master.send(chosen.launch)
    master.wait_for(lambda: chosen.exits, timeout=30)
    assert master.texts(chosen) == ["secret"]
