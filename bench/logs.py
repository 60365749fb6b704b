"""How long the first page of a search takes in the output of one trial, beside grep over the same text.

    python bench/logs.py                                  a million lines, on SQLite and on PostgreSQL
    python bench/logs.py --databases sqlite --lines 100000
    make bench-logs BENCH_ARGS="--quick"

Asked through the REST API of a master, by a client that keeps its connection. Each question is for 100 hits: a word of
every line, one of a few lines, one of none, a part of a number, a word of one rank, the newest lines with a word, a
rare level. Each figure is the 95th percentile of 20 requests, the median of the rounds; what was found is checked.
grep reads the same lines from a file in memory.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ingest import Database, database_of
from master import API, Connection, Master, Node, running_trials
from measure import Figure, conclude, median_of, options, percentile, spread

from detlab.schemas.wire import LogRecord
from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.queries.logs import lines as logs
from testbed.cluster import UNLIMITED, Cluster, running_cluster

LINES = 1_000_000
BATCH = 1000
LOOKS = 20
GOAL = 300.0
"""Milliseconds at the 95th percentile."""
PAGE = 100
RARE = 10
"""Lines with the rare word and level."""
QUESTIONS: dict[str, dict[str, object]] = {
    "a word of every line": {"search": "accuracy"},
    "a word of ten lines": {"search": "zebra"},
    "a word of no line": {"search": "extra"},
    "a part of a number": {"search": "=0.1234"},
    "a word of no line of a rank": {"search": "zebra", "rank": 3},
    "the newest with a word": {"search": "zebra", "tail": PAGE},
    "a level that is rare": {"level": "ERROR"},
}


def lines(count: int) -> Iterator[LogRecord]:
    """The output of a trial with four ranks."""
    draw = random.Random(1)
    for n in range(count):
        text = (
            f"epoch {n // 500} step {n} loss={draw.random():.5f} accuracy={draw.random():.4f} lr=0.001 12.3 samples/s"
        )
        rare = n % (count // RARE) == count // RARE // 2
        level = "ERROR" if rare else "INFO"
        yield LogRecord(seq=n + 1, time=1e9 + n / 100, rank=n % 4, level=level, text=text + " zebra" * rare)


def fill(url: str, trial_id: int, count: int, file: Path) -> float:
    """Append the lines as batches of a task come, and write the same to a file; return the microseconds of a line."""
    taken, batch = 0.0, []
    store = Store.open(url, holder="bench", writer=InlineExecutor())
    try:
        with file.open("w", encoding="utf-8") as out:
            for record in lines(count):
                batch.append(record)
                if len(batch) == BATCH or record.seq == count:
                    began = time.perf_counter()
                    store.write_sync(lambda s, part=tuple(batch): logs.append(s, trial_id, 1, part))
                    taken += time.perf_counter() - began
                    out.writelines(f"{one.text}\n" for one in batch)
                    batch = []
    finally:
        store.close()
    return taken / count * 1e6


def hits_of(wanted: dict[str, object], file: Path) -> int:
    """How many lines the first page has, by grep."""
    if "search" not in wanted:
        return RARE
    if "rank" in wanted:
        return 0  # the rare lines are of other ranks
    found = subprocess.run(["grep", "-cF", str(wanted["search"]), str(file)], stdout=subprocess.PIPE, check=False)
    return min(PAGE, int(found.stdout))


def look(person: Connection, path: str, hits: int, rounds: int) -> list[float]:
    """Ask many times; return the 95th percentile in milliseconds of each round.

    Raises:
        AssertionError: Something else was found than there is.
    """
    found = []
    assert len(json.loads(person.ask("GET", path))["items"]) == hits, path
    for _ in range(rounds):
        taken = []
        for _ in range(LOOKS):
            began = time.perf_counter()
            person.ask("GET", path)
            taken.append((time.perf_counter() - began) * 1000)
        found.append(percentile(taken, 95))
    return found


def search_of(file: Path, rounds: int) -> list[float]:
    """The same of grep, for a word that is in no line."""
    found = []
    for _ in range(rounds):
        taken = []
        for _ in range(LOOKS):
            began = time.perf_counter()
            subprocess.run(["grep", "-ci", "extra", str(file)], stdout=subprocess.DEVNULL, check=False)
            taken.append((time.perf_counter() - began) * 1000)
        found.append(percentile(taken, 95))
    return found


def measure(cluster: Cluster, folder: Path, database: Database, count: int, rounds: int) -> list[Figure]:
    """Fill a database and search it through a master."""
    url = database.fresh("detlab_logs")
    master = Master(cluster, folder / "master", url)
    try:
        master.start()
        node = Node(master, 1)
        node.connect()
        (launch,) = running_trials(master, node, 1)
        trial_id = int(launch["info"]["trial_id"])
        node.hang_up()
        master.end()
        each = fill(url, trial_id, count, folder / "lines.txt")
        master.start()
        person = master.person()
        found = {}
        for question, wanted in QUESTIONS.items():
            query, hits = urlencode({"limit": PAGE, **wanted}), hits_of(wanted, folder / "lines.txt")
            found[question] = look(person, f"{API}trials/{trial_id}/logs?{query}", hits, rounds)
    finally:
        master.end()
    floor = search_of(folder / "lines.txt", rounds)
    return [
        *(
            Figure(f"detlab, {database.kind}: {question}", median_of(taken), "ms", at_most=GOAL, note=spread(taken))
            for question, taken in found.items()
        ),
        Figure("  floor: grep -i of a word of no line", median_of(floor), "ms", note=spread(floor)),
        Figure(f"  detlab, {database.kind}: taking in a line, in batches of {BATCH:,}", each, "us"),
    ]


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--databases", nargs="*", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
        parser.add_argument("--lines", type=int, default=LINES)

    given = options(__doc__ or "", more)
    count = 20_000 if given.quick else given.lines
    rows: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name, ExitStack() as stack:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        cluster = stack.enter_context(running_cluster(root / "hub", slots=1, config=UNLIMITED))
        for kind in given.databases:
            (root / kind).mkdir()
            with database_of(kind, root / kind) as database:
                rows += measure(cluster, root / kind, database, count, given.rounds)
    return conclude(f"First page ({PAGE} hits) of a search in {count:,} lines of output, 95th percentile", rows, given)


if __name__ == "__main__":
    sys.exit(main())
