"""A simulation that runs beside all else is bounded by processor time, and one that takes none is ended."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest

from simulation.runs import patience
from simulation.runs.chunks import TESTS
from testbed.waiting import until

SPIN = "while True: pass"
SLEEP = "import time, sys; print('here', flush=True); time.sleep(600)"


def run(code, seconds=20, **bounds):
    return patience.run([sys.executable, "-c", code], seconds, env=dict(os.environ), **bounds)


def test_what_it_says_and_its_status_come_back():
    done = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


@pytest.mark.slow
def test_one_that_takes_too_much_of_a_processor_is_ended_and_says_so():
    done = run(SPIN, 1)
    assert done.returncode == -9
    assert "it took 1 s of a processor" in done.stderr


@pytest.mark.slow
def test_one_that_takes_none_is_ended_with_all_that_it_started():
    began = time.monotonic()
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
    done = run(code, look=0.5, still=2.0)
    assert done.returncode == -9
    assert done.stdout == "here\n"
    assert "none at all for 2 s" in done.stderr
    assert time.monotonic() - began < 120

    def left() -> list[psutil.Process]:
        return [one for one in psutil.process_iter(["cmdline"]) if SLEEP in (one.info["cmdline"] or [])]

    until(lambda: not left(), lambda: f"not ended: {left()}")  # a process that was killed may be seen for a moment


def test_it_stays_in_the_session_by_which_processors_are_shared():
    """In one of its own each simulation had as much as all the tests beside it, however nice it was."""
    done = run("import os; print(os.getsid(0), os.getpgid(0) == os.getpid())")
    assert done.stdout.split() == [str(os.getsid(0)), "True"]


@pytest.mark.slow
def test_a_forked_simulation_is_bounded_too():
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = patience.simulate(["--seeds", "0:50"], 2, env=env)
    assert done.returncode == -9
    assert "it took 2 s of a processor" in done.stderr
