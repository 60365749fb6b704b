"""The tables of the master, as SQLAlchemy classes."""

from detlab_hub.store.tables.alerts import AlertMarkRow, AlertRow, AlertRuleRow, EmailCodeRow, EmailRow, HookRow
from detlab_hub.store.tables.artifacts import (
    ArtifactAliasRow,
    ArtifactEntryRow,
    ArtifactFileRow,
    ArtifactLinkRow,
    ArtifactRow,
    ArtifactVersionRow,
    DeletedArtifactLinkRow,
)
from detlab_hub.store.tables.base import Base, clean_text
from detlab_hub.store.tables.cluster import (
    AgentRow,
    AuditRow,
    CostCapRow,
    EventConsumerRow,
    EventRow,
    FadedUsageRow,
    Lease,
    LogChunk,
    LogCut,
    Meta,
    ProjectCostRow,
    QuotaRow,
    SlotUsageRow,
    StorageQuotaRow,
    TokenRow,
    UidRow,
)
from detlab_hub.store.tables.collection import BookmarkRow, FreedRow, ReferenceRow
from detlab_hub.store.tables.configs import CLUSTER, ConfigPolicyRow, TemplateRow
from detlab_hub.store.tables.experiments import (
    AllocationRow,
    BundleRow,
    BundleUpload,
    CheckpointRow,
    ExperimentRow,
    GrantRow,
    Idempotency,
    RemovalRow,
    SearcherJournal,
    TrialRow,
)
from detlab_hub.store.tables.finding import SavedViewRow
from detlab_hub.store.tables.gangs import PartRow
from detlab_hub.store.tables.governance import EvidenceRow, LedgerRow, MatrixRow, PreflightRow, SigningKeyRow
from detlab_hub.store.tables.media import MediaRow
from detlab_hub.store.tables.metrics import (
    ExperimentMetric,
    MetricName,
    MetricPoint,
    MetricSeries,
    Rollup,
    StructuredValue,
)
from detlab_hub.store.tables.registry import (
    EnvironmentRow,
    LabelMoveRow,
    ModelFact,
    ModelGrantRow,
    ModelRow,
    VersionLabelRow,
    VersionMetric,
    VersionRow,
    WebhookRow,
)
from detlab_hub.store.tables.schedules import ScheduleRow
from detlab_hub.store.tables.tasks import OutputRow, TaskNote, TaskRow
from detlab_hub.store.tables.tracking import (
    TrackedFileRow,
    TrackedModelRow,
    TrackedPoint,
    TrackedRunRow,
    TrackedSeries,
    TrackedValue,
    TrackedWriterRow,
)
from detlab_hub.store.tables.workspaces import MemberRow, ProjectRow, WorkspaceRow
