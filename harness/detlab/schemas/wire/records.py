"""What a task says to the master, by its launcher or the Core API, and what it is told at its start."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from detlab.schemas.wire.base import Wire
from detlab.schemas.wire.views import CheckpointFile


class ClusterInfoWire(Wire):
    """Written to `$DET_TASK_DIR/info.json` by the launcher; the source of `det.get_cluster_info()`."""

    master_url: str
    """Base of the service, ends with `/services/detlab/`."""
    cluster_id: str
    agent_id: str
    slot_ids: list[int]
    """Container-local slot numbers 0..n-1, as Determined gives them."""
    gpu_uuids: list[str] = []
    task_id: str
    allocation_id: str
    task_type: str = "TRIAL"
    """TRIAL, or a taskwire.TaskKind in capitals: NOTEBOOK, SHELL, COMMAND, TENSORBOARD, CELL, NOTEBOOK_RUN."""
    run: int
    latest_checkpoint: str | None = None
    earlier_checkpoints: list[str] = []
    """Of the trial's own, with fewer steps, newest first: one of them serves if the files of the latest are gone."""
    resume_step: int | None = None
    """Step of `latest_checkpoint` if that is the trial's own; a master of before does not say it."""
    trial_id: int = 0
    """0 unless the task is a trial, as the three below."""
    trial_index: int = 0
    experiment_id: int = 0
    trial_seed: int = 0
    hparams: dict[str, Any] = {}
    config: dict[str, Any] = {}
    """The resolved config of the experiment or task."""
    container_addrs: list[str] = ["127.0.0.1"]
    container_rank: int = 0
    container_slot_counts: list[int] = []
    """Devices of each node, and so ranks: several shares of one device are one."""
    device_shares: list[float] = []
    """How much of each device of `slot_ids` it may use; empty: all of them whole."""
    owner: str = ""
    storage_instance: str = ""
    """The installation of the cluster that may change its checkpoints; see `detlab.storage.ownership`."""
    storage_epoch: int = 0


class _Numbered(Wire):
    kind: str
    seq: int
    """1, 2, 3, … per allocation, over all records of the same stream; a seq seen before is skipped."""
    time: float


class MetricsRecord(_Numbered):
    """One report. Scalars go to series; other values (dict, list, str) are kept as structured JSON."""

    kind: Literal["metrics"] = "metrics"
    group: str
    steps_completed: int
    metrics: dict[str, Any]
    batch_metrics: list[dict[str, Any]] | None = None


class ProgressRecord(_Numbered):
    """report_progress."""

    kind: Literal["progress"] = "progress"
    progress: float


class StatusRecord(_Numbered):
    """set_status."""

    kind: Literal["status"] = "status"
    status: str


class EarlyExitRecord(_Numbered):
    """report_early_exit: the code says that it ends on purpose."""

    kind: Literal["early_exit"] = "early_exit"
    reason: str
    """INVALID_HP | USER_REQUESTED_STOP | ERRORED"""


class ResumedRecord(_Numbered):
    """The attempt begins at an earlier step than the checkpoint it was given: that one's files are altered.

    Counts before the first metrics of the attempt: what earlier ones reported beyond this step is superseded then.
    """

    kind: Literal["resumed"] = "resumed"
    steps_completed: int


class CheckpointGoneRecord(_Numbered):
    """Files of the checkpoint that the attempt was given are not where it was stored."""

    kind: Literal["checkpoint_gone"] = "checkpoint_gone"
    gone: list[str]
    """That one first, then those of `earlier_checkpoints` whose files are not there either."""
    instead: str | None = None
    """The newest of `earlier_checkpoints` that exists. None: it is unknown of all of them, as where a storage is not
    mounted."""


class AlertRecord(_Numbered):
    """`core_context.alert()`: people are told. It is cut to 200 characters of title, 4,000 of text."""

    kind: Literal["alert"] = "alert"
    title: str = ""
    text: str = ""
    level: str = "info"


class LogRecord(_Numbered):
    """One output line, of the `logs` stream; all others are of `metrics`."""

    kind: Literal["log"] = "log"
    rank: int | None = None
    stdtype: Literal["stdout", "stderr", "launcher"] = "stdout"
    level: str | None = None
    text: str


Record = Annotated[
    MetricsRecord
    | ProgressRecord
    | StatusRecord
    | EarlyExitRecord
    | ResumedRecord
    | CheckpointGoneRecord
    | AlertRecord
    | LogRecord,
    Field(discriminator="kind"),
]


class RecordBatch(Wire):
    """POST task/records: in order, at most 1,000 records or 4 MB; all of one stream."""

    stream: Literal["metrics", "logs"]
    records: list[Record] = Field(fail_fast=True)


class RefusedRecord(Wire):
    """A record the master will not take (bad group name, too large …): raised in the trial's next call."""

    seq: int
    code: str
    message: str


