"""Instances that are agents of this machine: real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from provider_contract import ProviderContract, living, order

from detlab.launch.host import procfs
from detlab.testing.master import MasterDouble
from detlab_hub.backends.instances import ProviderError, Trouble
from detlab_hub.backends.instances.local import LocalProvider
from detlab_hub.core.provisioning import InstanceState
from testbed.waiting import until

STAYS = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)")
"""In place of an agent where only the process matters: it needs no master."""


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="detlab-instances-"))
    path.chmod(0o711)
    yield path
    provider = LocalProvider(path, "")
    provider.terminate([instance.id for instance in provider.list()])
    shutil.rmtree(path)


@pytest.fixture
def provider(root: Path) -> Iterator[LocalProvider]:
    made = LocalProvider(root, "http://127.0.0.1:1", command=STAYS)
    yield made
    made.terminate([instance.id for instance in made.list()])


@pytest.fixture
def another(root: Path) -> LocalProvider:
    return LocalProvider(root, "http://127.0.0.1:1", command=STAYS)


def pid_of(root: Path, name: str) -> int:
    return int((root / name / "process").read_text().split()[0])


class TestLocal(ProviderContract):
    """The contract."""


def test_a_real_agent_enrols_by_its_token_and_goes_by_its_process_id(root: Path) -> None:
    with MasterDouble() as master:
        options = ["--slots", "2", *(() if os.geteuid() == 0 else ("--serves-user", "alice"))]
        provider = LocalProvider(root, master.url, options)
        wanted = replace(order("real-1"), enrolment_token=master.enrolment_token)
        made = provider.launch(wanted)
        master.wait_for(lambda: master.connected("real-1"), what="the agent connects")
        pid = pid_of(root, "real-1")
        assert wanted.enrolment_token not in " ".join(procfs.read_command(pid))
        assert (root / "real-1" / "enrolment_token").stat().st_mode & 0o777 == 0o600
        assert [i.state for i in provider.list()] == [InstanceState.RUNNING]
        provider.terminate([made.id])
        process = procfs.read_process(pid)
        assert process is None or not process.alive
        assert not provider.list()
        assert "real-1" in (root / "logs" / "real-1.log").read_text()


def test_an_agent_with_wrong_options_is_an_error_with_what_it_said(root: Path) -> None:
    provider = LocalProvider(root, "http://127.0.0.1:1", ["--no-such-option"])
    provider._poll_seconds = 60.0  # this machine may be slow
    with pytest.raises(ProviderError, match="no-such-option") as raised:
        provider.launch(order("wrong"))
    assert raised.value.trouble is Trouble.CONFIGURATION
    assert not provider.list()
    assert "no-such-option" in (root / "logs" / "wrong.log").read_text()


def test_an_agent_that_was_killed_is_stopped_and_what_it_left_of_its_tasks_goes_with_it(
    root: Path, provider: LocalProvider
) -> None:
    provider.launch(order("killed"))
    task = root / "killed" / "agent" / "tasks" / "a1"
    orphan = subprocess.Popen(["sleep", "600"], env={**os.environ, "DET_TASK_DIR": str(task)}, start_new_session=True)
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, "DET_TASK_DIR": f"{root}/killed2/agent/tasks/a1"})
    try:
        os.kill(pid_of(root, "killed"), signal.SIGKILL)
        until(lambda: provider.list()[0].state is InstanceState.STOPPED, lambda: str(provider.list()), 10)
        provider.terminate(["killed"])
        assert orphan.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        assert not provider.list()
    finally:
        for process in (orphan, other):
            process.kill()
            process.wait()


def test_what_an_agent_left_is_ended_from_a_directory_spelled_otherwise(root: Path, tmp_path: Path) -> None:
    """The cluster was started through a link, and is ended by its real path; tasks have the spelling of the start."""
    (tmp_path / "link").symlink_to(root)
    started = LocalProvider(tmp_path / "link", "http://127.0.0.1:1", command=STAYS)
    started.launch(order("one-1"))
    mark = str(tmp_path / "link" / "one-1" / "agent" / "tasks" / "t")
    other = str(tmp_path / "another" / "one-1" / "agent" / "tasks" / "t")
    task = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={"DET_TASK_DIR": mark})
    neighbour = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={"DET_TASK_DIR": other})
    try:
        until(lambda: procfs.read_environment(task.pid).get("DET_TASK_DIR") == mark)
        until(lambda: procfs.read_environment(neighbour.pid).get("DET_TASK_DIR") == other)
        LocalProvider(root, "").terminate(["one-1"])
        assert task.wait(10) == -signal.SIGKILL
        assert neighbour.poll() is None, "of another cluster, whose instance has the same name"
    finally:
        for process in (task, neighbour):
            process.kill()
            process.wait()


def test_a_process_id_that_somebody_else_got_is_not_touched(root: Path, provider: LocalProvider) -> None:
    provider.launch(order("reused"))
    os.kill(pid_of(root, "reused"), signal.SIGKILL)
    until(lambda: provider.list()[0].state is InstanceState.STOPPED, lambda: str(provider.list()), 10)
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        note = root / "reused" / "process"
        note.write_text(note.read_text().replace(note.read_text().split()[0], str(bystander.pid), 1))
        assert [i.state for i in provider.list()] == [InstanceState.STOPPED]
        provider.terminate(["reused"])
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_instances_of_before_a_reboot_are_stopped(root: Path, provider: LocalProvider) -> None:
    provider.launch(order("old"))
    note = root / "old" / "instance.json"
    kept = note.read_text()
    note.write_text(json.dumps({**json.loads(kept), "life": "another boot"}))
    assert [i.state for i in provider.list()] == [InstanceState.STOPPED]
    note.write_text(kept)
    assert living(provider)


def test_a_master_that_dies_while_it_starts_one_loses_nothing(root: Path) -> None:
    """Between the process and any note of it by the master: the process itself has written down who it is."""
    program = (
        "import os, sys, threading, time\n"
        "from pathlib import Path\n"
        "from detlab_hub.backends.instances import InstanceOrder\n"
        "from detlab_hub.backends.instances import local\n"
        "local.LocalProvider._watch = lambda self, place: os._exit(9)\n"  # the end of the master, at once
        "stays = (sys.executable, '-c', 'import time; time.sleep(600)')\n"
        "provider = local.LocalProvider(Path(sys.argv[1]), 'http://127.0.0.1:1', command=stays)\n"
        "provider.launch(InstanceOrder('crash', 'p', time.time(), 'dtenrol_x'))\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(root)], check=False).returncode == 9
    later = LocalProvider(root, "http://127.0.0.1:1", command=STAYS)
    until(lambda: [i.state for i in later.list()] == [InstanceState.RUNNING], lambda: str(later.list()), 10)
    pid = pid_of(root, "crash")
    began = time.monotonic()
    later.terminate(["crash"])
    assert time.monotonic() - began < 9  # it went by SIGTERM
    process = procfs.read_process(pid)
    assert process is None or not process.alive
