"""Run a master and note what its scheduling passes cost: `python load/passes.py FILE -m detlab_hub ARGUMENTS`.

A line for each pass: CPU seconds of its thread and seconds, from the rows to what was decided and written.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any

from detlab_hub.services.placement import passes as placement

_place = placement.place


def _noted(*arguments: Any, **more: Any) -> placement.WaitVerdict:
    cpu, wall = time.thread_time(), time.perf_counter()
    try:
        return _place(*arguments, **more)
    finally:
        with FILE.open("a", encoding="ascii") as file:
            file.write(f"{time.thread_time() - cpu} {time.perf_counter() - wall}\n")


if __name__ == "__main__":
    FILE = Path(sys.argv[1])
    sys.argv = sys.argv[3:]  # the module's name stands for its program
    placement.place = _noted
    runpy.run_module("detlab_hub", run_name="__main__", alter_sys=True)
