"""What governed learning does, and what it costs: localisation, memorisation, search, text, overhead.

    python bench/governance.py --quick                      minutes: one seed, few epochs; says that it works, no more
    python bench/governance.py                              ten seeds: hours
    python bench/governance.py --parts memorisation --seeds 20
    python bench/governance.py --parts text --resume         after a stop: only what is missing
    python bench/governance.py --parts text --text FILE     any plain text in place of Debian's bible-kjv-text
    make bench-governance BENCH_ARGS="--quick"

**Goals were written before the first run**, and stay as they are when one is missed: a page that says so is worth more
than a limit that was moved. Their sources: those of A are of a prototype that routed activations, and had a penalty on
correlations, which `COUPLING` refuses here; those of B and C follow from its table; those of placebos are new.

- A, localisation: the index of the routed autoencoder is 0.75 or more, of the one that is not routed 0.45 or less, of
  the placebo (the same routes, halves of the samples at random) 0.45 or less. 1: a half of the code tells nothing of
  digits that may not train it.
- B, memorisation: `head only` has an area of canaries that is smaller by 0.2 than that of the ungoverned training.
  Layers matter, and not just their size, if the placebo (random blocks with as many parameters) has one that is greater
  by 0.1 than `head only`. Sources matter if a head of its own for `web` has a test accuracy greater by 0.05 than
  the placebo, the same with sources at random. An isolated adapter leaves the served model at 0.55 or below.
- C, search: the winner under the bound, judged by validation loss and trained once more, has an area of 0.65 or less in
  eight of ten seeds; its accuracy is 0.03 below that of the search without the bound at most; and of searches by
  training loss, the one under the bound has an accuracy greater by 0.05.
- D, overhead: a governed step takes 1.10 times as long as a stock one at most, by the least of interleaved rounds. The
  engine `microbatch`, which came later, has no goal: what it costs follows from how many sources a batch has.
- Text: as B, for a character model, with the share of continuations that can be extracted.

DP-SGD stands in the table of B with epsilon 8: by hand, for another network, so that nobody reads a policy's numbers
without it. It has a guarantee, and no policy here has one for memorisation.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import statistics
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from governed import localisation, memorisation, overhead, searching, text
from governed.training import spread_of
from measure import ROOT, Figure, conclude, options

PARTS = ("localisation", "memorisation", "search", "text", "overhead")
KEPT = ROOT / "bench-output" / "governance.jsonl"
SEEDS = 10
EPSILON, DELTA = 8.0, 1e-4


def each(name: str, seeds: Sequence[int], run: Callable[[int], Any], given: argparse.Namespace) -> list[Any]:
    """Run something for each seed, and keep its results as lines of JSON; with --resume, take those that are there."""
    found = []
    for seed in seeds:
        one = kept_of(name, seed) if given.resume else None
        if one is None:
            one = run(seed)
            if not given.quick:
                KEPT.parent.mkdir(parents=True, exist_ok=True)
                with KEPT.open("a") as stream:
                    stream.write(json.dumps({"what": name, "seed": seed, **dataclasses.asdict(one)}) + "\n")
        found.append(one)
        print(f"  {name}, seed {seed}: {one}", file=sys.stderr, flush=True)
    return found


def kept_of(name: str, seed: int) -> Any:
    """Return what the last run of this arm and seed gave; None if there was none, or it was cut in the middle."""
    last = None
    for line in KEPT.read_text().splitlines() if KEPT.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if (row.pop("what"), row.pop("seed")) == (name, seed):
            last = types.SimpleNamespace(**row)
    return last


def figure(label: str, values: Iterable[float], **goal: float) -> Figure:
    """Return a row of the mean over seeds."""
    listed = [one for one in values if not math.isnan(one)]
    if not listed:
        return Figure(label, None, note="nothing was found")
    return Figure(label, statistics.fmean(listed), note=f"{spread_of(listed)}, n={len(listed)}", **goal)


def less(one: Sequence[Any], other: Sequence[Any], what: str) -> list[float]:
    """Return by how much a number is smaller in the first, seed by seed."""
    return [getattr(b, what) - getattr(a, what) for a, b in zip(one, other, strict=True)]


def localisation_rows(given: argparse.Namespace) -> list[Figure]:
    """Return the rows of A."""
    goals: dict[str, dict[str, float]] = {
        "routed": {"at_least": 0.75},
        "not routed, same penalty": {"at_most": 0.45},
        "placebo: routed, halves of the samples at random": {"at_most": 0.45},
    }
    epochs, rows = 3 if given.quick else 60, []
    for name in localisation.ARMS:
        found = each(
            f"A {name}", given.seeds, lambda seed, name=name: localisation.localised(name, seed, epochs), given
        )
        rows.append(figure(f"A {name}: index", [one.index for one in found], **goals.get(name, {})))
        rows.append(figure(f"A {name}: error of the whole code, digits 0-4", [one.decoder for one in found]))
    return rows


def memorisation_rows(given: argparse.Namespace) -> list[Figure]:
    """Return the rows of B."""
    epochs, rows = 2 if given.quick else 60, []
    found: dict[str, list[Any]] = {}
    for name in memorisation.ARMS:
        found[name] = each(
            f"B {name}", given.seeds, lambda seed, name=name: memorisation.outcome(name, seed, epochs), given
        )
        rows.append(figure(f"B {name}: area of canaries", [one.auc for one in found[name]]))
        rows.append(figure(f"B {name}: test accuracy", [one.test for one in found[name]]))
        rows.append(figure(f"B {name}: wrong labels learnt", [one.noise for one in found[name]]))

    def private(seed: int) -> Any:
        outcome, epsilon = memorisation.private_outcome(seed, epochs, epsilon=EPSILON, delta=DELTA)
        assert epsilon <= EPSILON
        return outcome

    dp = each("B DP-SGD", given.seeds, private, given)
    rows.append(figure(f"B DP-SGD, epsilon {EPSILON:g}, another network: area of canaries", [one.auc for one in dp]))
    rows.append(figure(f"B DP-SGD, epsilon {EPSILON:g}, another network: test accuracy", [one.test for one in dp]))
    head = found["head only"]
    placebo, own = "head only, placebo: random blocks of that size", "hidden layers and a head of its own"
    rows += [
        figure("B head only: area below ungoverned", less(head, found["ungoverned"], "auc"), at_least=0.2),
        figure("B head only: area below its placebo", less(head, found[placebo], "auc"), at_least=0.1),
        figure(
            "B a head of its own: accuracy above its placebo",
            less(found["the same, placebo: sources at random"], found[own], "test"),
            at_least=0.05,
        ),
        figure(
            "B isolated adapter: area of the served model", [one.auc for one in found["isolated adapter"]], at_most=0.55
        ),
        figure("B isolated adapter: area with the adapter", [one.own_auc for one in found["isolated adapter"]]),
    ]
    return rows


def search_rows(given: argparse.Namespace) -> list[Figure]:
    """Return the rows of C."""
    rungs = (1, 2) if given.quick else searching.RUNGS
    searched = functools.cache(lambda seed: searching.searched(seed, rungs))
    found: dict[str, list[searching.Won]] = {}
    for name in searching.SEARCHES:
        found[name] = each(f"C {name}", given.seeds, lambda seed, name=name: searched(seed)[name], given)
    rows = []
    for name, wins in found.items():
        rows.append(figure(f"C {name}: area of the winner's new canaries", [one.auc for one in wins]))
        rows.append(figure(f"C {name}: test accuracy", [one.test for one in wins]))
        rows.append(figure(f"C {name}: epochs", [float(one.epochs) for one in wins]))
    bound, free = found["by validation loss, under the bound"], found["by validation loss"]
    kept = [float(one.auc <= searching.LIMIT) for one in bound]
    loose = less(found["by training loss"], found["by training loss, under the bound"], "test")
    rows += [
        figure("C winners under the bound that keep it with new canaries", kept, at_least=0.8),
        figure("C accuracy that the bound costs, by validation loss", less(bound, free, "test"), at_most=0.03),
        figure("C accuracy that the bound gains, by training loss", loose, at_least=0.05),
    ]
    return rows


def text_rows(given: argparse.Namespace) -> list[Figure]:
    """Return the rows of the text; one that says why not, if there is none."""
    path = given.text or text.PACKAGED
    if not path.exists():
        return [
            Figure("text: memorisation and extraction", None, note="apt-get install bible-kjv-text, or --text FILE")
        ]
    read = text.read_text(path)
    epochs, count = (1, 200) if given.quick else (40, text.COUNT)
    found: dict[str, list[text.TextOutcome]] = {}
    rows = []
    for name in text.ARMS:
        found[name] = each(
            f"text {name}",
            given.seeds,
            lambda seed, name=name: text.text_outcome(name, read, seed, epochs, count),
            given,
        )
        rows.append(figure(f"text {name}: area of canaries", [one.auc for one in found[name]]))
        rows.append(figure(f"text {name}: continuations extracted", [one.extraction for one in found[name]]))
        rows.append(figure(f"text {name}: bits for a character, held out", [one.bits for one in found[name]]))
    head, placebo = found["head only"], found["head only, placebo: random layers of that size"]
    rows += [
        figure("text head only: area below ungoverned", less(head, found["ungoverned"], "auc"), at_least=0.2),
        figure("text head only: area below its placebo", less(head, placebo, "auc"), at_least=0.1),
        figure(
            "text isolated adapter: area of the served model",
            [one.auc for one in found["isolated adapter"]],
            at_most=0.55,
        ),
    ]
    return rows


def overhead_rows(given: argparse.Namespace) -> list[Figure]:
    """Return the rows of D."""
    _, count = overhead.sized()
    times = overhead.step_times(3 if given.quick else max(15, given.rounds), 4 if given.quick else overhead.BATCH)
    stock = min(times.pop("stock"))
    rows = [Figure(f"D a stock step, {count / 1e6:.1f} million parameters", stock * 1000, "ms")]
    for name, seconds in times.items():
        goal = {} if given.quick or name == overhead.ALONE else {"at_most": 1.10}
        rows.append(Figure(f"D {name}: times a stock step", min(seconds) / stock, "x", **goal))
    return rows


def main() -> int:
    """Run the parts that are asked for, and print the table."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
        parser.add_argument("--seeds", type=int, default=SEEDS, help=f"trainings of each arm (default {SEEDS})")
        parser.add_argument(
            "--resume", action="store_true", help=f"take the arms and seeds that {KEPT.relative_to(ROOT)} has"
        )
        parser.add_argument("--text", type=Path, metavar="FILE", help="a plain text, in place of Debian's package")

    given = options(__doc__ or "", more)
    if given.quick and given.resume:
        raise SystemExit("--quick keeps nothing that --resume could take: give one of them")
    given.seeds = list(range(1 if given.quick else given.seeds))
    torch.set_num_threads(max(1, torch.get_num_threads() // 2) if given.quick else torch.get_num_threads())
    parts: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
        "localisation": localisation_rows,
        "memorisation": memorisation_rows,
        "search": search_rows,
        "text": text_rows,
        "overhead": overhead_rows,
    }
    rows = [row for name, part in parts.items() if name in given.parts for row in part(given)]
    if given.quick:  # one seed and few epochs show nothing: no goal is judged by them
        rows = [dataclasses.replace(row, at_most=None, at_least=None) for row in rows]
    seeds = f"{len(given.seeds)} seed{'s' * (len(given.seeds) != 1)}"
    return conclude(f"governed learning, {seeds}", rows, given)


if __name__ == "__main__":
    sys.exit(main())
