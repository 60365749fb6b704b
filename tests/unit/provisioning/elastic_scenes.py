"""Elastic pools for tests: situations written briefly, and a small world in which decisions are carried out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from detlab_hub.core.provisioning import (
    Instance,
    InstanceState,
    PoolHistory,
    PoolLimits,
    ProvisioningDecision,
    Situation,
    decide,
    launch_failed,
    launched,
)
from detlab_hub.core.scheduling import Agent, AgentState, Job, Pool, Quota, SchedulerTask, Snapshot, TaskState, schedule

SLOTS = 4
NOW = 10_000.0
TEMPLATE = Agent("template", SLOTS, max_zero_slot_tasks=10)


def waiting(*slots: int, job: str = "j", **more: Any) -> tuple[SchedulerTask, ...]:
    """Pending tasks of so many slots."""
    return tuple(SchedulerTask(f"p{n}", job, need, requested=float(n), **more) for n, need in enumerate(slots))


def running(**on: int) -> tuple[SchedulerTask, ...]:
    """One running task on each agent named."""
    return tuple(
        SchedulerTask(f"r-{agent}", "j", slots, TaskState.RUNNING, on={agent: slots})
        for agent, slots in sorted(on.items())
    )


def situation(
    instances: tuple[Instance, ...] = (),
    tasks: tuple[SchedulerTask, ...] = (),
    *,
    agents: tuple[Agent | str, ...] | None = None,
    now: float = NOW,
    jobs: dict[str, Job] | None = None,
    quotas: tuple[Quota, ...] = (),
    **pool: Any,
) -> Situation:
    """A pool of which the agents of all running instances are connected, unless they are given."""
    if agents is None:
        agents = tuple(i.agent_id for i in instances if i.state is InstanceState.RUNNING)
    there = tuple(replace(TEMPLATE, id=agent) if isinstance(agent, str) else agent for agent in agents)
    return Situation(Snapshot(Pool(**pool), there, jobs or {"j": Job("j")}, tasks, quotas), TEMPLATE, instances, now)


def instances(*names: str, launched_at: float = 0.0, **more: Any) -> tuple[Instance, ...]:
    """Instances whose agents have the same names."""
    return tuple(Instance(name, name, launched_at=launched_at, **more) for name in names)


def ended(decision: ProvisioningDecision) -> dict[str, str]:
    """Which end, and why."""
    return {ending.id: ending.reason.value for ending in decision.endings}


@dataclass
class World:
    """A provider, agents and a scheduler, on a clock that a test moves on."""

    limits: PoolLimits
    seed: int = 0
    failing: bool = False
    """Launches fail."""
    start_takes: float = 60.0
    lost: set[str] = field(default_factory=set)
    """Agents that never come, or are away."""
    now: float = NOW
    history: PoolHistory = field(default_factory=PoolHistory)
    instances: dict[str, Instance] = field(default_factory=dict)
    tasks: dict[str, SchedulerTask] = field(default_factory=dict)
    ends_at: dict[str, float] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    launches: list[float] = field(default_factory=list)
    endings: list[tuple[float, str, str]] = field(default_factory=list)
    tries: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    def submit(self, slots: int, takes: float, **more: Any) -> str:
        """Put a task into the queue."""
        name = f"t{len(self.tasks)}"
        self.tasks[name] = SchedulerTask(name, "j", slots, requested=self.now, **more)
        self.ends_at[name] = takes
        return name

    def connected(self) -> list[str]:
        """Agents that are there."""
        up = (i for i in self.instances.values() if i.state is InstanceState.RUNNING)
        return [i.agent_id for i in up if self.now >= i.launched_at + self.start_takes and i.agent_id not in self.lost]

    def snapshot(self) -> Snapshot:
        """The pool now."""
        agents = tuple(
            replace(TEMPLATE, id=name, state=AgentState.DISABLED if name in self.disabled else AgentState.ENABLED)
            for name in self.connected()
        )
        return Snapshot(Pool(), agents, {"j": Job("j")}, tuple(self.tasks.values()))

    def busy(self) -> set[str]:
        """Agents that run something."""
        return {name for task in self.tasks.values() for name in task.on}

    def step(self, seconds: float = 5.0) -> ProvisioningDecision:
        """Let time pass: tasks end, the scheduler and the provisioner each have a look."""
        self.now += seconds
        self._end_tasks()
        for name, placement in schedule(self.snapshot()).allocate.items():
            self.tasks[name] = replace(self.tasks[name], state=TaskState.RUNNING, on=dict(placement))
            self.ends_at[name] += self.now
        seen = Situation(self.snapshot(), TEMPLATE, tuple(self.instances.values()), self.now)
        decision = decide(seen, self.history, self.limits)
        self.history = decision.history
        for ending in decision.endings:
            assert self.instances[ending.id].agent_id not in self.busy(), "a busy instance is ended"
            del self.instances[ending.id]
            self.endings.append((self.now, ending.id, ending.reason.value))
        self._launch(decision.launch)
        return decision

    def _end_tasks(self) -> None:
        there = set(self.connected())
        for name, task in list(self.tasks.items()):
            if task.state is TaskState.RUNNING and self.ends_at[name] <= self.now:
                del self.tasks[name]
            elif any(agent not in there for agent in task.on):
                self.tasks[name] = replace(task, state=TaskState.PENDING, on={})  # lost: it starts again
                self.ends_at[name] = max(1.0, self.ends_at[name] - self.now)

    def _launch(self, count: int) -> None:
        if count and self.failing:
            self.tries.append(self.now)
            self.history = launch_failed(self.history, self.now)
            return
        for _ in range(count):
            name = f"i{len(self.launches)}"
            self.launches.append(self.now)
            self.instances[name] = Instance(name, name, launched_at=self.now)
        self.history = launched(self.history, count, self.now)
