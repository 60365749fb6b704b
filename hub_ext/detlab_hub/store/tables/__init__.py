"""The tables of the master, as SQLAlchemy classes."""

from detlab_hub.store.tables.base import Base, clean_text
from detlab_hub.store.tables.cluster import (
    AgentRow,
    AuditRow,
    EventRow,
    Lease,
    LogChunk,
    LogCut,
    Meta,
    QuotaRow,
    TokenRow,
    UsageRow,
)
from detlab_hub.store.tables.experiments import (
    AllocationRow,
    BundleRow,
    BundleUpload,
    CheckpointRow,
    ExperimentRow,
    GrantRow,
    Idempotency,
    ProjectRow,
    SearcherJournal,
    TrialRow,
    WorkspaceRow,
)
from detlab_hub.store.tables.gangs import PartRow
from detlab_hub.store.tables.metrics import (
    ExperimentMetric,
    MetricName,
    Point,
    Rollup,
    Series,
    StructuredValue,
)
from detlab_hub.store.tables.tasks import OutputRow, TaskRow

__all__ = [
    "AgentRow",
    "AllocationRow",
    "AuditRow",
    "Base",
    "BundleRow",
    "BundleUpload",
    "CheckpointRow",
    "EventRow",
    "ExperimentMetric",
    "ExperimentRow",
    "GrantRow",
    "Idempotency",
    "Lease",
    "LogChunk",
    "LogCut",
    "Meta",
    "MetricName",
    "OutputRow",
    "PartRow",
    "Point",
    "ProjectRow",
    "QuotaRow",
    "Rollup",
    "SearcherJournal",
    "Series",
    "StructuredValue",
    "TaskRow",
    "TokenRow",
    "TrialRow",
    "UsageRow",
    "WorkspaceRow",
    "clean_text",
]