class RecordAck(Wire):
    """Committed up to `acked`. Records that can never be taken are named, once, in `refused`."""

    acked: int
    refused: list[RefusedRecord] = []


class PreemptReply(Wire):
    """GET task/preempt?timeout_seconds=N (long poll; returns at once when the signal is on)."""

    preempt: bool
    reason: Literal["", "stop", "pause", "preempt", "cancel", "drain"] = ""


class Arrival(Wire):
    """POST task/rendezvous: a node of a trial over several is there, and waits for the others."""

    node: int = Field(ge=0)
    """Its place in the order of nodes (`container_rank`); 0 is the chief."""
    number: int = Field(1, ge=1)
    """Which meeting of this attempt it comes to: each start of a launcher is one."""
    port: int = Field(0, ge=0, lt=65536)
    """Of the chief: where torchrun's processes meet."""
    messages_port: int = Field(0, ge=0, lt=65536)
    """Of the chief: where ranks send `core_context.distributed` messages."""
    key: str = Field("", max_length=128, pattern="^[0-9a-f]*$")
    """Of the chief: the secret of this trial's ranks, hexadecimal."""
    machine: str = Field("", max_length=128)
    """Identifies the machine: two machines cannot both be reached at 127.0.0.1."""
    address: str = Field("", max_length=253, pattern=r"^[A-Za-z0-9_.:%-]*$")
    """Where the other nodes reach this one, if it is known there alone (a pod's address); "": its agent's address."""


class Rendezvous(Wire):
    """The answer to `Arrival`. Slots of the nodes are in `ClusterInfoWire`."""

    ready: bool = False
    missing: list[str] = []
    """Agents whose node is not there yet."""
    port: int = 0
    messages_port: int = 0
    key: str = ""
    addresses: list[str] = []
    """Of all nodes, in their order, once they are there."""


class RankSign(Wire):
    """How a rank stands, as its node's launcher sees it; times in seconds."""

    rank: int = Field(ge=0)
    state: Literal["inside", "detlab", "user"]
    """Inside an operation with other ranks, in code of detlab, or with the user."""
    since: float = Field(ge=0, allow_inf_nan=False)
    still: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Time in which it has neither computed, read nor written more than a trace."""
    silent: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Time since its last heartbeat."""
    operation: str = Field("", max_length=100)
    where: str | None = Field(None, max_length=300)
    host: str = Field("", max_length=200)
    pid: int = 0
    node: str = Field("", max_length=128)
    """Its agent."""
    phase: str = Field("", max_length=20)
    """What its training loop does; empty where the rank is in none."""
    batch: int = Field(0, ge=0)
    """Batches that the loop has completed."""
    idle: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Time without progress of the loop."""
    limit: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Time without progress that counts as a hang of the loop."""
    age: float = 0.0
    """In answers: time since this was reported."""


class RankSigns(Wire):
    """POST task/ranks: how the ranks of one node stand. Nothing of it is kept."""

    node: int = Field(ge=0)
    """Its place in the order of nodes."""
    signs: list[RankSign] = Field([], max_length=256)


class OtherRanks(Wire):
    """The answer to `RankSigns`: what the other nodes of the attempt said last."""

    signs: list[RankSign] = []


class CommitCheckpoint(Wire):
    """POST task/checkpoints: the files are uploaded and their manifest is written; make it a checkpoint."""

    uuid: str
    steps_completed: int
    metadata: dict[str, Any] = {}
    files: dict[str, CheckpointFile]
    manifest_digest: str
    environment: dict[str, str] = {}
    """Packages that are installed where it was saved, name -> version, with `python` and `platform`; older harnesses
    send none."""


class BestValidationReply(Wire):
    """GET task/best-validation: the best searcher metric of the experiment so far, or None."""

    value: float | None = None


class StorageCredentials(Wire):
    """GET task/storage-credentials: short-lived credentials for the task's own checkpoint storage."""

    values: dict[str, str] = Field(default={}, repr=False)
    """As obstore's client takes them, by type of storage; empty: the task uses its config's, or its node's."""
    expires_at: float | None = None
    """Seconds since the epoch; None: they do not expire."""


class PointReply(Wire):
    """POST task/point: the hyperparameters of a trial, which are drawn for the first that asks."""

    ready: bool = False
    """Whether they are drawn; if not, ask again."""
    hparams: dict[str, Any] = {}


class CertificateRequest(Wire):
    """POST task/certificate: a server on another node wants its certificate."""

    address: str = Field(max_length=253)
    """Where it is reached."""


class CertificateReply(Wire):
    """For that address alone, with a new key; both PEM."""

    certificate: str
    key: str = Field(repr=False)


class TokenReply(Wire):
    """POST task/token: a fresh task token; the old one works until it expires."""

    token: str
    expires_at: float
    life: float | None = None
    """Seconds from now until then, for nodes whose clock differs; older masters do not send it."""
