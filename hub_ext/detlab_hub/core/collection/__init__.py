"""Which checkpoints of an experiment are kept, by Determined's three numbers, and which code.

Pure: what pins a checkpoint is found elsewhere and given; nothing is removed here.
"""

from __future__ import annotations

from detlab_hub.core.collection.code import code_goes
from detlab_hub.core.collection.deciding import CheckpointDecision, CheckpointRetention, Saved, decide

__all__ = ["CheckpointDecision", "CheckpointRetention", "Saved", "code_goes", "decide"]
