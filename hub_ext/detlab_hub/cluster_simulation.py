"""`det cluster simulate`: one scheduling pass on a described pool, by the code that schedules."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from detlab.cli.output.printing import table
from detlab_hub.core import scheduling
from detlab_hub.scenario import as_json, read_scenario


def _say(text: str) -> None:
    click.echo(text, err=True)


def rows_of(snapshot: scheduling.Snapshot, decision: scheduling.PlacementDecision) -> list[tuple[object, ...]]:
    """Return one row per task that starts, releases slots or stays pending, in that order."""
    tasks = {task.id: task for task in snapshot.tasks}

    def row(name: str, what: str, detail: str) -> tuple[object, ...]:
        return name, tasks[name].job, tasks[name].slots, what, detail

    def where(placement: Mapping[str, int]) -> str:
        return ", ".join(f"{slots} on {agent}" for agent, slots in placement.items())

    starts = [row(name, "starts", where(placement)) for name, placement in decision.allocate.items()]
    leaves = [row(name, "gives back", "to a task that comes first") for name in decision.release]
    waits = [row(name, "waits", f"{reason.code}: {reason.detail}") for name, reason in decision.waiting.items()]
    return starts + leaves + waits


@click.command("simulate")
@click.argument("scenario", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--json", "as_json_flag", is_flag=True, help="Print JSON.")
def cluster_simulate(*, scenario: Path, as_json_flag: bool) -> None:
    """Run one scheduling pass on the pool described in SCENARIO (`-` for standard input).

    Says which tasks would start and where, which running ones would have to release their slots, and for each
    that waits the one reason that counts. Needs no cluster.

    \b
    Example:
      det cluster simulate pool.yaml
    where pool.yaml has
      pool: {scheduler: priority, preemption: true}
      agents: [{id: a1, slots: 4}]
      jobs: [{id: j1, priority: 50}, {id: j2, priority: 10}]
      tasks:
        - {id: t1, job: j1, slots: 4, state: running, on: {a1: 4}}
        - {id: t2, job: j2, slots: 2}

    Exit status: 0, 2 if SCENARIO is wrong.
    """
    standard_input = str(scenario) == "-"
    name = "standard input" if standard_input else scenario.name
    data = sys.stdin.buffer.read() if standard_input else scenario.read_bytes()
    try:
        snapshot, problems = read_scenario(data.decode(), name)
    except UnicodeDecodeError as error:
        _say(f"{name}: is not UTF-8 text: {error.reason} at byte {error.start}")
        raise SystemExit(2) from None
    if snapshot is None:
        for problem in problems:
            _say(str(problem))
        raise SystemExit(2)
    decision = scheduling.schedule(snapshot)
    if as_json_flag:
        click.echo(json.dumps(as_json(decision), indent=2))
        return
    if not (decision.allocate or decision.release or decision.waiting):
        _say("Nothing waits.")
        return
    table(("Task", "Job", "Slots", "What happens", "Why, where"), rows_of(snapshot, decision), right=("Slots",))
