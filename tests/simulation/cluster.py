"""A cluster that many people share: pools, quotas, priorities and agents change while everything goes wrong.

In its calm end every agent takes work again and no quota is narrower than a trial; then all must end in time, whoever
was preempted, moved behind, or on an agent that was taken out. One machine with a part of a gang may still fail there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from detlab.client.operations.experiments import Submission, submit
from detlab.client.operations.tasks import TaskSubmission, create_task
from detlab.client.transport.calls import Flow, Retries
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.session import Session
from detlab.errors import DetlabError, ResourcesError
from detlab.schemas.taskwire import TaskKind
from detlab_hub.services import Caller, Settings
from simulation.checks.fairness import Fairness
from simulation.checks.promises import BrokenPromise, Promises
from simulation.loop import Process, as_thread, block
from simulation.machines.large_faults import FAULTS_END
from simulation.machines.node import Node
from simulation.machines.trial import LENGTH, HttpBridge
from simulation.plan import ADMIN, PEOPLE, ZERO_SLOT_TASKS, CommandPlan, JobPlan, plan_of
from simulation.user_actions import UserActions
from simulation.world import World

AGAIN = 4.0
"""Seconds after which somebody submits anew what was refused, as it did not fit then."""
CALM_AT = FAULTS_END + 4.0
NO_STARVATION = 400.0
"""Virtual seconds of calm in which everything has to end."""


class Cluster(World):
    """The course of things."""

    def __init__(self, seed: int, *arguments: Any, **more: Any) -> None:
        self.plan = plan_of(seed)
        super().__init__(seed, *arguments, **more)
        self.actions = UserActions(self)
        self._sessions: dict[tuple[str, bool], Session] = {}

    def _settings(self) -> Settings:
        return replace(super()._settings(), pools=self.plan.pools, preemptions_per_hour=self.plan.bound)

    def _make_promises(self) -> Promises:
        return Fairness(self)

    def _make_nodes(self) -> list[Node]:
        return [
            Node(
                self,
                number,
                machine.slots,
                pool=machine.pool,
                labels=machine.labels,
                zero_slot_tasks=ZERO_SLOT_TASKS,
                shares=machine.shares,
                cpus=machine.cpus,
                memory=machine.memory,
            )
            for number, machine in enumerate(self.plan.machines)
        ]

    def person(self, name: str) -> Caller:
        """See `World`."""
        return Caller(name, admin=name == ADMIN, groups=PEOPLE.get(name, frozenset()))

    # --- people

    def ask(self, who: str, flow: Flow[Any], *, patient: bool = False) -> Any:
        """Run an operation of the client as somebody, from code that `as_thread` runs.

        Raises:
            DetlabError: What the client says.
        """
        if (who, patient) not in self._sessions:
            self._sessions[who, patient] = Session(
                ClusterAddress("http://master/services/detlab/", f"user-{who}", "the simulation"),
                backoff=Retries(attempts=400, refused=400) if patient else Retries(),
                transport=HttpBridge(self.nodes[0]),
                sleep=lambda seconds: block(asyncio.sleep(seconds)),
            )
        return self._sessions[who, patient].run(flow)

    def _submit_plan(self, plan: JobPlan, key: str) -> None:
        block(asyncio.sleep(plan.at))
        while True:
            try:
                reply = self.ask(plan.owner, submit(Submission(plan.config(self.seed, LENGTH), key=key)), patient=True)
            except DetlabError as error:  # the agents that could run it are not there yet, or a quota is too narrow
                self.note("refused", plan.name, error.code)
                if not isinstance(error, ResourcesError):
                    raise
                block(asyncio.sleep(AGAIN))
                continue
            break
        known = self.promises.submitted.setdefault(key, reply.experiment.id)
        if known != reply.experiment.id:
            raise BrokenPromise(f"I1: submit {key} made {known} and {reply.experiment.id}")
        self.actions.submitted(plan, known)

    def _run_command(self, plan: CommandPlan) -> None:
        block(asyncio.sleep(plan.at))
        wanted = TaskSubmission(TaskKind.COMMAND, plan.config(), name=plan.name, key=plan.name)
        while True:
            try:
                reply = self.ask(plan.owner, create_task(wanted), patient=True)
            except ResourcesError as error:
                self.note("refused", plan.name, error.code)
                block(asyncio.sleep(AGAIN))
                continue
            break
        assert reply.task is not None
        self.promises.commands[plan.name] = reply.task.id

    def _start_clients(self) -> list[asyncio.Task[Any]]:
        jobs = []
        for place, plan in enumerate((*self.plan.jobs, self.plan.jobs[0])):  # the first one twice, by one key
            process = Process(self.loop, f"client {place}", "client")
            jobs.append(process.spawn(as_thread(partial(self._submit_plan, plan, plan.name))))
        for place, command in enumerate(self.plan.commands):
            process = Process(self.loop, f"command {place}", "client")
            jobs.append(process.spawn(as_thread(partial(self._run_command, command))))
        return jobs

    def _search_again(self, key: str) -> Callable[[], None]:
        """See `World`: one with as many trials as its pool has slots, and nothing in its way.

        Who has which slots decides the scheduler: quotas, closed agents and neighbours may have kept the search of this
        seed from all but two agents.
        """
        (pool,) = self.plan.jobs[0].pools
        slots = sum(machine.slots for machine in self.plan.machines if machine.pool == pool)
        plan = replace(self.plan.jobs[0], name=key, owner=ADMIN, at=0.0, max_slots=None, demands={})
        return partial(self._submit_plan, replace(plan, trials=slots, at_once=slots), key)

    # --- what goes wrong

    async def _wreck(self) -> None:
        if any(job.gang for job in self.plan.jobs):
            self.loop.world.spawn(self._lose_a_part())
        await super()._wreck()

    async def _lose_a_part(self) -> None:
        """In half of the seeds with gangs the power of a machine fails under a part, also in the calm: by chance most
        gangs run when nothing goes wrong any more."""
        rng = random.Random(f"a part is lost {self.seed}")
        running: list[str] = []
        if rng.random() < 0.5:
            while not running:
                await asyncio.sleep(rng.uniform(0.2, 1.0))
                rows = self.promises._all(
                    "SELECT DISTINCT p.agent_id FROM allocation_parts p JOIN allocations a ON a.id = p.allocation_id "
                    "WHERE a.state = 'RUNNING' AND a.nodes > 1 AND p.end IS NULL ORDER BY 1"
                )
                running = [name for (name,) in rows]
            failing = rng.choice(running)
            await self.large_faults.node_fault(
                "machine_restarted", next(node for node in self.nodes if node.name == failing)
            )

    # --- the course of things

    async def _go_on(self, clients: list[asyncio.Task[Any]]) -> None:
        people = Process(self.loop, "people", "client")
        people.spawn(self.actions.go_on(until=self.loop.time() + CALM_AT))
        await asyncio.sleep(CALM_AT)
        await people.spawn(as_thread(self.actions.calm))
        self.note("calm")
        begun = self.loop.time()
        while self.loop.time() < begun + NO_STARVATION:
            if self._finished(clients):
                break
            await asyncio.sleep(1.0)
        for place, client in enumerate(clients):
            if not client.done():
                raise BrokenPromise(f"I7: client {place} could not submit in {NO_STARVATION:g} s of calm")
            client.result()
        self.promises.checks["seconds of calm"] += int(self.loop.time() - begun)
        self.promises.check_end()
        people = Process(self.loop, "the last look", "client")
        await people.spawn(as_thread(self.actions.last_look))
