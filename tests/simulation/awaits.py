"""The master dies at its n-th callback, for every n there is: one calm search, again and again.

Where a seed's masters are killed at an await that is drawn, few of all are met. Here none is left out: a callback is
what runs from one await to the next, so a master that dies in the place of its n-th one, for each n from its start to
the end of the search, dies at each of its awaits once. What comes before is the same each time, and nothing else goes
wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from simulation.bench import Bench
from simulation.machines.master import Master
from simulation.world import World

SEED = 0
KIND = "master_killed_at_an_await"
SERIAL = "small"
"""The search whose trials come one after the other: whatever happens, it decides as in the calm run."""
NEVER = 10**9
"""Callbacks: more than a master has in any seed."""
Step = tuple[Any, Any]
"""An event that a search was told, and what it decided."""


class AtAwait(World):
    """A search whose first master dies in the place of one callback."""

    def __init__(self, *arguments: Any, dies_at: int = NEVER, **more: Any) -> None:
        self._dies_at = dies_at
        super().__init__(*arguments, **more)

    def _config(self, key: str) -> dict[str, Any]:
        """See `World`; its small experiment is a search of one trial at a time, which has but one order."""
        made = super()._config(key)
        if key == SERIAL:
            searcher = super()._config("search")["searcher"]
            made["searcher"] = {**searcher, "num_rungs": 2, "max_trials": 3, "max_concurrent_trials": 1}
        return made

    def start_master(self) -> Master:
        """See `World`."""
        master = super().start_master()
        if len(self.masters) == 1:
            master.process.light(self._dies_at, partial(self.faults.count, KIND))
        return master

    @property
    def callbacks(self) -> int:
        """Of the first master, if it lives."""
        return self._dies_at - self.masters[0].process.unburnt


@dataclass
class Decided:
    """What the searches of a run have decided, and what came of it."""

    callbacks: int = 0
    journals: dict[str, list[Step]] = field(default_factory=dict)
    """experiment -> its steps, in order"""
    trials: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    """experiment -> request, seed and hyperparameters of its trials"""

    def look(self, world: AtAwait) -> None:
        """Take it from a world at its end."""
        self.callbacks = world.callbacks
        rows = world.promises._all(
            "SELECT e.name, j.event, j.decisions FROM searcher_journal j JOIN experiments e ON e.id = j.experiment_id "
            "ORDER BY e.name, j.seq"
        )
        for name, event, decisions in rows:
            self.journals.setdefault(name, []).append((json.loads(event), json.loads(decisions)))
        rows = world.promises._all(
            "SELECT e.name, t.request_id, t.seed, t.hparams FROM trials t JOIN experiments e ON e.id = t.experiment_id "
            "ORDER BY e.name, t.request_id"
        )
        for name, *trial in rows:
            self.trials.setdefault(name, []).append(tuple(trial))


@dataclass
class Swept:
    """What became of a master that died at many awaits.

    Attributes:
        awaits: How many there are in the calm run.
        tried: At how many it died.
        alike: In how many of those runs every search was told the same, in the same order.
        problems: n -> which promise was broken.
    """

    awaits: int
    tried: int = 0
    alike: int = 0
    problems: dict[int, str] = field(default_factory=dict)


def evenly(awaits: int, wanted: int) -> list[int]:
    """So many of the awaits, evenly spread, the first and the last among them; all of them if `wanted` is 0."""
    if not 1 < wanted < awaits:
        return list(range(1, awaits + 1))
    return [1 + place * (awaits - 1) // (wanted - 1) for place in range(wanted)]


def sweep(wanted: int, part: int = 0, parts: int = 1) -> Swept:
    """Let the master die at all awaits, or at so many of them, of which this is one part of several."""
    bench = Bench()
    try:
        calm = Decided()
        outcome = bench.run(SEED, calm=True, kind=AtAwait, look=calm.look)
        assert outcome.problem is None, outcome.problem
        swept = Swept(calm.callbacks)
        for at in evenly(calm.callbacks, wanted)[part::parts]:
            _die(bench, at, calm, swept)
        return swept
    finally:
        bench.close()


def _die(bench: Bench, at: int, calm: Decided, swept: Swept) -> None:
    found = Decided()
    outcome = bench.run(SEED, calm=True, kind=partial(AtAwait, dies_at=at), look=found.look)
    swept.tried += 1
    problem = outcome.problem or _difference(calm, found)
    if problem is None and outcome.faults != {KIND: 1}:
        problem = f"the master should have died once: {outcome.faults}"
    if problem is not None:
        swept.problems[at] = problem
    swept.alike += calm.journals == found.journals


def _difference(calm: Decided, found: Decided) -> str | None:
    """Where the decisions differ, though they may not.

    A search makes the same trials, with the same hyperparameters and seeds, whenever it makes them. Which of them it
    stops follows from the order in which it is told of their metrics, and where several train at a time that may be
    another one after a crash: so long as it is the same, the decisions are.
    """
    serial, wanted = _decisions(found.journals[SERIAL]), _decisions(calm.journals[SERIAL])
    if serial != wanted:
        return f"I8: {SERIAL} decided {serial}, without a crash {wanted}"
    if calm.trials != found.trials:
        return f"I8: {found.trials} are the trials, without a crash they are {calm.trials}"
    for name, journal in calm.journals.items():
        for place, (expected, step) in enumerate(zip(journal, found.journals[name], strict=False)):
            if expected[0] != step[0]:
                break
            if expected[1] != step[1]:
                return f"I8: step {place + 1} of {name} decides {step[1]}, without a crash {expected[1]}"
    return None


def _decisions(journal: list[Step]) -> list[Any]:
    """What was decided, one after the other."""
    return [decision for _, decisions in journal for decision in decisions]


def total(parts: Sequence[Swept]) -> Swept:
    """All parts together."""
    whole = Swept(parts[0].awaits, sum(part.tried for part in parts), sum(part.alike for part in parts))
    for part in parts:
        whole.problems |= part.problems
    return whole
