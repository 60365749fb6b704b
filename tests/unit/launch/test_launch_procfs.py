"""Which processes are of a task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from detlab.launch.host import procfs

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
