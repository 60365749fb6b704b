"""Real agents, launchers and trials as processes, against the shipped double of the master."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from detlab.testing.master import MasterDouble

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
def agent(master, open_tmp, request):
    options = ("--uid-range", "23000-23099") if os.geteuid() == 0 else ("--serves-user", "alice")
    process = AgentProcess(master, open_tmp / "agent", *options)
    process.start()
    try:
        master.wait_for(master.connected, what="the agent connects")
        yield process
    finally:
        process.end()
        if request.node.stash.get(_FAILED, False):
            print(process.log.read_text())


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report
