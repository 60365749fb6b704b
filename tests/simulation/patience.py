"""How long a simulation may take: so much time of a processor, however long it waits for one.

In `make test` simulations take only what the tests of whole clusters leave idle, so a clock says nothing about them:
their own time is virtual, and they wait for nobody.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

WALL = 4500
"""Seconds after which one counts as hung, longer than others may have the processors."""
MARGIN = 60


def run(
    command: Sequence[str], seconds: int, *, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it said; the kernel ends it after so much processor time.

    Args:
        command: Its command line.
        seconds: Of processor time, for it and for each process that it starts.
        env: Its environment.
        cwd: Where it runs.
    """
    bounded = ["sh", "-c", f'ulimit -t {seconds} && exec "$@"', "sh", *command]
    return subprocess.run(bounded, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=WALL)
