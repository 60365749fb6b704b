"""When a trial's next checkpoint is due, estimated from its last ones.

A trial that is preempted just before a checkpoint saves twice within a moment; one that saves on its own schedule only
loses its work since the last one. So the master waits for a checkpoint that is near, and preempts after its commit
(kueue#8522). Nothing has to be remembered for that: each pass checks it again.
"""

from __future__ import annotations

from collections.abc import Sequence

ENOUGH = 3
"""Checkpoints of one attempt; their two intervals show whether they come regularly."""
_ALIKE = 1.5
"""The longer interval is at most this many times the shorter one."""
_LATE = 0.1
"""A checkpoint is waited for longer than expected by this fraction of an interval."""


def is_near(times: Sequence[float], now: float, within: float) -> bool:
    """Whether a checkpoint is expected so soon that it is worth waiting for.

    Checkpoints more frequent than every `2 * within` seconds are not waited for: the last one is never old, and so the
    master does not wait again right after a checkpoint.

    Args:
        times: When the last checkpoints of the attempt were committed, oldest first.
        now: The time.
        within: Seconds ahead that count as near; a checkpoint may also be this late. 0: none is near.
    """
    if len(times) < ENOUGH or within <= 0.0:
        return False
    before, between, last = times[-ENOUGH:]
    shorter, longer = sorted((between - before, last - between))
    if shorter <= 0.0 or longer > _ALIKE * shorter or shorter < 2.0 * within:
        return False
    due = last + longer
    return due - within <= now <= due + min(_LATE * longer, within)
