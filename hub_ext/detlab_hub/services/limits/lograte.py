"""Output that tasks write, in the long run."""

from __future__ import annotations

from detlab.schemas.wire import RecordBatch
from detlab_hub.services.shell import Shell


def thinned(shell: Shell, allocation_id: str, batch: RecordBatch) -> RecordBatch:
    """Return a batch without the lines that are beyond its task's rate; that there were some is noted."""
    kept, left_out = shell.limiter.thinned(allocation_id, batch)
    if left_out:
        shell.limiter.hits.note(f"task {allocation_id}", "log_rate", shell.clock(), left_out)
    return kept
