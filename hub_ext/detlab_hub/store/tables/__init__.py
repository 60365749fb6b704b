"""The tables of the master, as SQLAlchemy classes."""

from detlab_hub.store.tables.base import Base, clean_text
from detlab_hub.store.tables.cluster import AgentRow, EventRow, Lease, LogRow, Meta, TokenRow
from detlab_hub.store.tables.experiments import (
    AllocationRow,
    BundleRow,
    CheckpointRow,
    ExperimentRow,
    Idempotency,
    ProjectRow,
    SearcherJournal,
    TrialRow,
    WorkspaceRow,
)
from detlab_hub.store.tables.metrics import (
    ExperimentMetric,
    MetricName,
    Point,
    Rollup,
    Series,
    StructuredValue,
)

__all__ = [
    "AgentRow",
    "AllocationRow",
    "Base",
    "BundleRow",
    "CheckpointRow",
    "EventRow",
    "ExperimentMetric",
    "ExperimentRow",
    "Idempotency",
    "Lease",
    "LogRow",
    "Meta",
    "MetricName",
    "Point",
    "ProjectRow",
    "Rollup",
    "SearcherJournal",
    "Series",
    "StructuredValue",
    "TokenRow",
    "TrialRow",
    "WorkspaceRow",
    "clean_text",
]
