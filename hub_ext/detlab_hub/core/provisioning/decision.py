"""One evaluation of an elastic pool: Determined's rules, with the scheduler's own fitting.

An instance ends that is stopped, whose agent has been away for too long, or that has been idle for too long while
`min_instances` remain; then, if there are still more than `max_instances`, pending spot requests, idle instances, those
without an agent, and the newest. An instance with running tasks never ends. Beyond Determined: an idle instance stays
while pending tasks would start on it, or wait for more than is available, to avoid cycles of ending and launching.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detlab_hub.core.provisioning.demand import Demand, demand_of
from detlab_hub.core.provisioning.model import (
    HoldReason,
    Instance,
    InstanceEnding,
    InstanceEndReason,
    InstanceHistory,
    InstanceState,
    PoolHistory,
    PoolLimits,
    ProvisioningDecision,
    Situation,
)
from detlab_hub.core.provisioning.pace import allowed, recent
from detlab_hub.core.scheduling.model import AgentState, TaskState

_NOTHING = InstanceHistory()
_ALIVE = (InstanceState.PENDING, InstanceState.RUNNING)


def decide(situation: Situation, history: PoolHistory, limits: PoolLimits) -> ProvisioningDecision:
    """Decide what to do now. The same arguments give the same decision."""
    evaluation = _Evaluation(situation, history, limits)
    endings = evaluation.dead()
    left = evaluation.without(endings)
    starting = [i.agent_id for i in left if evaluation.is_starting(i)]
    room = max(0, limits.max_instances - len(left))
    demand = demand_of(situation, starting, room, limits.max_instances)
    endings += evaluation.idle(left, demand)
    endings += evaluation.over_max(evaluation.without(endings))
    kept = replace(evaluation.count_duds(history, endings), launches=recent(history, limits, situation.now))
    launch, wanted, held_back = _launches(demand, kept, limits, situation.now, len(left), room)
    return ProvisioningDecision(
        launch, tuple(endings), wanted, held_back, demand.infeasible, kept, demand.awaited, demand.unfit
    )  # fmt: skip


def _launches(
    demand: Demand, history: PoolHistory, limits: PoolLimits, now: float, existing: int, room: int
) -> tuple[int, int, tuple[HoldReason, str] | None]:
    """Return how many to launch, how many are wanted, and why the numbers differ."""
    wanted = max(demand.new, limits.min_instances - existing, 0)
    count, held_back = allowed(history, limits, now, min(wanted, room))
    if held_back is None and demand.unplaced and wanted >= room:
        held_back = (
            HoldReason.MAX_INSTANCES,
            f"max_instances {limits.max_instances}: more tasks wait than those can run",
        )
    return count, wanted, held_back


class _Evaluation:
    """The instances as they are now, with what is remembered of them brought up to date."""

    def __init__(self, situation: Situation, history: PoolHistory, limits: PoolLimits) -> None:
        self.now = situation.now
        self.limits = limits
        self._instances = sorted(situation.instances, key=lambda i: (i.launched_at, i.id))
        self._agents = {agent.id: agent for agent in situation.pool.agents}
        running = (task for task in situation.pool.tasks if task.state is TaskState.RUNNING)
        self._busy = situation.held.union(*(task.on for task in running))
        self._unlisted = situation.unlisted
        self.memory = {i.id: self._remember(i, history.instances.get(i.id, _NOTHING)) for i in self._instances}

    def _remember(self, instance: Instance, before: InstanceHistory) -> InstanceHistory:
        if instance.agent_id in self._agents:
            idle = None if instance.agent_id in self._busy else self._since(before.idle_since)
            return InstanceHistory(connected_once=True, idle_since=idle)
        starting = None if before.connected_once else self._starting_since(instance, before)
        late = starting is None or self.now >= starting + self.limits.max_agent_starting_period
        away = self._since(before.away_since) if late and instance.state in _ALIVE else None
        return InstanceHistory(before.connected_once, away_since=away, starting_since=starting)

    def _starting_since(self, instance: Instance, before: InstanceHistory) -> float:
        """Return since when its agent is waited for: since the launch, or from now on if the clock was set back."""
        since = instance.launched_at if before.starting_since is None else before.starting_since
        return min(since, self.now)

    def _since(self, before: float | None) -> float:
        return self.now if before is None else min(before, self.now)  # a clock may be set back

    # --- questions

    def is_starting(self, instance: Instance) -> bool:
        """Whether its agent has not connected yet."""
        remembered = self.memory[instance.id]
        away = instance.agent_id not in self._agents
        return instance.state in _ALIVE and away and remembered.away_since is None and not remembered.connected_once

    def without(self, endings: Sequence[InstanceEnding]) -> list[Instance]:
        """Return the remaining instances when those have ended, oldest first."""
        ended = {ending.id for ending in endings}
        return [i for i in self._instances if i.state in _ALIVE and i.id not in ended]

    def _may_end(self, instance: Instance) -> bool:
        """Whether it runs nothing and can be ended. One that cannot still counts, so that it is not replaced."""
        return instance.agent_id not in self._busy and instance.agent_id not in self._unlisted

    def _takes_work(self, instance: Instance) -> bool:
        agent = self._agents.get(instance.agent_id)
        return agent is not None and agent.state in {AgentState.ENABLED, AgentState.SUSPECT}

    def count_duds(self, history: PoolHistory, endings: Sequence[InstanceEnding]) -> PoolHistory:
        """Return the new history. A connected agent is a good launch, one that will never connect a failed one."""
        known, duds = history.instances, history.duds
        if any(
            now.connected_once and not known.get(name, _NOTHING).connected_once for name, now in self.memory.items()
        ):
            duds = 0
        dead = {e.id for e in endings if e.reason in {InstanceEndReason.STOPPED, InstanceEndReason.NEVER_CONNECTED}}
        new = sum(not self.memory[name].connected_once for name in dead)
        failed_at = self.now if new else history.failed_at
        return replace(history, instances=self.memory, duds=duds + new, failed_at=failed_at)

    # --- endings

    def dead(self) -> list[InstanceEnding]:
        """Instances that cannot run tasks."""
        found = []
        for instance in filter(self._may_end, self._instances):
            remembered = self.memory[instance.id]
            if instance.state is InstanceState.STOPPED:
                found.append(InstanceEnding(instance.id, InstanceEndReason.STOPPED, instance.why or "it is stopped"))
            elif remembered.away_since is not None and self._over(
                remembered.away_since, self.limits.max_disconnected_period
            ):
                away = f"its agent has been away for {self.now - remembered.away_since:.0f} s"
                if remembered.connected_once:
                    found.append(InstanceEnding(instance.id, InstanceEndReason.DISCONNECTED, away))
                else:
                    late = f"its agent did not come in {self.now - instance.launched_at:.0f} s"
                    found.append(InstanceEnding(instance.id, InstanceEndReason.NEVER_CONNECTED, late))
        return found

    def idle(self, left: Sequence[Instance], demand: Demand) -> list[InstanceEnding]:
        """Return instances that were idle for too long, longest first, as long as `min_instances` stay."""
        found: list[tuple[bool, float, Instance]] = []
        for instance in filter(self._may_end, left):
            since = self.memory[instance.id].idle_since
            if since is None or not self._over(since, self.limits.max_idle_agent_period):
                continue
            takes_work = self._takes_work(instance)
            if instance.agent_id in demand.used or (takes_work and demand.unplaced):
                continue
            found.append((takes_work, since, instance))
        found.sort(key=lambda item: (item[0], item[1], item[2].id))
        surplus = max(0, len(left) - self.limits.min_instances)
        return [
            InstanceEnding(instance.id, InstanceEndReason.IDLE, f"it ran nothing for {self.now - since:.0f} s")
            for _, since, instance in found[:surplus]
        ]

    def over_max(self, left: Sequence[Instance]) -> list[InstanceEnding]:
        """Return surplus instances: only idle ones, the least useful first."""
        surplus = len(left) - self.limits.max_instances
        if surplus <= 0:
            return []
        free = sorted(filter(self._may_end, left), key=self._dispensable)
        text = f"there are {len(left)} instances, {self.limits.max_instances} may be"
        return [InstanceEnding(instance.id, InstanceEndReason.OVER_MAX, text) for instance in free[:surplus]]

    def _dispensable(self, instance: Instance) -> tuple[int, float, str]:
        remembered = self.memory[instance.id]
        if instance.spot and instance.state is InstanceState.PENDING:
            rank = 0
        elif remembered.idle_since is not None:
            rank = 1
        elif remembered.away_since is not None:
            rank = 2
        else:
            rank = 3
        return rank, -instance.launched_at, instance.id

    def _over(self, since: float, period: float) -> bool:
        """Whether it has lasted for longer than a period."""
        return self.now - since > period
