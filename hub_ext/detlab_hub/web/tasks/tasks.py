"""Routes of tasks: a trial's reports and requests, by the token of its current run (I3)."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, RootModel

from detlab.schemas.taskwire import (
    ExpectedPage,
    ExpectedQuery,
    ReadingView,
    StorageCheckView,
    StoredPage,
    StoredVerdicts,
)
from detlab.schemas.wire import (
    Arrival,
    BestValidationReply,
    CertificateReply,
    CertificateRequest,
    CheckpointView,
    CommitCheckpoint,
    OtherRanks,
    PointReply,
    PreemptReply,
    RankSigns,
    RecordAck,
    RecordBatch,
    Rendezvous,
    SearchAnswer,
    SearchAnswerReply,
    SearchFeed,
    StorageCredentials,
    TokenReply,
    Wire,
)
from detlab.schemas.wire.governance.attestation import PreflightReply, PreflightReport
from detlab.schemas.wire.governance.evidence import RecordMatrix, VerificationReply, VerifyCheckpoint
from detlab.schemas.wire.storage import CollectList, CollectReport
from detlab_hub.core.rights import Action
from detlab_hub.services.governance.evidence import SignedEvidence
from detlab_hub.services.governance.preflights import Preflights
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.usertasks.checking_tasks import CheckingTasks
from detlab_hub.services.usertasks.collection_tasks import CollectionTasks
from detlab_hub.services.usertasks.reading_tasks import ReadingTasks
from detlab_hub.services.usertasks.search_tasks import SearchTasks
from detlab_hub.web.base import Guarded
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class PreemptQuery(Wire):
    """How long to wait for the signal."""

    timeout_seconds: float = Field(60.0, ge=0, le=600)


class FeedQuery(Wire):
    """Which events, and how long to wait for one."""

    after: int = Field(0, ge=0, le=10**9)
    """Only events with a greater number."""
    timeout_seconds: float = Field(20.0, ge=0, le=600)


class RecordsQuery(Wire):
    """Which of the attempt's nodes the records are of."""

    node: int = Field(0, ge=0, le=1_000_000)


class RendezvousQuery(Wire):
    """How long to wait for the other nodes, or for hyperparameters."""

    timeout_seconds: float = Field(20.0, ge=0, le=600)


class Metadata(RootModel[dict[str, Any]]):
    """The trial's own notes: any JSON object."""

    model_config = ConfigDict(ser_json_inf_nan="strings")


class TaskRoute(Guarded):
    """Base of the task routes: tokens only."""


@route("task/records", often=True)
class Records(TaskRoute):
    """Metrics, progress, status and log lines."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT)
    async def post(self, body: RecordBatch, query: RecordsQuery) -> RecordAck:
        """Take records in order; those seen before are skipped. Each node of an attempt counts its own."""
        return await self.services[Tasks].records(self.task, body, query.node)


@route("task/preempt", often=True)
class Preempt(TaskRoute):
    """The preemption signal."""

    @needs("task", cross_site="token")
    async def get(self, query: PreemptQuery) -> PreemptReply:
        """Wait for the preemption signal (long poll); reply immediately when it is set."""
        return await self.services[Tasks].preempt(self.task, query.timeout_seconds)

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT, status=204)
    async def post(self) -> None:
        """Have the signal set for this trial, because the batch system that runs it will end it soon."""
        await self.services[Tasks].leave_soon(self.task)


@route("task/preempt/ack")
class PreemptAck(TaskRoute):
    """Its acknowledgement."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT, status=204)
    async def post(self) -> None:
        """Say that the task has seen the signal and is saving."""
        await self.services[Tasks].ack_preempt(self.task)


