"""The promises of a shared cluster: whose slots, under which quota, at whose cost, and what others learn of it.

At each pass of the scheduler its decision is judged by itself; at each commit, what the rows say of new placements and
of preemptions; at each answer, what it tells to whom.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from detlab.schemas.shares import devices_of
from detlab_hub.core.scheduling import (
    AgentState,
    PlacementDecision,
    ReasonCode,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
)
from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.preemption.redundant import all_fit
from detlab_hub.services import Caller
from simulation.checks.promises import PLACED, Promises
from simulation.machines.master import as_json
from simulation.plan import PEOPLE, ZERO_SLOT_TASKS

if TYPE_CHECKING:
    from detlab.schemas.wire import Launch
    from simulation.machines.master import Master
    from simulation.machines.network import Request
    from simulation.machines.node import Node

AN_HOUR = 3600.0
PROMPT = 5.0
"""Seconds in which a master that serves ends what has run for its `max_time`: two ticks and the way of a request."""
GAP = 5.0
"""Seconds without a commit after which it is not certain that a master serves."""
_WORDS = re.compile(r"[^\s,;:()\"']+")
_LIVE = (
    "SELECT a.id, a.trial_id, a.state, a.agent_id, a.slots, a.slots_needed, a.owner, "
    "coalesce(a.task_id, a.experiment_id), "
    "a.preempt_reason, a.preempt_at, a.nodes, a.started_at, a.max_time, a.exit_reason, "
    "coalesce(e.resource_pool, t.resource_pool), e.max_slots, "
    "a.millicpus, a.memory, coalesce(e.owner_groups, t.owner_groups), a.constraints "
    "FROM allocations a LEFT JOIN experiments e ON e.id = a.experiment_id LEFT JOIN tasks t ON t.id = a.task_id"
)


@dataclass(frozen=True)
class Held:
    """An allocation as the database has it."""

    id: str
    trial: int | None
    state: str
    agent: str | None
    slots: tuple[str, ...]
    needed: int
    owner: str
    job: int | str
    """The experiment, or the task itself."""
    preempt_reason: str | None
    preempt_at: float | None
    nodes: int
    started_at: float | None
    max_time: float | None
    exit_reason: str | None
    pool: str
    max_slots: int | None
    millicpus: int
    memory: int
    groups: frozenset[str]
    labels: frozenset[tuple[str, str]]

    @property
    def placed(self) -> bool:
        """Whether it holds its slots."""
        return self.state in PLACED

    @property
    def aside(self) -> bool:
        """Whether it needs nothing that another one may need."""
        return not (self.needed or self.millicpus or self.memory)

    @property
    def seats(self) -> dict[str, tuple[str, ...]]:
        """Its slots by agent; those of a gang name their agents."""
        if self.nodes < 2:
            return {self.agent or "": self.slots}
        found: dict[str, tuple[str, ...]] = {}
        for slot in self.slots:
            agent, _, name = slot.rpartition("/")
            found[agent] = (*found.get(agent, ()), name)
        return found


@dataclass(frozen=True)
class Rules:
    """What stood at a commit: (kind, name) -> quota; agents and slots that take no new work; job -> pool."""

    quotas: dict[tuple[str, str], int]
    closed: frozenset[str]
    slots_off: frozenset[str]
    pools: dict[int | str, str]


@dataclass
class Fairness(Promises):
    """The checks of a seed of `Cluster`."""

    _before: dict[str, Held] | None = None
    _rules: Rules | None = None
    _began_at: dict[str, float] = field(default_factory=dict)
    """When attempts with a `max_time` were first seen to run, on the master's clock"""
    _due: dict[str, float] = field(default_factory=dict)
    """Since when, in virtual time, theirs is over and they were not told, while one master served"""
    _told: set[str] = field(default_factory=set)
    _served: str = ""
    _committed_at: float = 0.0
    _parsed: dict[tuple[Any, ...], Held] = field(default_factory=dict)
    """Rows as they were read -> what they say: most are as they were at the commit before."""
    _preempted: defaultdict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """trial -> when each of its attempts was preempted, by allocation"""

    # --- at each start on a machine

    def begins(self, node: Node, launch: Launch) -> None:
        """See `Promises`; and what tasks are told to take of a device is no more than all of it."""
        super().begins(node, launch)
        taken = Counter[str]()
        for other in (launch, *(task.launch for task in node.tasks.values() if task.alive)):
            devices = devices_of(other.slots)
            taken.update(dict(zip(devices, other.info.device_shares or [1.0] * len(devices), strict=True)))
        for device, part in sorted(taken.items()):
            if part > 1.0 + 1e-9:
                self._broken("shares", f"with {launch.allocation_id} tasks take {part:g} of {device}")
        self.checks["shares of devices"] += bool(launch.info.device_shares)

    # --- at each pass of the scheduler

    def decided(self, snapshot: Snapshot, decision: PlacementDecision) -> None:
        """A pass over a pool, before it becomes rows."""
        tasks = {task.id: task for task in snapshot.tasks}
        pending = {task.id for task in snapshot.tasks if task.state is TaskState.PENDING}
        if decision.allocate.keys() | decision.waiting.keys() != pending or (
            decision.allocate.keys() & decision.waiting.keys()
        ):
            self._broken("I7", "a pass forgets a task, or lets it both start and wait")
        self._judge_room(snapshot, decision, tasks)
        self._judge_victims(snapshot, decision, tasks)
        self._judge_reasons(decision, tasks)
        self.checks["passes"] += 1

    def _judge_room(self, snapshot: Snapshot, decision: PlacementDecision, tasks: dict[str, SchedulerTask]) -> None:
        used = Counter[str]()
        for task in snapshot.tasks:
            used.update(task.on)
        for name, placement in decision.allocate.items():
            used.update(placement)
            if sum(placement.values()) != tasks[name].slots:
                self._broken("I2", f"{name} gets {dict(placement)}, and needs {tasks[name].slots} slots")
        for agent in snapshot.agents:
            given = sum(placement.get(agent.id, 0) for placement in decision.allocate.values())
            if given and used[agent.id] > agent.slots:
                self._broken("I2", f"a pass gives {used[agent.id]} slots of {agent.id}, which has {agent.slots}")
            if given and agent.state is not AgentState.ENABLED:
                self._broken("agents", f"a pass starts tasks on {agent.id}, which is {agent.state}")

    def _judge_victims(self, snapshot: Snapshot, decision: PlacementDecision, tasks: dict[str, SchedulerTask]) -> None:
        if not decision.release:
            return
        for name in decision.release:
            if not tasks[name].preemptible or tasks[name].leaving or tasks[name].state is not TaskState.RUNNING:
                self._broken("I10", f"a pass takes slots from {name}, which may not be preempted or was told already")
            row = (self._before or {}).get(name)
            if row is not None and row.preempt_at is not None:
                self._broken("I10", f"{name} is told to leave a second time")
        waiting = [tasks[name] for name, why in decision.waiting.items() if why.code is ReasonCode.RELEASING]
        if not waiting:
            self._broken("I10", f"slots are taken from {decision.release}, and nobody waits for them")
        self.checks["victims"] += len(decision.release)
        if snapshot.pool.scheduler is Scheduler.FAIR_SHARE and len(waiting) > 1:
            return  # who is entitled to what is left changes with each that starts
        for spared in decision.release:
            capacity = FreeCapacity(snapshot.pool, snapshot.agents)
            for task in snapshot.tasks:
                kept = task.id == spared or task.id not in decision.release
                if task.state is TaskState.RUNNING and not task.leaving and kept:
                    capacity.place(task, task.on)
            for name, placement in decision.allocate.items():
                capacity.place(tasks[name], placement)
            if all_fit(capacity, waiting):
                self._broken("I10", f"slots are taken needlessly from {spared} for {[task.id for task in waiting]}")
            self.checks["victims that were needed"] += 1

    def _judge_reasons(self, decision: PlacementDecision, tasks: dict[str, SchedulerTask]) -> None:
        owners = {task.id: task.user for task in tasks.values()}
        owners |= {task.job: task.user for task in tasks.values()}
        for name, why in decision.waiting.items():
            words = set(_WORDS.findall(why.detail))
            jobs = set(re.findall(r"experiment \d+", why.detail))
            for other in sorted((words | jobs) & owners.keys()):
                if owners[other] != owners[name]:
                    self._broken("I9", f"{owners[name]} is told of {other} of {owners[other]}: {why.detail}")
        self.checks["I9 reasons"] += len(decision.waiting)

    # --- at each commit

    def committed(self, master: Master) -> None:
        """See `Promises`; and what time alone may break."""
        super().committed(master)
        if self._before is not None:
            self._judge_clocks(master, self._before)

    def _check_commit(self, master: Master) -> None:
        super()._check_commit(master)
        now = self._read()
        rules = self._read_rules(now)
        if self._before is not None and self._rules is not None:
            before = self._before
            new = (
                [one for one in now.values() if one.placed and one.id in before and not before[one.id].placed]
                if now is not before
                else []
            )
            for one in new:
                self._judge_place(one, now, self._rules, rules)
            self._judge_demands(new, now)
            self._judge_quotas(new, now, self._rules, rules)
            if now is not before:
                self._judge_ends(before, now)
        self._judge_gangs()
        if now is not self._before:
            self._note_preempted(now)
        self._before, self._rules = now, rules

    def _read(self) -> dict[str, Held]:
        same = self.written.is_known("held", "allocations", "experiments", "tasks")
        if same and self._before is not None:
            return self._before
        found = {}
        for row in self._all(_LIVE):
            if row not in self._parsed:
                *plain, groups, constraints = row
                plain[4] = tuple(json.loads(plain[4]))
                labels = (json.loads(constraints) or {}).get("labels", {}) if constraints else {}
                self._parsed[row] = Held(*plain, frozenset(json.loads(groups)), frozenset(labels.items()))
            found[row[0]] = self._parsed[row]
        return found

    def _read_rules(self, now: dict[str, Held]) -> Rules:
        same = self.written.is_known("rules", "quotas", "agents")
        if same and now is self._before and self._rules is not None:
            return self._rules
        quotas = {(kind, name): slots for kind, name, slots in self._all("SELECT kind, name, slots FROM quotas")}
        agents = self._all("SELECT id, enabled, slots_off FROM agents")
        closed = frozenset(name for name, enabled, _ in agents if not enabled)
        slots_off = frozenset(slot for _, _, off in agents for slot in json.loads(off))
        return Rules(quotas, closed, slots_off, {one.job: one.pool for one in now.values()})

    def _judge_place(self, one: Held, all_now: dict[str, Held], before: Rules, now: Rules) -> None:
        """A new placement. What changed in the same commit may have changed after it."""
        if len(one.slots) != one.needed or len(one.seats) != one.nodes:
            self._broken("I2", f"{one.id} of {one.needed} slots gets {one.slots} on {one.nodes} agents")
        for agent, slots in one.seats.items():
            self._judge_seat(one, agent, slots, before, now)
        parts = {
            agent: tuple(json.loads(slots))
            for agent, slots in self._all(
                "SELECT agent_id, slots FROM allocation_parts WHERE allocation_id = ? ORDER BY rank", one.id
            )
        }
        if parts != one.seats:
            self._broken("gangs", f"{one.id} has the slots {one.seats}, and the parts {parts}")
        self.checks["gangs placed"] += one.nodes > 1
        if one.aside:
            beside = [other for other in all_now.values() if other.placed and other.agent == one.agent and other.aside]
            if len(beside) > ZERO_SLOT_TASKS:
                self._broken("agents", f"{one.agent} has {len(beside)} tasks without slots")
            self.checks["zero-slot placements"] += 1
        self.checks["placements"] += 1

    def _judge_seat(self, one: Held, agent: str, slots: tuple[str, ...], before: Rules, now: Rules) -> None:
        node = next((node for node in self.world.nodes if node.name == agent), None)
        if node is None or bool(slots) != bool(one.needed) or not set(slots) <= set(node.slots):
            self._broken("I2", f"{one.id} of {one.needed} slots gets {slots} of {agent}")
        assert node is not None
        if agent in before.closed and agent in now.closed:
            self._broken("agents", f"{one.id} starts on {agent}, which takes no new work")
        if shut := set(slots) & before.slots_off & now.slots_off:
            self._broken("agents", f"{one.id} starts on {sorted(shut)}, which an administrator closed")
        if node.pool not in {before.pools.get(one.job), now.pools[one.job]}:
            self._broken("pools", f"{one.id} of the pool {one.pool} starts on {agent} of {node.pool}")
        if not one.labels <= set(node.labels.items()):
            self._broken("pools", f"{one.id} wants {sorted(one.labels)}, {agent} is {dict(node.labels)}")

    def _judge_demands(self, new: list[Held], now: dict[str, Held]) -> None:
        """Who has got a place in this commit finds the CPUs and the memory there that they asked for."""
        agents = {agent for one in new if one.millicpus or one.memory for agent in one.seats}
        nodes = {node.name: node for node in self.world.nodes if node.name in agents}
        for name in sorted(agents):
            on = [other for other in now.values() if other.placed and name in other.seats]
            cpus, memory = sum(one.millicpus for one in on) / 1000, sum(one.memory for one in on)
            has = nodes[name]
            if (has.cpus is not None and cpus > has.cpus) or (has.memory is not None and memory > has.memory):
                asked = f"{cpus:g} CPUs and {memory} bytes of {name}, which has {has.cpus} and {has.memory}"
                self._broken("demands", f"{[one.id for one in on]} hold {asked}")
            self.checks["demands"] += has.cpus is not None

    def _judge_gangs(self) -> None:
        """A part that failed or is lost ends the others: they are told so in the same commit."""
        if self.written.is_known("gangs", "allocation_parts", "allocations"):
            return
        for name, agent, end in self._all(
            "SELECT a.id, p.agent_id, p.end FROM allocation_parts p JOIN allocations a ON a.id = p.allocation_id "
            "WHERE p.end IN ('lost', 'refused', 'failed') AND a.state NOT IN ('TERMINATING', 'TERMINATED')"
        ):
            self._broken("gangs", f"the part of {name} on {agent} is {end}, and the others go on")

    def _judge_ends(self, before: dict[str, Held], now: dict[str, Held]) -> None:
        """What has ended runs nowhere, but on agents that were given up."""
        for one in now.values():
            if one.state != "TERMINATED" or one.id not in before or not before[one.id].placed:
                continue
            ends = self._all("SELECT agent_id, end FROM allocation_parts WHERE allocation_id = ?", one.id)
            lost = {agent for agent, end in ends if end == "lost"}
            if one.nodes > 1:
                self.checks["gangs ended"] += 1
                self.checks["gangs ended by a lost part"] += bool(lost)
            for node in self.world.nodes:
                task = node.tasks.get(one.id)
                if task is not None and task.alive and node.name not in lost:
                    self._broken("I2", f"{one.id} has ended, and runs on {node.name}")
            self.checks["ended attempts run nowhere"] += 1

    def _judge_clocks(self, master: Master, now: dict[str, Held]) -> None:
        """Whose `max_time` is over is told so within a few seconds in which one master serves."""
        at, clock = self.world.loop.time(), self.world.clock("master")
        if self._served != master.name or self.world.database_full or at - self._committed_at > GAP:
            self._due.clear()
        self._served, self._committed_at = master.name, at
        for one in now.values():
            if one.max_time is None or one.state != "RUNNING":
                self._due.pop(one.id, None)
                continue
            # Seen first in a database that has moved, it may have begun before the clock was put back.
            began = self._began_at.setdefault(one.id, max(clock, one.started_at or clock))
            if clock < began + one.max_time or one.preempt_reason in {"cancel", "stop"}:
                self._due.pop(one.id, None)
            elif at - self._due.setdefault(one.id, at) > PROMPT:
                self._broken("max_time", f"{one.id} may run for {one.max_time:g} s, has for {clock - began:g}")
            else:
                self.checks["max_time looked at when over"] += 1
        self._told.update(one.id for one in now.values() if one.max_time is not None and one.preempt_reason == "cancel")
        self.checks["max_time ended attempts"] = len(self._told)

    def _judge_quotas(self, new: list[Held], now: dict[str, Held], before: Rules, rules: Rules) -> None:
        """Who has got slots in this commit holds no more than every quota gives, and their job no more than it may."""
        new = [one for one in new if one.needed]  # a quota of slots binds nobody who wants none
        if not new:
            return
        placed = [one for one in now.values() if one.placed]
        for kind, name in before.quotas.keys() & rules.quotas.keys():
            most = max(before.quotas[kind, name], rules.quotas[kind, name])
            bound = [one for one in placed if name == one.owner or name in one.groups]
            held = sum(len(one.slots) for one in bound)
            if held > most and any(one in bound for one in new):
                self._broken("quota", f"{kind} {name} gets slots and holds {held} of a quota of {most}")
            self.checks["quotas"] += 1
        for job in sorted({int(one.job) for one in new if one.max_slots is not None}):
            mine = [one for one in placed if one.job == job]
            held = sum(len(one.slots) for one in mine)
            if held > (mine[0].max_slots or 0):
                self._broken("quota", f"experiment {job} gets slots and holds {held} of max_slots {mine[0].max_slots}")

    def _note_preempted(self, now: dict[str, Held]) -> None:
        """At most so many preemptions of a trial in any hour (I10)."""
        bound = self.world.settings.preemptions_per_hour
        for one in now.values():
            if one.trial is None:
                continue
            times = self._preempted[one.trial]
            if one.preempt_reason != "preempt" or one.preempt_at is None or one.id in times:
                continue
            times[one.id] = one.preempt_at
            self.checks["I10 preemptions"] += 1
            recent = sum(one.preempt_at - AN_HOUR < at <= one.preempt_at for at in times.values())
            if recent > bound:
                self._broken("I10", f"trial {one.trial} was preempted {recent} times in an hour, {bound} are allowed")
            self.checks["I10 preempted as often as may be"] += recent == bound

    # --- at each answer

    def answered(self, master: Master, request: Request, caller: Any, result: Any) -> None:
        """See `Promises`; and nobody is told of what is somebody else's (I9)."""
        super().answered(master, request, caller, result)
        if not isinstance(caller, Caller) or caller.admin or result is None:
            return
        said = as_json(result).decode()
        for secret in self._secrets_from(caller.name):
            if re.search(rf"\b{re.escape(secret)}\b", said):
                self._broken("I9", f"{caller.name} is told of {secret} by {request.path}: {said[:300]}")
        self.checks["I9 answers"] += 1

    def _secrets_from(self, name: str) -> Iterable[str]:
        """Names of people, jobs and allocations of which somebody may not know."""
        yield from (other for other in PEOPLE if other != name)
        yield from (title for (title,) in self._all("SELECT name FROM experiments WHERE owner != ?", name))
        yield from (title for (title,) in self._all("SELECT name FROM tasks WHERE owner != ?", name))
        yield from (one for (one,) in self._all("SELECT id FROM allocations WHERE owner != ?", name))

    # --- now and then

    def _check_rows(self) -> None:
        """See `Promises`; and no preemption counts as a restart (I10)."""
        super()._check_rows()
        self.checks["I10 restarts"] += 1
        if self.written.is_known("restarts", "allocations", "trials"):
            return
        failed = Counter(
            trial for (trial,) in self._all("SELECT trial_id FROM allocations WHERE exit_reason = 'failed'")
        )
        for trial, restarts in self._all("SELECT id, restarts FROM trials"):
            if restarts > failed[trial]:
                self._broken("I10", f"trial {trial} has {restarts} restarts, and failed {failed[trial]} times")

    def database_moved(self) -> None:
        """See `Promises`."""
        super().database_moved()
        self._before = self._rules = None
        self._preempted.clear()
        self._due.clear()
        self._began_at.clear()
