"""What the chunks of seeds have counted is printed where pytest sums up, whoever of its workers ran them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from simulation.machines.faults import CLOUD, KINDS

NAME = "simulated seeds"
"""Of the property of a report; pytest-xdist sends these from its workers."""

LEAST = {
    "least_faults": "faults",
    "least_asha_trials": "trials of asynchronous halving",
    "least_asha_agents": "agents that ran them",
}
"""What is counted in each seed -> how it is called."""


def tell(record_property: Callable[[str, object], None], seeds: str, found: Mapping[str, Any]) -> None:
    """Let the report of a test say what its seeds counted; `seeds` is their range, A:B."""
    said = {"seeds": seeds, "faults": found["faults"], "least": {key: found[key] for key in LEAST}}
    record_property(NAME, json.dumps(said))


def lines(reports: Iterable[Any]) -> Iterator[str]:
    """The counts of all seeds that these reports tell of, each range once."""
    told = {said["seeds"]: said for said in map(json.loads, _properties(reports))}
    if not told:
        return
    ranges = [tuple(map(int, seeds.split(":"))) for seeds in told]
    kinds = sum((Counter[str](said["faults"]) for said in told.values()), Counter[str]())
    least = [f"{min(said['least'][key] for said in told.values())} {name}" for key, name in LEAST.items()]
    total = sum(end - first for first, end in ranges)
    yield f"{total} simulated seeds, each with at least {', '.join(least)}; faults by kind:"
    yield ", ".join(f"{kind} {kinds[kind]}" for kind in (*KINDS, *CLOUD))


def _properties(reports: Iterable[Any]) -> Iterator[str]:
    for report in reports:
        yield from (str(value) for name, value in getattr(report, "user_properties", ()) if name == NAME)
