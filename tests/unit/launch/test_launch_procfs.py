"""Which processes are of a task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from detlab.launch.host import procfs
from testbed.waiting import until

HEADLESS = """
import ctypes, socket, sys, threading, time
def live():
    time.sleep(0.2)
    print(held.getsockname()[1], flush=True)
    sys.stdin.read()
held = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=live).start()
ctypes.CDLL(None).syscall({number}, 0)  # exit(2): of this thread alone
"""
"""A program whose first thread ends, and another one lives until its input ends."""
EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


def test_processes_with_a_tasks_directory_are_its_own_unless_they_are_older_than_its_launcher(tmp_path: Path) -> None:
    env = {**os.environ, "DET_TASK_DIR": str(tmp_path)}
    with subprocess.Popen(SLEEP, env=env, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            started = procfs.start_time(child.pid)
            assert started is not None

            def found(launcher: int | None) -> list[int]:
                return [process.pid for process in procfs.task_processes(tmp_path, None, launcher)]

            assert found(None) == found(started) == found(started - 100) == [child.pid]
            assert found(started + 1) == []
        finally:
            child.kill()


def test_a_process_is_read_whatever_its_command_is_called(tmp_path: Path) -> None:
    strange = tmp_path / "a) R 1 (b"
    strange.symlink_to("/bin/sleep")
    with subprocess.Popen([strange, "60"]) as child:
        try:
            process = procfs.read_process(child.pid)
            assert process is not None
            assert (process.ppid, process.alive) == (os.getpid(), True)
            assert process.state in "RSD"
        finally:
            child.kill()


def test_a_process_whose_first_thread_has_ended_lives_and_shows_whose_it_is(tmp_path: Path) -> None:
    """Like this are killed processes for a moment, with all that they hold, and tasks that hide for longer."""
    command = [sys.executable, "-c", HEADLESS.format(number=EXIT)]
    env = {**os.environ, "DET_TASK_DIR": str(tmp_path)}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with child.stdin, child.stdout:
            assert int(child.stdout.readline()) > 0
            process = procfs.read_process(child.pid)
            assert process is not None
            assert (process.state, process.threads, process.alive, process.headless) == ("Z", 2, True, True)
            assert procfs.read_environment(child.pid)["DET_TASK_DIR"] == str(tmp_path)
            assert procfs.read_command(child.pid) == command
            assert not procfs.is_in_exec(child.pid)
            assert procfs.is_alive(child.pid, process.start_time)
            assert process in procfs.task_processes(tmp_path, None, None)
            assert process in procfs.descendants(os.getpid())
            assert procfs.send_signal([process], signal.SIGKILL) == 1
        until(lambda: not procfs.is_alive(child.pid, None), "the process does not end", 10)
        zombie = procfs.read_process(child.pid)
        assert zombie is not None
        assert (zombie.state, zombie.alive, zombie.headless) == ("Z", False, False)
        assert procfs.read_environment(child.pid) == {}
    assert child.returncode == -signal.SIGKILL
