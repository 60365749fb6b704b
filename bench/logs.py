"""How long the first page of a search takes in the output of one trial, beside grep over the same text.

    python bench/logs.py                         a million lines, in a temporary SQLite file
    python bench/logs.py --lines 100000
    python bench/logs.py --url postgresql://user:password@127.0.0.1/empty_database

Each question is for 100 hits, and asked many times: a word of every line, one of a few lines, one of none, a part of a
number, a word of one rank, and the newest lines. grep reads the same lines from a file in memory between two rounds.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store
from detlab_hub.store.queries import logs

TRIAL = 1
BATCH = 1000
ROUNDS = 20
BOUND = 0.300
QUESTIONS: dict[str, dict[str, Any]] = {
    "word of every line": {"search": "accuracy"},
    "word of ten lines": {"search": "zebra"},
    "word of no line": {"search": "extra"},
    "part of a number": {"search": "=0.1234"},
    "word of one rank": {"search": "zebra", "rank": 3},
    "the newest with it": {"search": "zebra", "tail": 100},
    "level that is rare": {"level": "ERROR"},
}


def lines(count: int) -> Iterator[LogRecord]:
    draw = random.Random(1)
    for n in range(count):
        text = (
            f"epoch {n // 500} step {n} loss={draw.random():.5f} accuracy={draw.random():.4f} lr=0.001 12.3 samples/s"
        )
        rare = n % (count // 10) == count // 20
        level = "ERROR" if rare else "INFO"
        yield LogRecord(seq=n + 1, time=1e9 + n / 100, rank=n % 4, level=level, text=text + " zebra" * rare)


def fill(store: Store, count: int, file: Path) -> float:
    """Append the lines as batches of a task come, and write the same to a file; return the seconds of the first."""
    taken, batch = 0.0, []
    with file.open("w", encoding="utf-8") as out:
        for record in lines(count):
            batch.append(record)
            if len(batch) == BATCH or record.seq == count:
                began = time.perf_counter()
                store.write_sync(lambda s, part=tuple(batch): logs.append(s, TRIAL, 1, part))
                taken += time.perf_counter() - began
                out.writelines(f"{one.text}\n" for one in batch)
                batch = []
    return taken


def p95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--url")
    parser.add_argument("--check", action="store_true", help="fail where a page takes longer than it may")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        store = Store.open(options.url or f"sqlite:///{name}/bench.sqlite", holder="bench")
        taken = fill(store, options.lines, Path(name, "lines.txt"))
        print(f"{options.lines:,} lines appended in {taken:.1f} s, {taken / options.lines * 1e6:.1f} us each")
        asked: dict[str, list[float]] = {question: [] for question in QUESTIONS}
        hits: dict[str, int] = {}
        floors: list[float] = []
        for _ in range(ROUNDS):
            for question, wanted in QUESTIONS.items():
                began = time.perf_counter()
                found, _ = store.read_sync(lambda s, w=wanted: logs.pick(s, TRIAL, logs.Wanted(limit=100, **w)))
                asked[question].append(time.perf_counter() - began)
                hits[question] = len(found)
            began = time.perf_counter()
            subprocess.run(["grep", "-ci", "extra", f"{name}/lines.txt"], stdout=subprocess.DEVNULL, check=False)
            floors.append(time.perf_counter() - began)
        store.close()
    for question, times in asked.items():
        verdict = "ok" if p95(times) <= BOUND else f"more than {BOUND * 1000:.0f} ms"
        print(f"{question:<20} {hits[question]:>3} hits  p95 {p95(times) * 1000:6.1f} ms  {verdict}")
    print(f"{'grep -i, no line':<20}           p95 {p95(floors) * 1000:6.1f} ms")
    slow = [question for question, times in asked.items() if p95(times) > BOUND]
    if options.check and slow:
        raise SystemExit(f"too slow: {', '.join(slow)}")


if __name__ == "__main__":
    main()
