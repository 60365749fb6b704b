"""A pass that remembers the tasks of the one before sees the same as one that makes them all anew."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from detlab_hub.backends.base import Node
from detlab_hub.core.scheduling import Job, Pool, Scheduler, schedule
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.placement.active_rows import PlacedRow, WaitingRow
from detlab_hub.services.placement.remembered import PreviousPassTasks
from detlab_hub.services.placement.snapshots import ClusterSnapshot, JobFromRow

HERE = Path("/nowhere")
SETTINGS = Settings(cluster_id="c", state_dir=HERE, bundles_dir=HERE)
POOL = SETTINGS.pools.by_name["default"]


def waiting(number: int, draw: random.Random) -> WaitingRow:
    """A request."""
    more: dict[str, Any] = {name: 0 for name in WaitingRow._fields if name in ("millicpus", "memory")}
    return WaitingRow(
        id=f"1.t{number}.1",
        trial_id=number,
        task_id=None,
        experiment_id=1,
        owner="ada",
        slots_needed=draw.randint(1, 4),
        runtime="process",
        constraints=draw.choice([None, {"slot_type": "cpu"}]),
        max_time=draw.choice([None, 60.0]),
        requested_at=float(draw.randint(0, 400)),
        idx=number,
        **more,
    )


def placed(row: WaitingRow, agent: str, draw: random.Random) -> PlacedRow:
    """The same when it has a place."""
    values = {name: value for name, value in row._asdict().items() if name in PlacedRow._fields}
    slots = [f"cpu{number}" for number in draw.sample(range(4), row.slots_needed)]
    return PlacedRow(
        **values,
        state="RUNNING",
        agent_id=agent,
        slots=slots,
        assigned_at=0.0,
        started_at=draw.random(),
        preempt_at=None,
        nodes=1,
    )


def changed(cluster: ClusterSnapshot, draw: random.Random) -> ClusterSnapshot:
    """The pool_of a little later: anything that a task is made of may be another."""
    pending, running = list(cluster.pending), list(cluster.placed)
    if pending:
        running.append(placed(pending.pop(draw.randrange(len(pending))), draw.choice("ab"), draw))
    if running and draw.random() < 0.4:
        number = draw.randrange(len(running))
        running[number] = running[number]._replace(preempt_at=draw.choice([None, 1.0]), state="TERMINATING")
    if draw.random() < 0.5:
        pending.append(waiting(1000 + draw.randrange(10**6), draw))
    if pending and draw.random() < 0.5:
        number = draw.randrange(len(pending))
        pending[number] = pending[number]._replace(slots_needed=draw.randint(1, 4), max_time=draw.choice([None, 5.0]))
    groups = frozenset(draw.choice([[], ["g"]]))
    return replace(
        cluster,
        now=cluster.now + draw.choice([0.0, 0.1, 50.0]),
        nodes=[Node(name, tuple(f"cpu{number}" for number in range(draw.choice([3, 4])))) for name in "ab"],
        pending=pending,
        placed=running,
        seats=seats_of(running),
        holders={"experiment 1": JobFromRow("default", Job("experiment 1"), groups, draw.choice([None, 7]))},
        refused={row.trial_id: frozenset("a") for row in pending if row.trial_id and draw.random() < 0.1},
        at_preemption_limit=frozenset(
            row.trial_id for row in (*pending, *running) if row.trial_id and draw.random() < 0.1
        ),
        known=cluster.known,
        held=[],
    )


def seats_of(running: list[PlacedRow]) -> dict[str, dict[str, frozenset[str]]]:
    """The parts of what runs, each on one agent."""
    return {row.id: {row.agent_id or "": frozenset(row.slots)} for row in running}


def first(draw: random.Random) -> ClusterSnapshot:
    """Some that wait."""
    holders = {"experiment 1": JobFromRow("default", Job("experiment 1"), frozenset())}
    rows = [waiting(number, draw) for number in range(1, 8)]
    return ClusterSnapshot(SETTINGS, 400.0, [Node("a", ("cpu0",))], {}, rows, [], holders, [], {}, frozenset())


def test_a_remembered_task_is_what_its_row_says_now() -> None:
    same = 0
    for seed in range(40):
        draw = random.Random(seed)
        cluster, before = first(draw), set[int]()
        for _ in range(12):
            cluster.known.begin()
            seen = cluster.snapshot(POOL)
            assert seen == replace(cluster, known=PreviousPassTasks(), held=[]).snapshot(POOL), seed
            same += len(before.intersection(map(id, seen.tasks)))
            before, kept = set(map(id, seen.tasks)), seen  # kept: no other object has one of these ids meanwhile
            cluster = changed(cluster, draw)
        assert kept is not None
    assert same > 400


def test_what_a_pass_did_not_see_is_forgotten() -> None:
    draw = random.Random(0)
    cluster, empty = first(draw), replace(first(draw), pending=[])
    empty.known = cluster.known
    cluster.known.begin()
    task = cluster.snapshot(POOL).tasks[0]
    cluster.known.begin()
    assert cluster.snapshot(POOL).tasks[0] is task
    for _ in range(2):
        cluster.known.begin()
        empty.snapshot(POOL)
    cluster.known.begin()
    again = cluster.snapshot(POOL).tasks[0]
    assert again == task
    assert again is not task


def beside_a_trial(trial_at: float, command_at: float) -> tuple[ClusterSnapshot, str, str]:
    """A trial and a command that wait for CPUs of an agent, and their names; there is room for the command alone."""
    trial = waiting(3, random.Random(1))._replace(slots_needed=1, constraints=None, requested_at=trial_at)
    trial = trial._replace(millicpus=5000)
    command = trial._replace(id="c.1", trial_id=None, task_id="c", experiment_id=None, idx=None)
    command = command._replace(slots_needed=0, millicpus=2000, requested_at=command_at)
    runs = command._replace(id="r.1", task_id="r")
    cluster = replace(
        first(random.Random(1)),
        now=1000.0,
        nodes=[Node("a", ("cpu0", "cpu1"), millicpus=6000)],
        pending=[trial, command],
        placed=(running := [placed(runs, "a", random.Random(1))]),
        seats=seats_of(running),
        holders={name: JobFromRow("default", Job(name), frozenset()) for name in ("experiment 1", "c", "r")},
        held=[],
    )
    return cluster, trial.id, command.id


SHARED = replace(POOL, rules=Pool(Scheduler.FAIR_SHARE))


def test_a_command_that_comes_after_a_trial_that_waits_too_long_is_not_ahead_of_it() -> None:
    """Commands had no time of their own: a stream of them kept the CPUs from every trial that waited."""
    cluster, trial, command = beside_a_trial(0.0, 900.0)
    assert set(schedule(cluster.snapshot(SHARED)).waiting) == {trial, command}
    assert command in schedule(replace(cluster, now=200.0, held=[]).snapshot(SHARED)).allocate, "it is not yet too long"


def test_a_command_that_came_before_an_overdue_trial_starts() -> None:
    """The time of a command was compared with the number of a trial: it always came later."""
    cluster, trial, command = beside_a_trial(100.0, 50.0)
    decision = schedule(cluster.snapshot(SHARED))
    assert set(decision.allocate) == {command}
    assert set(decision.waiting) == {trial}


def test_a_trial_that_waited_too_long_keeps_its_slots_for_as_long() -> None:
    """Who waits within their shares took them back in the pass after its start."""
    late = placed(waiting(3, random.Random(1))._replace(slots_needed=4, max_time=None), "a", random.Random(1))
    late = late._replace(requested_at=0.0, started_at=1000.0, state="RUNNING")
    others = [
        waiting(n, random.Random(1))._replace(slots_needed=1, experiment_id=n, constraints=None) for n in range(4, 9)
    ]
    cluster = replace(
        first(random.Random(1)),
        nodes=[Node("a", ("cpu0", "cpu1", "cpu2", "cpu3"))],
        pending=others,
        placed=[late],
        seats=seats_of([late]),
        holders={
            f"experiment {n}": JobFromRow("default", Job(f"experiment {n}"), frozenset()) for n in (1, *range(4, 9))
        },
    )

    def released(now: float, *, started_at: float | None = 1000.0, requested_at: float = 0.0) -> bool:
        row = late._replace(started_at=started_at, requested_at=requested_at)
        fresh = [other._replace(slots_needed=1, requested_at=now) for other in others]
        seen = replace(
            cluster, now=now, pending=fresh, placed=[row], seats=seats_of([row]), held=[], known=PreviousPassTasks()
        ).snapshot(SHARED)
        return schedule(seen).release == (late.id,)

    assert not released(1001.0)
    assert not released(1299.0)
    assert released(1301.0)
    assert not released(1001.0, started_at=None), "it is being started"
    assert released(1001.0, requested_at=900.0), "it did not wait for long"
