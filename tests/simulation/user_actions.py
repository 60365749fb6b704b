"""What people do to a shared cluster while it works: with jobs, quotas and agents; and how they look on."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from detlab.client.operations import jobs as queue
from detlab.client.operations import quotas
from detlab.client.operations.agents import agents, drain_agent, set_agent, set_slot
from detlab.client.operations.tasks import queue as whole_queue
from detlab.client.transport.calls import Flow
from detlab.errors import DetlabError
from detlab.schemas.jobwire import JobUpdate
from simulation.loop import Process, as_thread, block
from simulation.plan import ADMIN, GROUPS, PEOPLE, JobPlan

if TYPE_CHECKING:
    from simulation.cluster import Cluster

PERIOD = 1.6
"""Virtual seconds between two actions, about; half as much in a storm."""
STORM = 2.2
"""Seconds between two turns of the priorities in a storm."""
LATE = 10.0
"""Seconds after which no doubled or late message is on its way any more."""


class UserActions:
    """The people of one seed."""

    def __init__(self, world: Cluster) -> None:
        self._world = world
        self._rng = random.Random(f"deeds {world.seed}")
        self._jobs: dict[int, JobPlan] = {}
        self._tasks: list[asyncio.Task[Any]] = []

    def submitted(self, plan: JobPlan, number: int) -> None:
        """A job is in the queue."""
        self._jobs[number] = plan

    # --- the course of things

    async def go_on(self, *, until: float) -> None:
        """Do things until then; nobody waits for an answer before the next."""
        loop = self._world.loop
        if self._world.plan.storm:
            loop.create_task(self._storm(until))
        kinds: list[tuple[Callable[[], None], int]] = [
            (self._priority, 3),
            (self._weight, 1),
            (self._place, 2),
            (self._pool, 2),
            (self._quota, 4),
            (self._no_quota, 1),
            (self._disable, 1),
            (self._drain, 2),
            (self._slot, 2),
            (self._enable, 3),
            (self._look, 3),
        ]
        await asyncio.sleep(1.0)
        while loop.time() < until:
            (kind,) = self._rng.choices([one for one, _ in kinds], [often for _, often in kinds])
            kind()
            await asyncio.sleep(PERIOD * self._rng.uniform(0.4, 1.6))

    async def _storm(self, until: float) -> None:
        """Those who run are overtaken by those who wait, again and again."""
        turn = 0
        while self._world.loop.time() < until:
            await asyncio.sleep(STORM)
            turn += 1
            waiting = self._world.promises._all(
                "SELECT DISTINCT experiment_id FROM allocations WHERE state = 'PENDING' AND task_id IS NULL ORDER BY 1"
            )
            if waiting:
                number = self._rng.choice(waiting)[0]
                self._do("storm", ADMIN, queue.update_job(str(number), JobUpdate(priority=max(1, 40 - turn))))

    def _do(self, what: str, who: str, flow: Flow[Any]) -> None:
        """Have somebody do something, in a process of its own."""
        process = Process(self._world.loop, f"action {len(self._tasks)}", "client")
        self._tasks.append(process.spawn(as_thread(partial(self._done, what, who, flow))))

    def _done(self, what: str, who: str, flow: Flow[Any]) -> None:
        checks = self._world.promises.checks
        try:
            self._world.ask(who, flow)
        except DetlabError as error:
            self._world.note("refused", what, who, error.code)
            checks[f"actions refused: {error.code}"] += 1
        else:
            self._world.note("did", what, who)
            checks[f"action {what}"] += 1

    def _job(self) -> tuple[str, JobPlan] | None:
        return self._one_of(sorted(self._jobs))

    def _one_of(self, numbers: list[int]) -> tuple[str, JobPlan] | None:
        if not numbers:
            return None
        number = self._rng.choice(numbers)
        return str(number), self._jobs[number]

    def _whose(self, plan: JobPlan) -> str:
        return plan.owner if self._rng.random() < 0.7 else ADMIN

    # --- jobs

    def _update(
        self, what: str, change: Callable[[str, JobPlan], JobUpdate | None], among: list[int] | None = None
    ) -> None:
        found = self._one_of(sorted(self._jobs) if among is None else among)
        if found is not None and (update := change(*found)) is not None:
            self._do(what, self._whose(found[1]), queue.update_job(found[0], update))

    def _priority(self) -> None:
        self._update("priority", lambda number, plan: JobUpdate(priority=self._rng.choice((1, 20, 42, 80))))

    def _weight(self) -> None:
        self._update("weight", lambda number, plan: JobUpdate(weight=self._rng.choice((0.25, 1.0, 4.0))))

    def _pool(self) -> None:
        self._update(
            "pool", lambda number, plan: JobUpdate(pool=self._rng.choice(plan.pools)) if len(plan.pools) > 1 else None
        )

    def _place(self) -> None:
        """Put a job beside another one of its pool and priority, which may have ended."""
        pairs = self._world.promises._all(
            "SELECT e.id, o.id FROM experiments o JOIN experiments e ON o.id != e.id "
            "AND o.resource_pool = e.resource_pool AND o.priority = e.priority ORDER BY 1, 2"
        )

        def beside(number: str, plan: JobPlan) -> JobUpdate:
            other = str(self._rng.choice([other for one, other in pairs if str(one) == number]))
            return JobUpdate(ahead_of=other) if self._rng.random() < 0.6 else JobUpdate(behind_of=other)

        self._update("place", beside, sorted({one for one, _ in pairs if one in self._jobs}))

    # --- quotas and agents

    def _holder(self) -> tuple[Any, str]:
        return self._rng.choice([*(("user", name) for name in PEOPLE), *(("group", name) for name in GROUPS)])

    def _quota(self) -> None:
        kind, name = self._holder()
        self._do("quota", ADMIN, quotas.set_quota(kind, name, self._rng.choice((0, 1, 1, 2, 2, 3, 4))))

    def _no_quota(self) -> None:
        self._do("no quota", ADMIN, quotas.remove_quota(*self._holder()))

    def _disable(self) -> None:
        self._do("agent closed", ADMIN, set_agent(self._rng.choice(self._world.nodes).name, enabled=False))

    def _drain(self) -> None:
        deadline = self._rng.choice((None, 3.0, 8.0))
        flow = drain_agent(self._rng.choice(self._world.nodes).name, finish=self._rng.random() < 0.4, deadline=deadline)
        self._do("drain", ADMIN, flow)

    def _slot(self) -> None:
        node = self._rng.choice(self._world.nodes)
        enabled = self._rng.random() < 0.4
        flow = set_slot(node.name, self._rng.choice(node.slots), enabled=enabled)
        self._do("slot opened" if enabled else "slot closed", ADMIN, flow)

    def _enable(self) -> None:
        self._do("agent opened", ADMIN, set_agent(self._rng.choice(self._world.nodes).name, enabled=True))

    # --- looking on

    def _look(self) -> None:
        who = self._rng.choice([*PEOPLE, ADMIN])
        looks: list[Flow[Any]] = [queue.jobs(), whole_queue(), agents(), quotas.quotas()]
        found = self._job()
        if found is not None:
            looks += [queue.why(found[0]), queue.why(found[0])]
        self._do("look", who, self._rng.choice(looks))

    # --- the end of the storm

    def calm(self) -> None:
        """Every agent takes work again, no quota keeps a trial waiting for ever; whoever does it does not give up."""
        world = self._world
        while not all(task.done() for task in self._tasks):
            block(asyncio.sleep(1.0))
        block(asyncio.sleep(LATE))
        for node in world.nodes:
            self._insist(lambda node=node: set_agent(node.name, enabled=True))
        for slot in sorted(self._closed()):
            self._insist(lambda slot=slot: set_slot(slot.partition("-")[0], slot, enabled=True))
        for quota in self._insist(quotas.quotas).items:
            if quota.slots < world.plan.widest:
                self._insist(lambda quota=quota: quotas.set_quota(quota.kind, quota.name, world.plan.widest))

    def _closed(self) -> set[str]:
        rows = self._world.promises._all("SELECT slots_off FROM agents")
        return {slot for (off,) in rows for slot in json.loads(off)}

    def _insist(self, flow: Callable[[], Flow[Any]]) -> Any:
        while True:
            try:
                return self._world.ask(ADMIN, flow(), patient=True)
            except DetlabError as error:  # an agent that has never connected
                self._world.note("refused", ADMIN, error.code)
                block(asyncio.sleep(2.0))

    def last_look(self) -> None:
        """When all has ended nothing is held and nothing waits: every slot is there again."""
        for agent in self._insist(agents):
            held = [slot.id for slot in agent.slots if slot.allocation_id is not None]
            if held or agent.running:
                self._world.promises._broken("slots", f"{agent.id} still holds {held}, {agent.running} run")
        for quota in self._insist(quotas.quotas).items:
            if quota.held or quota.waiting:
                self._world.promises._broken("quota", f"{quota.kind} {quota.name} still holds {quota.held}")
        if self._insist(queue.jobs) or self._insist(whole_queue):
            self._world.promises._broken("I7", "jobs are left in the queue")
        self._world.promises.checks["slots all back"] += 1
