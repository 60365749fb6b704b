"""Hand allocations over to who places them itself: the order of the queue, and what jobs and users may hold.

Nodes, constraints and preemption are the other one's business. What a job or a user may not hold now waits, and is in
nobody's way.
"""

from __future__ import annotations

from detlab_hub.core.scheduling.limits import Limits
from detlab_hub.core.scheduling.model import Decision, Reason, Scheduler, Snapshot, TaskState
from detlab_hub.core.scheduling.order import in_order


def hand_over(snapshot: Snapshot, to: str) -> Decision:
    """Decide what is handed over now.

    Args:
        snapshot: A pool; its agents count for nothing.
        to: Who places its tasks.

    Returns:
        What goes to `to`, in the order in which it is to be told, with its number of slots; and why all others wait.
    """
    limits = Limits(snapshot)
    handed: dict[str, dict[str, int]] = {}
    waiting: dict[str, Reason] = {}
    pending = in_order((task for task in snapshot.tasks if task.state is TaskState.PENDING), snapshot.jobs)
    if snapshot.pool.scheduler is Scheduler.PRIORITY:
        pending.sort(key=lambda task: snapshot.jobs[task.job].priority)  # those of one priority stay in queue order
    for task in pending:
        reason = limits.never(task) or limits.now(task)
        if reason is None:
            limits.hold(task)
            handed[task.id] = {to: task.slots}
        else:
            waiting[task.id] = reason
    return Decision(handed, (), waiting)
