"""The runtime `slurm` keeps the contract of runtimes, on a real Slurm of two nodes."""

import os

import pytest
from agent_helpers import AgentProcess

from detlab.testing.runtimes import RuntimeContract
from testbed.slurm import SlurmCluster, missing


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    directory = tmp_path_factory.mktemp("slurm")
    for folder in (directory, *directory.parents[:2]):
        folder.chmod(0o755)
    with SlurmCluster(directory) as cluster:
        yield cluster


@pytest.fixture
def agent(master, open_tmp, slurm, request):
    options = ("--slurm", "--slurm-as", "agent", "--slurm-interval", "0.3")
    process = AgentProcess(master, open_tmp / "agent", *options, forked=False)
    process.environ = {"SLURM_CONF": str(slurm.conf)}
    process.slurm = slurm
    process.start()
    try:
        master.wait_for(master.connected, what="the agent connects")
        yield process
    finally:
        process.end()
        print(process.log.read_text()[-6000:])
        slurm.ask("scancel", "--user", str(os.geteuid()))


class TestSlurm(RuntimeContract):
    runtime = "slurm"
    tasks_are = "elsewhere"

    def launch(self, master, entrypoint, **options):
        options.setdefault("slots", ["any0"])
        return super().launch(master, entrypoint, **options)

    def left_behind(self, agent, task):
        name = task.launch.allocation_id
        places = (agent.directory / "tasks", agent.directory / "slurm")
        files = [path for place in places for path in place.iterdir() if path.name.startswith(name)]
        return [*files, *(job for job in agent.slurm.jobs() if job == f"detlab-{name}")]