@route("task/search")
class CustomSearch(TaskRoute):
    """The events of a custom search, for the task that runs its class."""

    @needs("task", cross_site="token")
    async def get(self, query: FeedQuery) -> SearchFeed:
        """List the events after a number (long poll); reply immediately when there are some, or the search is over."""
        return await self.services[SearchTasks].feed(self.task, query.after, query.timeout_seconds)

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT)
    async def post(self, body: SearchAnswer) -> SearchAnswerReply:
        """Answer the next event with operations, or say why there is no answer; the same answer twice counts once."""
        return await self.services[SearchTasks].answer(self.task, body)


@route("task/collection")
class Collection(TaskRoute):
    """The checkpoints that a task of the master's is to remove."""

    @needs("task", cross_site="token")
    async def get(self) -> CollectList:
        """List checkpoints that this task is to remove now; from then on they cannot be restored."""
        return await self.services[CollectionTasks].list(self.task)

    @needs("task", cross_site="token", action=Action.ATTEMPT_COLLECT)
    async def post(self, body: CollectReport) -> CollectList:
        """Report checkpoints whose files are gone, or why not, and list what is left; the same twice counts once."""
        return await self.services[CollectionTasks].report(self.task, body)


@route("task/rendezvous")
class Meeting(TaskRoute):
    """The rendezvous of an attempt's nodes."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_MEET)
    async def post(self, body: Arrival, query: RendezvousQuery) -> Rendezvous:
        """Report that a node has arrived, and wait for the others (long poll); reply immediately when all have."""
        return await self.services[Tasks].rendezvous(self.task, body, query.timeout_seconds)


@route("task/point")
class Point(TaskRoute):
    """The hyperparameters of a trial that was launched without."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_MEET)
    async def post(self, query: RendezvousQuery) -> PointReply:
        """Return the trial's hyperparameters; if it has none, have them drawn, and wait for them (long poll)."""
        return await self.services[Tasks].point(self.task, query.timeout_seconds)


@route("task/certificate")
class Certificate(TaskRoute):
    """The certificate of a server whose address was not known when it was launched."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_MEET)
    async def post(self, body: CertificateRequest) -> CertificateReply:
        """Return a certificate for the address at which the task's agent has said that it is reached."""
        self.set_header("Cache-Control", "no-store")
        return await self.services[Tasks].certificate(self.task, body.address)


@route("task/ranks")
class Ranks(TaskRoute):
    """The states of ranks."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_MEET)
    async def post(self, body: RankSigns) -> OtherRanks:
        """Report the states of one node's ranks, and return those of the other nodes' ranks."""
        return await self.services[Tasks].ranks(self.task, body)


@route("task/checkpoints")
class Checkpoints(TaskRoute):
    """Committing."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_COMMIT)
    async def post(self, body: CommitCheckpoint) -> CheckpointView:
        """Commit an uploaded checkpoint by its manifest."""
        return await self.services[Tasks].commit_checkpoint(self.task, body)


@route("task/checkpoints/{uuid}")
class Checkpoint(TaskRoute):
    """One checkpoint, as a task may see it."""

    @needs("task", cross_site="token")
    async def get(self, uuid: str) -> CheckpointView:
        """Return a checkpoint of the own experiment, or the warm start's source."""
        return await self.services[Tasks].get_checkpoint(self.task, uuid)

    @needs("task", cross_site="token", action=Action.ATTEMPT_DELETE_CHECKPOINT, status=204)
    async def delete(self, uuid: str) -> None:
        """Delete a checkpoint of the own trial."""
        await self.services[Tasks].delete_checkpoint(self.task, uuid)


@route("task/checkpoints/{uuid}/files/{digest}")
class CheckpointFileOfTask(Download):
    """A file of a checkpoint that the task itself cannot open."""

    @needs("task", cross_site="token", media="application/octet-stream")
    async def get(self, uuid: str, digest: str) -> None:
        """Send a file by its digest, or the manifest by its own: of the own experiment, or the warm start's source."""
        opening = self.services[Tasks].open_checkpoint_file(self.task, uuid, digest)
        await self.send_contents(opening, "application/octet-stream")


