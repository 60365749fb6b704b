"""Real agents, launchers and trials as processes, against the shipped double of the master."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from detlab.testing.master import MasterDouble
from testbed.containers import docker_images

sys.path.insert(0, str(Path(__file__).parent))

from agent_helpers import AgentProcess


@pytest.fixture
def master():
    with MasterDouble() as double:
        yield double


@pytest.fixture
def open_tmp():
    """A directory that every user may pass (pytest's own are 0700, and tasks run as other users)."""
    path = Path(tempfile.mkdtemp(prefix="detlab-agent-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def forked():
    """Agents are forked from a process that has imported them; not where tests read the command line of one."""
    return True


@pytest.fixture
def agent(master, open_tmp, request, forked):
    options = () if os.geteuid() == 0 else ("--serves-user", "alice")
    process = AgentProcess(master, open_tmp / "agent", *options, forked=forked)
    process.start()
    try:
        master.wait_for(master.connected, what="the agent connects")
        yield process
    finally:
        process.end()
        if request.node.stash.get(_FAILED, False):
            print(process.log.read_text())


@pytest.fixture
def docker_agents(master, open_tmp, docker_engine, request, forked):
    """Start an agent with the docker runtime and the given further options."""
    started = []

    def start(*options, url=master, environ=None):
        shared = open_tmp / "shared"
        shared.mkdir(exist_ok=True)
        shared.chmod(0o777)
        allowed = [part for path in [*docker_images.host_mounts(), shared] for part in ("--allow-mount", str(path))]
        always = ("--runtime", "process,docker", "--docker-host", docker_engine.url)
        process = AgentProcess(url, open_tmp / "agent", *always, *allowed, *options, forked=forked)
        process.engine, process.shared = docker_engine, shared
        process.environ = environ or {}
        process.start()
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.end()
            if request.node.stash.get(_FAILED, False):
                print(process.log.read_text())
        docker_engine.start()
        docker_engine.remove_containers()


@pytest.fixture
def docker_agent(master, docker_agents):
    process = docker_agents()
    master.wait_for(master.connected, what="the agent connects")
    return process


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report
