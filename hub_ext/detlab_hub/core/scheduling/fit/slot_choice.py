"""The choice of an agent's free slots for a task, once the scheduler has decided how many.

Where devices are divided into shares, a task gets its shares on as few devices as possible: each is one process.
Among suitable devices the one with the fewest free shares is chosen, so that whole devices remain for tasks that need
several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from detlab.schemas.shares import device_of


def pick(free: Sequence[str], count: int) -> list[str]:
    """Return the slots that a task gets.

    Args:
        free: The agent's free slots, in its order.
        count: How many the task gets; no more than there are.
    """
    left: defaultdict[str, list[str]] = defaultdict(list)
    for slot in free:
        left[device_of(slot)].append(slot)
    picked: list[str] = []
    while len(picked) < count and left:
        missing = count - len(picked)
        enough = [device for device, slots in left.items() if len(slots) >= missing]
        # min and max take the first of several, which is the first in the agent's order
        device = min(enough, key=lambda d: len(left[d])) if enough else max(left, key=lambda d: len(left[d]))
        picked += left.pop(device)[:missing]
    return picked
