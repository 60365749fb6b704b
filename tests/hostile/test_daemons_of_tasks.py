"""A task that leaves a daemon behind: nothing of it runs once the task is over, whoever was killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from detlab.launch.host import procfs
from testbed.cluster import running_cluster
from testbed.servers import Kernel, person
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.timeout(180)]

HIDES = """
import os, sys
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
print("DAEMON", os.read(read, 20).decode(), os.environ["DET_TASK_DIR"])
"""


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="only an agent that is root gives tasks control groups")
def test_a_daemon_does_not_outlive_det_down_although_launcher_and_agent_died_together(open_folder: Path) -> None:
    """A double fork, a session and an environment of its own: neither says whose it is, and its reaper is dead."""
    root = open_folder / "haunted"
    root.mkdir(mode=0o755)
    with running_cluster(root, slots=1, config="c.EmbeddedCluster.extra_users = ['mallory']\n") as cluster:
        mallory = person(cluster, "mallory")
        mallory.start("lab", slots=0)
        _, pid, directory = Kernel(mallory.ready("lab"), mallory.token).run(HIDES).split()
        daemon = procfs.read_process(int(pid))
        assert daemon is not None
        until(lambda: procfs.read_environment(daemon.pid) == {}, "it shows no task any more")
        agent = cluster.pid("agent")
        assert agent is not None
        os.kill(agent, signal.SIGSTOP)  # so that it does not see the launcher die
        os.kill(json.loads((Path(directory) / "launcher.json").read_text())["pid"], signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
        assert procfs.is_alive(daemon.pid, daemon.start_time)
        until(lambda: cluster.pid("agent") not in {None, agent}, cluster.logs)
        mallory.close()
        assert cluster.down("--timeout", "20").returncode == 0
        left = subprocess.run(["ps", "-o", "pid=,args=", "-p", pid], capture_output=True, text=True, check=False).stdout
        assert not procfs.is_alive(daemon.pid, daemon.start_time), left