@route("task/checkpoints/{uuid}/verification")
class Verification(TaskRoute):
    """Evidence of a checkpoint."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_GOVERN)
    async def post(self, uuid: str, body: VerifyCheckpoint) -> VerificationReply:
        """Say whether the trial's policy allows to go on from a checkpoint; what follows is in its ledger."""
        return await self.services[Tasks].verify_checkpoint(self.task, uuid, body)


@route("task/governance/matrix")
class TrialMatrix(TaskRoute):
    """What each source may train in the trial."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_GOVERN, status=204)
    async def put(self, body: RecordMatrix) -> None:
        """Record the matrix of the trial's policy and model, which its checkpoints name by hash."""
        await self.services[SignedEvidence].record_matrix(self.task, body)


@route("task/governance/preflight")
class TrialPreflight(TaskRoute):
    """What the trial found before its first step."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_GOVERN)
    async def put(self, body: PreflightReport) -> PreflightReply:
        """Say whether the trial may train where it was placed, by what it has loaded and what its nodes attest."""
        return await self.services[Preflights].report(self.task, body)


@route("task/metadata")
class TrialMetadata(TaskRoute):
    """The trial's notes."""

    @needs("task", cross_site="token")
    async def get(self) -> Metadata:
        """Return the trial's notes."""
        return Metadata(await self.services[Tasks].get_metadata(self.task))

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT)
    async def put(self, body: Metadata) -> Metadata:
        """Replace the trial's notes."""
        await self.services[Tasks].put_metadata(self.task, body.root)
        return body


@route("task/best-validation")
class BestValidation(TaskRoute):
    """The experiment's best."""

    @needs("task", cross_site="token")
    async def get(self) -> BestValidationReply:
        """Return the best searcher metric of the experiment so far."""
        return await self.services[Tasks].best_validation(self.task)


@route("task/checkpoint")
class Reading(TaskRoute):
    """What the task reads for its owner."""

    @needs("task", cross_site="token")
    async def get(self) -> ReadingView:
        """Return the checkpoint that this task reads for its owner, with the storage's block as its owner wrote it."""
        self.set_header("Cache-Control", "no-store")
        return await self.services[ReadingTasks].get(self.task)


@route("task/storage-check")
class StorageCheck(TaskRoute):
    """What the task compares with what the master knows."""

    @needs("task", cross_site="token")
    async def get(self) -> StorageCheckView:
        """Return the storages that this task looks into for its owner, with their keys as their owner wrote them."""
        self.set_header("Cache-Control", "no-store")
        return await self.services[CheckingTasks].get(self.task)

    @needs("task", cross_site="token", action=Action.ATTEMPT_COLLECT)
    async def post(self, body: StoredPage) -> StoredVerdicts:
        """Return what the master knows of checkpoints that lie in a storage; nothing changes."""
        return await self.services[CheckingTasks].verdicts(self.task, body)


@route("task/storage-check/expected")
class StorageExpected(TaskRoute):
    """What is to be in a storage."""

    @needs("task", cross_site="token")
    async def get(self, query: ExpectedQuery) -> ExpectedPage:
        """Return checkpoints of the task's owner that are to be in one of the storages that it compares."""
        return await self.services[CheckingTasks].expected(self.task, query)


@route("task/storage-credentials")
class Credentials(TaskRoute):
    """Short-lived credentials of the checkpoint storage."""

    @needs("task", cross_site="token")
    async def get(self) -> StorageCredentials:
        """Return short-lived credentials for the trial's own checkpoint storage, if the operator gives any."""
        self.set_header("Cache-Control", "no-store")
        return await self.services[Tasks].storage_credentials(self.task)


@route("task/token")
class Token(TaskRoute):
    """Renewal."""

    @needs("task", cross_site="token", action=Action.ATTEMPT_RENEW)
    async def post(self) -> TokenReply:
        """Return a fresh task token; the old one works until it expires."""
        return await self.services[Tasks].renew_token(self.task)
