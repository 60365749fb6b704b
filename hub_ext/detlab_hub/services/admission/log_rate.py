"""Output that tasks write, in the long run."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.schemas.wire import RecordBatch
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.base.limits.output import OutputWriter
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TaskRow


async def thinned(context: ServiceContext, allocation_id: str, batch: RecordBatch, node: int = 0) -> RecordBatch:
    """Return a batch without the lines that exceed its task's rate, and record that lines were left out.

    Args:
        context: The database, the clock and the counts.
        allocation_id: Whose lines these are; those of an unknown allocation are refused later.
        batch: The records to be written.
        node: Which of the attempt's nodes writes them.
    """
    rates, limits = context.limiter.output, context.limiter.limits
    if not rates.concern(batch):
        return batch
    writer = rates.writer(allocation_id)
    if writer is None:
        writer = await context.read(lambda s: _writer(s, limits, allocation_id))
        if writer is None:
            return batch
        rates.know(allocation_id, writer)
    kept, left_out = rates.thinned(allocation_id, node, writer, batch, context.clock())
    if left_out:
        context.limiter.hits.note(f"task {allocation_id}", "log_rate", context.clock(), left_out)
    return kept


def _writer(s: Session, limits: PerUserLimits, allocation_id: str) -> OutputWriter | None:
    row = s.get(AllocationRow, allocation_id)
    if row is None:
        return None
    holder = s.get(TaskRow, row.task_id) if row.task_id is not None else s.get(ExperimentRow, row.experiment_id)
    groups = holder.owner_groups if holder is not None else ()
    return OutputWriter(row.assigned_at or row.requested_at, row.nodes, limits.binds(row.owner, groups))
