"""How long a person waits for `import detlab`, `det --help` and `%load_ext detlab_magics`.

    python bench/imports.py
    python bench/imports.py --quick
    make bench-imports BENCH_ARGS="--json"

Each is a process of its own, started ten times a round; the least counts, then the median of the rounds. `import
detlab` and `%load_ext` are what they add to a Python, and to an IPython, that does nothing; `det --help` is the whole
command.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from measure import Figure, conclude, median_of, options, spread

PYTHON = [sys.executable, "-c"]
SHELL = "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance()"
LOAD = f"{SHELL}; s.run_line_magic('load_ext', 'detlab_magics')"
ROWS = {
    "import detlab": ([*PYTHON, "import detlab"], [*PYTHON, "pass"], 0.3),
    "det --help": ([str(Path(sys.executable).with_name("det")), "--help"], None, 0.4),
    "%load_ext detlab_magics": ([*PYTHON, LOAD], [*PYTHON, SHELL], 0.5),
}
"""Label -> command, what it is compared with, goal in seconds."""


def least(command: list[str], times: int) -> float:
    """Return the seconds of the quickest run."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""
    given = options(__doc__ or "")
    times = 2 if given.quick else 10
    rows = []
    for label, (command, nothing, goal) in ROWS.items():
        whole, floor = [], []
        for _ in range(given.rounds):
            whole.append(least(command, times))
            floor.append(0.0 if nothing is None else least(nothing, times))
        taken = [total - without for total, without in zip(whole, floor, strict=True)]
        note = spread(taken) if nothing is None else f"{spread(taken)}; the floor {median_of(floor):.2f} s"
        rows.append(Figure(label, median_of(taken), "s", at_most=goal, note=note.removeprefix("; ")))
    return conclude("What a person waits for", rows, given)


if __name__ == "__main__":
    sys.exit(main())
