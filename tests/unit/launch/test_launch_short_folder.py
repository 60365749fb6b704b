"""The private folder for Unix sockets: short, closed to others, and not left behind by killed processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from detlab.short_folder import short_folder

KERNEL_SOCKET = "kernel-00000000-0000-0000-0000-000000000000-ipc-1"
HOLDS = """
import signal
from detlab.short_folder import short_folder
with short_folder() as folder:
    print(folder, flush=True)
    signal.pause()
"""


def test_a_kernels_socket_fits_in_it_and_nobody_else_may_enter() -> None:
    with short_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(str(folder / KERNEL_SOCKET)) <= 107
    assert not folder.exists()


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not() -> None:
    def holder() -> tuple[subprocess.Popen[str], Path]:
        child = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        return child, Path(child.stdout.readline().strip())

    dead, left = holder()
    alive, used = holder()
    try:
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert left.is_dir()
        with short_folder():
            assert not left.exists()
            assert used.is_dir()
    finally:
        for child in (dead, alive):
            child.kill()
            child.communicate()
    with short_folder():
        assert not used.exists()
