"""Two users on each runtime: what a task of one reaches of the other's, from within its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Place

RUNTIMES = ("process", "docker", "kubernetes")
ADA = """
import os, pathlib, time
os.umask(0)  # as careless as can be
pathlib.Path("private").write_text("hers")
print("at", os.environ["DET_TASK_DIR"], os.getcwd(), os.getpid(), os.getuid(), flush=True)
time.sleep(600)
"""
PROBE = """
import os, pathlib, signal, sys
task, work, pid, uid = sys.argv[1:5]

def attempt(name, act):
    try:
        act()
    except OSError as error:
        print(name, "refused", type(error).__name__, flush=True)
    else:
        print(name, "DONE", flush=True)

def each(folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            path.read_bytes()

def kill():
    if int(pid) != os.getpid() and pathlib.Path(f"/proc/{pid}").exists() and os.stat(f"/proc/{pid}").st_uid == int(uid):
        os.kill(int(pid), signal.SIGKILL)
    else:
        raise ProcessLookupError

def environment():
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdigit() and os.stat(path).st_uid == int(uid):
            (path / "environ").read_bytes()
            return
    raise ProcessLookupError

attempt("list its directory", lambda: os.listdir(task))
attempt("read its token", lambda: pathlib.Path(task, "launch.json").read_bytes())
attempt("read its file", lambda: pathlib.Path(work, "private").read_bytes())
attempt("write into its directory", lambda: pathlib.Path(task, "forged").write_text("x"))
attempt("write its end", lambda: pathlib.Path(task, "exit.json").write_text('{"exit_code": 0}'))
attempt("end it", kill)
attempt("read its environment", environment)
print("uid", os.getuid(), flush=True)
"""
ENDS = "import sys; sys.exit(7)"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_task_reaches_nothing_of_another_users(start: Callable[[str], Place], runtime: str) -> None:
    place = start(runtime)
    hers = place.run("ada", ADA)
    place.master.wait_for(lambda: place.said(hers), 90, "hers runs")
    _, task, work, pid, uid = place.said(hers)[0].split()
    probe = place.run("mallory", PROBE, task, work, pid, uid)
    assert place.ended(probe).exit_code == 0
    *attempts, own = place.said(probe)
    assert len(attempts) == 7
    assert not [line for line in attempts if "refused" not in line]
    assert own != f"uid {uid}"
    assert hers.launch.task_token != probe.launch.task_token
    assert not hers.exits, "hers runs on"
    place.master.send_kill(hers, 1.0)
    assert place.ended(hers).exit_code != 0


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_task_ends_as_its_own_program_did(start: Callable[[str], Place], runtime: str) -> None:
    """What mallory's task writes where its own end is told is about its own attempt."""
    place = start(runtime)
    both = [place.run("ada", ENDS), place.run("mallory", "print('ok')")]
    codes = [place.ended(task).exit_code for task in both]
    assert codes == [7, 0]
