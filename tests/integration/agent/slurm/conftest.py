"""A real Slurm for the tests of this folder, and an agent between it and the double of the master."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from agent_helpers import AgentProcess

from testbed.slurm import SlurmCluster, missing


@pytest.fixture(scope="package")
def slurm():
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    directory = Path(tempfile.mkdtemp(prefix="detlab-slurm-"))  # pytest's own are 0700, and munge is another user
    try:
        with SlurmCluster(directory) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def agent_options():
    """More options of the agent: overridden where a test needs some."""
    return ()


@pytest.fixture
def agent(master, open_tmp, slurm, agent_options):
    options = ("--slurm", "--slurm-as", "agent", "--serves-user", "alice", "--slurm-interval", "0.3", *agent_options)
    process = AgentProcess(master, open_tmp / "agent", *options, forked=False)
    programs = open_tmp / "programs"
    programs.mkdir()
    process.environ = {"SLURM_CONF": str(slurm.conf), "PATH": f"{programs}:{os.environ['PATH']}"}
    process.slurm, process.programs = slurm, programs
    process.start()
    try:
        master.wait_for(master.connected, what="the agent connects")
        yield process
    finally:
        process.end()
        print(process.log.read_text()[-6000:])
        slurm.ask("scancel", "--partition", "main")
