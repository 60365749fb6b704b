"""Seeds in chunks for the tests: each chunk is a process of its own, because a seed is one run only where sets have
one order. Chunks with even numbers are tested in `test_seeds_even.py`, the others in `test_seeds_odd.py`, so that two
workers of pytest-xdist, which share tests by file, share them evenly.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simulation.machines.faults import CLOUD, KINDS, LEAST
from simulation.runs import patience
from simulation.runs.told import tell
from simulation.world import AGENTS, TRIALS
from simulation.worlds import ELASTIC_FROM

TESTS = Path(__file__).parents[2]
CHUNK = 100
"""Seeds: less than two minutes of one core."""
CORES = len(os.sched_getaffinity(0))
CHUNKS = int(os.environ.get("DETLAB_SIMULATION_CHUNKS") or 2)
"""Both halves together: 200 seeds in `make test`, 2,000 and as many more as wished in `make soak`."""
JOBS = max(1, CORES // 2)
"""Processes of a chunk: two workers run one each."""
EVEN, ODD = range(0, CHUNKS, 2), range(1, CHUNKS, 2)
TRIAL_DEATHS = ("trial_killed", "trial_killed_torn_spool", "trial_killed_torn_checkpoint")
"""Each of these is rare enough to be missing from one chunk; not all of them."""
SHARED = (
    "action agent closed",
    "action agent opened",
    "action drain",
    "action look",
    "action place",
    "action pool",
    "action priority",
    "action quota",
    "action slot closed",
    "action weight",
    "demands",
    "gangs ended",
    "gangs ended by a lost part",
    "gangs met",
    "gangs placed",
    "max_time ended attempts",
    "I9 answers",
    "I9 reasons",
    "I10 preempted as often as may be",
    "I10 preemptions",
    "I7 commands",
    "zero-slot placements",
    "quotas",
    "shares of devices",
    "slots all back",
    "victims that were needed",
)
"""What must happen, and be looked at, on the clusters that many people share, in each half."""
ELASTIC = (
    "instances ended that ran nothing",
    "instances launched",
    "pools as large as may be",
    "pools small again",
    "instance_lost",
    "list_is_old",
    "list_unanswered",
)
"""What must happen in the elastic pools of one half, of which a chunk has six."""
MANY = 10
"""Chunks of a half from which on no kind of fault of the cloud is missing, however rare: then there are 1,000 seeds."""
_counted: dict[int, Counter[str]] = {}
"""chunk -> its faults by kind, of the chunks that this process has run"""


def simulate(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run seeds in a fresh process and return what it counted; a broken promise raises AssertionError."""
    report = tmp_path / "report.json"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = patience.simulate([*arguments, "--json", str(report)], 880, env=environment)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads(report.read_text())
    return result


def check_chunk(chunk: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Every promise holds in all seeds of a chunk, and each seed had its faults, trials and agents."""
    seeds = f"{chunk * CHUNK}:{(chunk + 1) * CHUNK}"
    found = simulate(tmp_path, "--seeds", seeds, "--jobs", str(JOBS))
    tell(record_property, seeds, found)
    counts = Counter[str](found["faults"])
    _counted[chunk] = counts + Counter({kind: found["checks"].get(kind, 0) for kind in (*ELASTIC, *SHARED)})
    assert found["least_faults"] >= LEAST, f"a seed of chunk {chunk} had {found['least_faults']} faults"
    check_size(found)
    assert found["checks"].get("writes in groups", 0) > 0, f"no write of chunk {chunk} waited for a slow disk"
    missing = [kind for kind in KINDS if kind not in TRIAL_DEATHS and not counts[kind]]
    assert missing == [], f"faults that never happened in chunk {chunk}: {missing}"
    assert sum(counts[kind] for kind in TRIAL_DEATHS) > 0, f"no trial was killed in chunk {chunk}"


def check_size(found: dict[str, Any]) -> None:
    """Each seed ran a whole search by asynchronous halving, on enough agents."""
    asha, agents = found["least_asha_trials"], found["least_asha_agents"]
    assert asha >= TRIALS, f"a seed had {asha} trials of asynchronous halving"
    assert agents >= AGENTS, f"in a seed {agents} agents ran those trials"


def check_kinds(chunks: Sequence[int], tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Every kind of fault happened in these chunks; those that this process has not run well are run now."""
    if not chunks:  # so few are asked for that none is in this half
        return
    for chunk in chunks:
        if chunk not in _counted:
            check_chunk(chunk, tmp_path, record_property)
    total = sum((_counted[chunk] for chunk in chunks), Counter[str]())
    print(f"{len(chunks) * CHUNK} seeds:", ", ".join(f"{kind} {total[kind]}" for kind in (*KINDS, *CLOUD)))
    kinds = [*KINDS, *(ELASTIC if chunks[-1] * CHUNK >= ELASTIC_FROM else ()), *(CLOUD if len(chunks) >= MANY else ())]
    missing = [kind for kind in kinds if not total[kind]]
    assert missing == [], f"faults that never happened: {missing}"
    idle = [kind for kind in SHARED if not total[kind]]
    assert idle == [], f"on the shared clusters there was no {idle}"
