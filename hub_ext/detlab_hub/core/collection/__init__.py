"""Which checkpoints of an experiment are kept: Determined's three numbers, applied to what was saved.

Pure: what pins a checkpoint is found elsewhere and given; nothing is removed here.
"""

from __future__ import annotations

from detlab_hub.core.collection.deciding import Decision, Policy, Saved, decide

__all__ = ["Decision", "Policy", "Saved", "decide"]
