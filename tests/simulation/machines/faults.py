"""Which faults there are, when they happen, and how many did.

What is counted has had its effect: a fault that was drawn, and then found nothing to harm, is none. So most of it is
counted elsewhere, where the effect shows.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

MESSAGE = {
    "request": ("drop_request", "drop_reply", "duplicate", "delay", "reorder"),
    "connection": ("cut", "stall"),
}
"""What happens to single messages, by the seed."""
MASTER = (
    "master_killed_at_an_await",
    "master_killed_before_a_commit",
    "master_killed_after_a_commit",
    "master_killed_in_a_torn_commit",
    "master_paused_past_its_lease",
    "disk_full_database",
)
NODE = (
    "partition",
    "agent_killed",
    "launcher_killed",
    "trial_killed",
    "trial_killed_torn_spool",
    "trial_killed_torn_checkpoint",
    "machine_restarted",
    "machine_paused_shortly",
    "machine_paused_past_reconnect",
    "disk_full_spool",
    "clock_jump_forward",
    "clock_jump_back",
)
CLOUD = (
    "launch_refused",
    "launch_lost",
    "launch_unanswered",
    "master_killed_at_a_launch",
    "list_unanswered",
    "list_is_old",
    "end_lost",
    "end_unanswered",
    "instance_lost",
    "instance_without_agent",
)
"""What a provider of instances does, and what happens to a master meanwhile; only where there are elastic pools."""
ENGINES = (
    "node_vanished",
    "node_vanished_and_its_pods_lived",
    "node_returned",
    "node_added",
    "node_removed",
    "pod_begun_late",
    "pod_deleted",
    "task_told_twice",
    "task_told_on_another_node",
    "task_told_as_not_begun",
    "task_not_told",
    "task_forgotten",
    "report_twice",
    "report_on_another_node",
    "job_waited",
    "job_refused",
    "job_lost",
    "job_number_twice",
    "job_cancelled",
    "job_requeued",
    "controller_away",
    "controller_unheard",
    "controller_full",
)
"""What an agent of many nodes says wrongly, and what a cluster and a batch system do; only where there are some."""
KINDS = (*MESSAGE["request"], *MESSAGE["connection"], *MASTER, *NODE)
LEAST = 20
"""Faults of every seed, at least."""


class Faults:
    """The faults of one seed."""

    def __init__(self, rng: Any, *, wanted: int, calm: bool = False) -> None:
        self._rng = rng
        self._left = 0 if calm else wanted
        self._until_next = rng.randrange(1, 6)
        self.counts: Counter[str] = Counter()

    def count(self, kind: str) -> None:
        """A fault happened."""
        assert kind in KINDS or kind in CLOUD or kind in ENGINES, kind
        self.counts[kind] += 1

    @property
    def total(self) -> int:
        """How many have happened."""
        return sum(self.counts.values())

    def insist(self) -> None:
        """Let something happen to the next message; for seeds in which too much had no effect."""
        self._left, self._until_next = max(self._left, 1), 1

    def of_message(self, way: str) -> str:
        """What is to happen to the next message; whoever carries it counts what did."""
        self._until_next -= 1
        if self._left <= 0 or self._until_next > 0:
            return "none"
        self._left -= 1
        self._until_next = self._rng.randrange(1, 14)
        kind: str = self._rng.choice(MESSAGE[way])
        return kind

    def lateness(self) -> float:
        """Seconds by which a late message is late."""
        return self._rng.choice((0.05, 0.5, 2.0, 6.0)) * (0.5 + self._rng.random())
