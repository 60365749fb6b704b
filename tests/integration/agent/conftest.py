"""Real agents, launchers and trials as processes, against the shipped double of the master."""

import os
import sys
from pathlib import Path

import pytest

from detlab.testing.master import MasterDouble

sys.path.insert(0, str(Path(__file__).parent))

from agent_helpers import AgentProcess  # noqa: E402


@pytest.fixture
def master():
    with MasterDouble() as double:
        yield double


@pytest.fixture
def open_tmp(tmp_path):
    """tmp_path, made passable: pytest makes its directories 0700 and tasks may run as other users."""
    path = Path(tmp_path)
    while path != Path("/tmp") and path != path.parent:
        if path.stat().st_uid == os.getuid():
            path.chmod(path.stat().st_mode | 0o711)
        path = path.parent
    return tmp_path


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
