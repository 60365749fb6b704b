"""Hand allocations over to a backend that places them itself, by the queue's order and the limits of jobs and users.

Nodes, constraints and preemption are that backend's business. A task beyond the limits of its job or user stays pending
and blocks no other. So does that of a user whom the backend does not serve (its jobs all have one account), and one
whose policy it does not enforce.
"""

from __future__ import annotations

from detlab_hub.core.scheduling.limits import SlotLimits
from detlab_hub.core.scheduling.model import (
    PlacementDecision,
    Reason,
    ReasonCode,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
)
from detlab_hub.core.scheduling.order import in_order


def hand_over(snapshot: Snapshot, to: str) -> PlacementDecision:
    """Decide which tasks are handed over now.

    Args:
        snapshot: A pool; of its agents only whom `to` serves counts.
        to: Id of the backend that takes the tasks.

    Returns:
        The tasks for `to`, in the order in which they are to be handed over, with their numbers of slots; and why all
        others stay pending.
    """
    limits = SlotLimits(snapshot)
    handed: dict[str, dict[str, int]] = {}
    waiting: dict[str, Reason] = {}
    only = next((agent.serves_user for agent in snapshot.agents if agent.id == to and agent.serves_user), None)
    enforces = frozenset[str]().union(*(agent.enforces for agent in snapshot.agents if agent.id == to))
    pending = in_order((task for task in snapshot.tasks if task.state is TaskState.PENDING), snapshot.jobs)
    if snapshot.pool.scheduler is Scheduler.PRIORITY:
        pending.sort(key=lambda task: snapshot.jobs[task.job].priority)  # those of one priority stay in queue order
    for task in pending:
        reason = limits.never(task) or limits.now(task) or _unserved(task, to, only) or _refused(task, to)
        reason = reason or _unenforced(task, to, enforces)
        if reason is None:
            limits.hold(task)
            handed[task.id] = {to: task.slots}
        else:
            waiting[task.id] = reason
    return PlacementDecision(handed, (), waiting)


def divide(slots: int, per_node: int | None, largest: int) -> list[int]:
    """Return the slots of each node that a batch system is to give a trial: the same number on all.

    Args:
        slots: Of the whole trial.
        per_node: Slots of each node, if the config says so.
        largest: Slots of the largest node; 0: not known.

    Returns:
        One number where the slots are of one node, or cannot be divided: the batch system judges that.
    """
    each = per_node
    if each is None and 0 < largest < slots:
        each = max(number for number in range(1, largest + 1) if slots % number == 0)
    if not each or slots <= each or slots % each:
        return [slots]
    return [each] * (slots // each)


def _unserved(task: SchedulerTask, to: str, only: str | None) -> Reason | None:
    """Return why a task is never handed over: who takes the tasks of its pool serves another user."""
    if only in {None, task.user}:
        return None
    return Reason(ReasonCode.NO_SUITABLE_AGENT, f"{to}, which takes the tasks of this pool, serves another user")


def _unenforced(task: SchedulerTask, to: str, enforces: frozenset[str]) -> Reason | None:
    """Return why a task is not handed over: what its policy needs is not enforced there now."""
    missing = sorted(task.constraints.requires - enforces)
    if not missing:
        return None
    said = f"governance: {to} does not enforce {', '.join(missing)}; `det governance agents` shows what it does"
    return Reason(ReasonCode.NO_SUITABLE_AGENT, said)


def _refused(task: SchedulerTask, to: str) -> Reason | None:
    """Return why a task is not handed over again at once: who takes the tasks has refused it a moment ago."""
    if to not in task.blocked_nodes:
        return None
    return Reason(
        ReasonCode.NO_SUITABLE_AGENT,
        f"{to} refused it a moment ago, or its jobs end as soon as they begin; the agent's log says why",
    )
