"""What a pass looks at, counted: tasks that ask for different CPUs and memory are no dearer for that."""

from __future__ import annotations

import random

import pytest

from detlab_hub.core.scheduling import Agent, Job, Pool, SchedulerTask, Snapshot, TaskState, priority
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.preemption.victims import Victims

AGENTS, TASKS = 150, 1200


def busy(pairs: int) -> Snapshot:
    """A pool half of which is in use, and tasks that ask for so many different pairs of CPUs and memory."""
    draw = random.Random(1)
    asked = [
        {"millicpus": draw.randrange(500, 16000), "memory": draw.randrange(1 << 30, 64 << 30)} for _ in range(pairs)
    ]
    agents = tuple(Agent(f"a{n}", 8, millicpus=96000, host_memory=512 << 30) for n in range(AGENTS))
    jobs = {f"j{n}": Job(f"j{n}", draw.choice([10, 30, 42, 60]), submitted=float(n)) for n in range(60)}

    def task(name: str, slots: int, on: str | None = None) -> SchedulerTask:
        state = TaskState.PENDING if on is None else TaskState.RUNNING
        held = {} if on is None else {on: slots}
        return SchedulerTask(
            name, f"j{draw.randrange(60)}", slots, state, on=held, single_node=True, **draw.choice(asked)
        )

    runs = [task(f"r{n}", draw.choice([1, 2, 4]), f"a{n}") for n in range(AGENTS)]
    runs += [task(f"q{n}", 2, f"a{n}") for n in range(AGENTS)]
    waits = [task(f"p{n}", draw.choice([1, 2, 4, 8])) for n in range(TASKS)]
    return Snapshot(Pool(preemption=True), agents, jobs, (*runs, *waits))


def looked_at(pairs: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Indexes of agents, agents that were looked at for CPUs and memory, and those for who would have to leave."""
    made: list[Victims] = []

    class Counted(Victims):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]  # as they come
            made.append(self)

    monkeypatch.setattr(priority, "Victims", Counted)
    planner = Planner(busy(pairs))
    priority.by_priority(planner)
    decision = planner.decision()
    assert len(decision.allocate) > 50
    assert len(decision.release) > 20
    return len(planner.capacity._indexes), planner.capacity.checked, sum(one.checked for one in made)


def test_many_pairs_of_cpus_and_memory_cost_little_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of all agents for each pair made a pass with a hundred of them five times as dear."""
    (_, one_walked, one_reached), (indexes, walked, reached) = looked_at(1, monkeypatch), looked_at(300, monkeypatch)
    assert indexes == 1
    assert walked < 2 * one_walked + 4 * TASKS
    assert reached < 2 * one_reached + 4 * TASKS, "each of them alone would look at all agents for each size"
    assert max(walked, reached) * 10 < 300 * 4 * AGENTS
