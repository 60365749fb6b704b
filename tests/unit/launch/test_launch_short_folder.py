"""The private folder for Unix sockets: short, closed to others, and not left behind by killed processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detlab.short_folder import LOCK, PREFIX, remove_abandoned, short_folder
from detlab.testing.master import MasterDouble

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


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make another user's folder")
def test_a_folder_of_another_user_is_left_alone_whatever_lies_in_it(tmp_path: Path) -> None:
    """Its owner may put a hard link to a file of ours there under the name of the lock."""
    mine = tmp_path / "a-file-of-ours"
    mine.touch()
    theirs, ours = (tmp_path / f"{PREFIX}{name}" for name in ("theirs", "ours"))
    for folder in (theirs, ours):
        folder.mkdir()
        (folder / LOCK).hardlink_to(mine)
    os.chown(theirs, 65534, 65534)
    (tmp_path / f"{PREFIX}link").symlink_to(theirs)
    remove_abandoned(tmp_path)
    assert (theirs.exists(), ours.exists()) == (True, False)


MEETS = """
import multiprocessing.connection, os, pathlib, tempfile
folder = os.environ["TMPDIR"]
pathlib.Path(folder, "mark").touch()
with multiprocessing.connection.Listener(family="AF_UNIX") as listener:  # as each DataLoader with workers has
    fits = len(listener.address) <= 107
print(len(folder) <= 40, fits, tempfile.gettempdir() == folder, os.stat(folder).st_mode & 0o77 == 0)
print(folder)
"""


@pytest.mark.parametrize("depth", [1, 150])
def test_a_task_in_a_deep_state_folder_has_a_short_tmpdir(tmp_path: Path, depth: int) -> None:
    """A DataLoader with workers hung for ever: the path of its socket was too long for the kernel."""
    root = tmp_path / ("deep-" * 30)[:depth] / "task"
    for name in ("work", "spool", "home", "tmp"):
        (root / name).mkdir(parents=True, mode=0o700)
    with MasterDouble() as master:
        allocation = master.allocate([sys.executable, "-u", "-c", MEETS])
        message = allocation.launch.model_dump(mode="json", exclude={"task_token"})
        (root / "launch.json").write_text(json.dumps(message))
        (root / "token").write_text(allocation.token)
        command = [sys.executable, "-m", "detlab.launch.task", "--dir", str(root)]
        subprocess.run(command, check=False, timeout=60, env={**os.environ, "TMPDIR": str(root / "tmp")})
        facts, folder = (one["text"] for one in allocation.records["logs"] if one["stdtype"] == "stdout")
    assert facts == "True True True True"
    assert (root / "tmp" / "mark").exists(), "it is the task's own folder, under a short name"
    assert not Path(folder).exists()
