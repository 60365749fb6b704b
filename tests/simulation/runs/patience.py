"""How long a simulation may take: so much time of a processor, however long it waits for one.

In `make test` simulations take only what the tests of whole clusters leave idle, so a clock says nothing about them:
their own time is virtual, and they wait for nobody. One that takes no processor at all hangs: even the lowest priority
gets a little.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import psutil

from simulation.runs.fresh import Simulation

WALL = 4500
"""Seconds after which pytest gives one up, whatever it does."""
MARGIN = 60
LOOK = 10.0
"""Seconds between two looks at the processor time."""
STILL = 300.0
"""Seconds without any after which one hangs."""


def run(
    command: Sequence[str],
    seconds: int,
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    look: float = LOOK,
    still: float = STILL,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it said; it and all that it started are ended where it takes too long.

    Args:
        command: Its command line.
        seconds: Of processor time, for it and for each process that it starts.
        env: Its environment.
        cwd: Where it runs.
        look: Seconds between two looks at how much it took.
        still: Seconds in which it may take none.
    """
    bounded = ["sh", "-c", f'ulimit -t {seconds} && exec "$@"', "sh", *command]
    pipe = subprocess.PIPE
    # A group of its own, to be ended as a whole, and no session: where Linux shares processors by session, a new one
    # would have as much as all the tests beside it, however nice it is.
    with subprocess.Popen(bounded, env=env, cwd=cwd, stdout=pipe, stderr=pipe, text=True, process_group=0) as process:
        return _through(process, command, seconds, look, still)


def simulate(
    arguments: Sequence[str], seconds: int, *, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`run` with `python -m simulation` and these arguments."""
    with closing(Simulation(arguments, seconds, env, cwd)) as process:
        return _through(process, ["simulation", *arguments], seconds, LOOK, STILL)


def _through(
    process: subprocess.Popen[str] | Simulation, command: Sequence[str], seconds: int, look: float, still: float
) -> subprocess.CompletedProcess[str]:
    try:
        out, err = _said(process, look, still)
    finally:
        _end(process)
    assert process.returncode is not None
    if process.returncode == -signal.SIGKILL:
        err += f"\nended: it took {seconds} s of a processor, or none at all for {still:.0f} s"
    return subprocess.CompletedProcess(list(command), process.returncode, out, err)


def _said(process: subprocess.Popen[str] | Simulation, look: float, still: float) -> tuple[str, str]:
    """What it wrote until its end."""
    taken, idle = 0.0, 0.0
    while True:
        try:
            return process.communicate(timeout=look)
        except subprocess.TimeoutExpired:
            now = _taken(process.pid)
            idle = 0.0 if now != taken else idle + look
            taken = now
            if idle >= still:
                _end(process)


def _taken(pid: int) -> float:
    """Processor time of a process and of all that it started and that are there."""
    total = 0.0
    try:
        for one in (root := psutil.Process(pid), *root.children(recursive=True)):
            total += sum(one.cpu_times()[:4])
    except psutil.NoSuchProcess:
        pass
    return total


def _end(process: subprocess.Popen[str] | Simulation) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
