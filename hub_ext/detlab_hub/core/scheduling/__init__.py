"""Scheduling of a resource pool as a pure function.

`schedule(snapshot)` decides which tasks start where, which release slots, and why all others stay pending.
"""

from detlab_hub.core.scheduling.configuration import DEFAULT_POOL, PoolConfig, Pools, read_pools
from detlab_hub.core.scheduling.fair_share import by_fair_share, by_turns
from detlab_hub.core.scheduling.gc_pause import without_collection
from detlab_hub.core.scheduling.governing import GovernedPool, read_governance
from detlab_hub.core.scheduling.handover import divide, hand_over
from detlab_hub.core.scheduling.labels import LabelRule, Preference, preferences_of, rule_of
from detlab_hub.core.scheduling.model import (
    ANYWHERE,
    DEFAULT_PRIORITY,
    MAX_ZERO_SLOT_TASKS,
    UNBOUNDED,
    Agent,
    AgentState,
    Constraints,
    Fitting,
    Job,
    PlacementDecision,
    Pool,
    Quota,
    Reason,
    ReasonCode,
    Scheduler,
    SchedulerTask,
    ShareBy,
    Snapshot,
    TaskState,
)
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.priority import by_priority
from detlab_hub.core.scheduling.user_shares import by_user_share

_SCHEDULERS = {
    Scheduler.PRIORITY: by_priority,
    Scheduler.FAIR_SHARE: by_fair_share,
    Scheduler.ROUND_ROBIN: by_turns,
}


@without_collection()
def schedule(snapshot: Snapshot) -> PlacementDecision:
    """Make one pass. The same snapshot gives the same decision; slots released in it are not given away in it."""
    planner = Planner(snapshot)
    by_users = snapshot.pool.scheduler is Scheduler.FAIR_SHARE and snapshot.pool.share_by is ShareBy.USER
    (by_user_share if by_users else _SCHEDULERS[snapshot.pool.scheduler])(planner)
    return planner.decision()
