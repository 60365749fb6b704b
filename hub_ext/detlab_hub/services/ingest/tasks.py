"""Requests of a running task to the master: store records, poll for preemption, commit checkpoints."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Any, Self

from sqlalchemy.orm import Session

from detlab.errors import Conflict, DetlabError, Forbidden, Unavailable
from detlab.schemas.checkpoint_ids import made_for
from detlab.schemas.runtimes import ADDRESS_LATER
from detlab.schemas.wire import (
    Arrival,
    BestValidationReply,
    CertificateReply,
    CheckpointView,
    CommitCheckpoint,
    OtherRanks,
    PointReply,
    PreemptReply,
    RankSigns,
    RecordAck,
    RecordBatch,
    Rendezvous,
    StorageCredentials,
    TokenReply,
)
from detlab.schemas.wire.governance.evidence import METADATA_KEY, VerificationReply, VerifyCheckpoint
from detlab_hub.core.lifecycle.allocation import AllocationStarted, LeaveAcknowledged
from detlab_hub.core.rights import Action, ObjectKind, Right, Thing, may, right_of
from detlab_hub.services.admission import log_rate
from detlab_hub.services.admission.storage_quotas import StorageWarnings
from detlab_hub.services.alerts.of_lines import LineRules
from detlab_hub.services.base.access import no_such, who_is
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.fencing import current_attempt, current_holder
from detlab_hub.services.base.threads import TooSlow, user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.services.base.warm_start import is_source
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.archives import ArchiveContents
from detlab_hub.services.checkpoints.checkpoints import located, opened_file, opened_manifest
from detlab_hub.services.checkpoints.manifests import check_commit, check_metadata
from detlab_hub.services.checkpoints.removals import DELETED, announce, begin_removal, check_unneeded
from detlab_hub.services.checkpoints.stores import OpenStore, StoreOperation, opened_by_master
from detlab_hub.services.failures import cards
from detlab_hub.services.governance.evidence import LedgerMovedError, SignedEntry, SignedEvidence, keep
from detlab_hub.services.ingest import points, records, rendezvous, storage_credentials
from detlab_hub.services.ingest.rank_states import RankStates
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.lifecycle.launching import has_certificate
from detlab_hub.services.lifecycle.rows import graces_of
from detlab_hub.services.lifecycle.transitions import tell_checkpoint
from detlab_hub.services.logs.matching import PolicyMatcher
from detlab_hub.services.views import experiment_views
from detlab_hub.store.queries import checkpoints, tokens
from detlab_hub.store.queries.registry import environments
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, TaskRow, TrialRow

_log = logging.getLogger(__name__)
MAX_WAIT = 300.0
_TRIES = 3
"""To sign evidence, if the trial's ledger grows meanwhile."""


class Tasks(Service):
    """The task API."""

    def __init__(
        self, context: ServiceContext, policies: PolicyMatcher, lines: LineRules, evidence: SignedEvidence
    ) -> None:
        super().__init__(context)
        self._policies = policies
        self._lines = lines
        self._evidence = evidence
        self._rank_states = RankStates(context)
        self._storage_warnings = StorageWarnings(context)

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[PolicyMatcher], services[LineRules], services[SignedEvidence])

    async def records(self, task: TaskCaller, batch: RecordBatch, node: int = 0) -> RecordAck:
        """Take a batch of records of one of the task's nodes; what is acknowledged is committed.

        Raises:
            StaleAttempt: The attempt is over.
        """
        batch = await log_rate.thinned(self._context, task.allocation_id, batch, node)
        found = await self._policies.match(task.allocation_id, batch, lambda s: current_holder(s, task))
        lines = await self._lines.match(task.allocation_id, batch, lambda s: current_holder(s, task))
        ack = await self._context.write(lambda unit: records.take(unit, task, batch, node, found, lines))
        self._policies.written(task.allocation_id, found)
        return ack

    async def preempt(self, task: TaskCaller, timeout: float) -> PreemptReply:
        """Whether the task should leave; waits up to `timeout` seconds for that to become so.

        Raises:
            StaleAttempt: The attempt is over.
        """
        with self._context.wakeups.listen(("allocation", task.allocation_id)) as event:
            reply = await self._context.read(lambda s: _preempt_state(s, task))
            if reply.preempt or timeout <= 0:
                return reply
            await wait_until(event, min(timeout, MAX_WAIT))
        return await self._context.read(lambda s: _preempt_state(s, task))

    async def leave_soon(self, task: TaskCaller) -> None:
        """Preempt the trial: it saves and leaves before its batch system ends it, and runs again by a new attempt.

        Raises:
            StaleAttempt: The attempt is over.
        """

        def leave(unit: UnitOfWork) -> None:
            row, _ = current_attempt(unit.session, task)
            unit.holder(row).time_limit_comes(unit, row)

        await self._context.write(leave)

    async def rendezvous(self, task: TaskCaller, arrival: Arrival, timeout: float) -> Rendezvous:
        """Record that a node has arrived, and wait for the others.

        Args:
            task: The attempt.
            arrival: The node, and where it listens.
            timeout: Seconds to wait at most.

        Raises:
            Conflict: The attempt has no such node, or its nodes cannot reach each other.
            StaleAttempt: The attempt is over.
        """
        with self._context.wakeups.listen(("allocation", task.allocation_id)) as event:
            reply = await self._context.write(lambda unit: rendezvous.arrive(unit, task, arrival))
            if reply.ready or timeout <= 0:
                return reply
            await wait_until(event, min(timeout, MAX_WAIT))
        return await self._context.read(lambda s: rendezvous.read(s, task, arrival.number))

    async def point(self, task: TaskCaller, timeout: float) -> PointReply:
        """Return the trial's hyperparameters, drawn now if it has none; wait up to `timeout` seconds for them.

        Raises:
            StaleAttempt: The attempt is over.
        """
        with self._context.wakeups.listen(("allocation", task.allocation_id)) as event:
            reply = await self._context.read(lambda s: points.read(s, task))
            if not reply.ready:
                reply = await self._context.write(lambda unit: points.ask(unit, task))
            if reply.ready or timeout <= 0:
                return reply
            await wait_until(event, min(timeout, MAX_WAIT))
        return await self._context.read(lambda s: points.read(s, task))

    async def ranks(self, task: TaskCaller, told: RankSigns) -> OtherRanks:
        """Take the state of a node's ranks, and return that of the others; see `RankStates.exchange`."""
        return await self._rank_states.exchange(task, told)

    async def certificate(self, task: TaskCaller, address: str) -> CertificateReply:
        """Make the certificate of a server whose address was not known when it was launched.

        Raises:
            Conflict: It has none coming, or its agent has not said yet that it is reached there: a task gets none for
                an address at which others are reached.
            NoCertificate: None can be made.
            StaleAttempt: The attempt is over.
        """

        def check(s: Session) -> None:
            row, holder = current_holder(s, task)
            if not isinstance(holder, TaskRow) or row.runtime not in ADDRESS_LATER or authority is None:
                raise Conflict(f"task {row.id} has no certificate coming")
            if row.address != address or not has_certificate(holder, row):
                raise Conflict(f"the agent of task {row.id} has not said that it is reached at {address} by TLS")

        authority = self._context.settings.server_authority
        await self._context.read(check)
        assert authority is not None
        certificate, key = await asyncio.to_thread(authority.issue, address)
        return CertificateReply(certificate=certificate, key=key)

    async def ack_preempt(self, task: TaskCaller) -> None:
        """Record that the task will checkpoint and exit 0; without this, exit code 0 means that it is done.

        Raises:
            StaleAttempt: The attempt is over.
        """

        def ack(unit: UnitOfWork) -> None:
            row, trial = current_attempt(unit.session, task)
            experiment = unit.experiment(trial.experiment_id)
            graces = graces_of(experiment.config, unit.settings)
            apply_allocation(unit, row, LeaveAcknowledged(unit.now, graces))

        await self._context.write(ack)

    # --- checkpoints

    async def commit_checkpoint(self, task: TaskCaller, commit: CommitCheckpoint) -> CheckpointView:
        """Make what was uploaded a checkpoint. Committing the same again changes nothing.

        Raises:
            CheckpointError: The manifest is not valid, or the files that it names have other sizes.
            Conflict: The uuid is taken by another checkpoint.
            Forbidden: The harness of another trial made the uuid.
            StaleAttempt: The attempt is over.
        """
        size = check_commit(commit, self._context.settings.checkpoint_file_limit)
        await self._check_sizes(task, commit)
        view = await self._committed(task, commit, size)
        try:
            await self._storage_warnings.after_commit(task)
        except DetlabError as error:  # it is committed: a warning that fails must not have it sent again
            _log.warning("trial %s: its quotas of storage were not looked at: %s", task.trial_id, error.message)
        return view

    async def _committed(self, task: TaskCaller, commit: CommitCheckpoint, size: int) -> CheckpointView:
        """Commit, with the evidence of a governed checkpoint, which is signed before the transaction."""
        for _ in range(_TRIES):
            signed = await self._evidence.signed(task, commit)
            try:
                return await self._context.write(partial(_commit, task=task, commit=commit, size=size, signed=signed))
            except LedgerMovedError:
                continue
        raise Unavailable(f"the ledger of trial {task.trial_id} changes all the time")

    async def verify_checkpoint(self, task: TaskCaller, uuid: str, request: VerifyCheckpoint) -> VerificationReply:
        """Say whether the task's policy allows to go on from a checkpoint that it may read.

        Raises:
            Conflict: The trial's matrix is not recorded.
            NotFound: There is no such checkpoint that this task may read.
            StaleAttempt: The attempt is over.
        """
        await self.get_checkpoint(task, uuid)
        return await self._evidence.verify(task, uuid, request)

    async def _check_sizes(self, task: TaskCaller, commit: CommitCheckpoint) -> None:
        """Compare the manifest with the files, where the master opens their store and it answers in time.

        Elsewhere the manifest counts, which the trial has made of what it has read back.
        """
        storage = await self._context.read(lambda s: _storage_of(s, task))
        store = opened_by_master(StoreOperation.COMMIT, storage, self._context.settings.cluster_stores)
        if store is None or not made_for(commit.uuid, task.trial_id or 0):  # the latter is refused, without its sizes
            return
        sizes = {path: entry.size for path, entry in commit.files.items()}
        try:
            await self._context.workers.looks.run(
                user_of(task),
                files.check_sizes,
                store,
                commit.uuid,
                sizes,
                wanted=lambda: self._context.read(lambda s: current_attempt(s, task)),
            )
        except TooSlow as error:
            _log.warning("checkpoint %s: its files were not looked at: %s", commit.uuid, error.message)

    async def get_checkpoint(self, task: TaskCaller, uuid: str) -> CheckpointView:
        """Return a checkpoint of the task's experiment, or of its warm-start source.

        Raises:
            NotFound: There is no such checkpoint that this task may read.
        """

        return await self._context.read(lambda s: experiment_views.checkpoint_view(s, _readable(s, task, uuid)))

    async def open_checkpoint_file(self, task: TaskCaller, uuid: str, digest: str) -> ArchiveContents:
        """Open a file of a checkpoint that the task may read, or its manifest, by digest.

        The files of another user's checkpoint belong to that user: the task's own cannot open them.

        Raises:
            NotFound: There is no such checkpoint that this task may read, or it has no such file.
            StaleAttempt: The attempt is over.
            StorageError: The master cannot open its storage either.
            CheckpointError: It is not what was committed.
        """

        def find(s: Session) -> tuple[CheckpointRow, OpenStore, int | None]:
            current_attempt(s, task)
            return located(s, self._context, _readable(s, task, uuid))

        row, store, uid = await self._context.read(find)
        if digest == row.manifest_digest:
            return await opened_manifest(self._context, user_of(task), row, store, uid)
        return await opened_file(self._context, user_of(task), row, store, uid, digest)

    async def delete_checkpoint(self, task: TaskCaller, uuid: str) -> None:
        """Mark a checkpoint of the task's own trial as deleted, whose files it removes; again changes nothing.

        One in the trash cannot be restored any more from then on.

        Raises:
            Conflict: Something other than this trial's own going on pins it; all that does is listed.
            NotFound: This trial has no such checkpoint.
            StaleAttempt: The attempt is over.
        """

        def delete(unit: UnitOfWork) -> None:
            _, trial = current_attempt(unit.session, task)
            row = unit.session.get(CheckpointRow, uuid)
            if row is None or not may(
                who_is(task), Action.ATTEMPT_DELETE_CHECKPOINT, _as_seen(unit.session, task, row)
            ):
                raise no_such(f"this trial has no checkpoint {uuid[:80]}", exists=row is not None)
            if row.state == DELETED:
                begin_removal(unit, row)
                return
            check_unneeded(unit, row, resumed_by=trial.id)
            row.state = DELETED
            unit.session.flush()
            newest = checkpoints.latest(unit.session, trial.id)
            trial.latest_checkpoint = None if newest is None else newest.uuid
            announce(unit, row)
            unit.changed_trial(trial)

        await self._context.write(delete)

    # --- metadata, best validation, token

    async def get_metadata(self, task: TaskCaller) -> dict[str, Any]:
        """Return the trial's metadata."""
        return await self._context.read(lambda s: current_attempt(s, task)[1].metadata_)

    async def put_metadata(self, task: TaskCaller, metadata: dict[str, Any]) -> None:
        """Replace the trial's metadata.

        Raises:
            CheckpointError: It is over 1 MiB.
            StaleAttempt: The attempt is over.
        """
        check_metadata(metadata)

        def put(unit: UnitOfWork) -> None:
            _, trial = current_attempt(unit.session, task)
            trial.metadata_ = metadata
            unit.changed_trial(trial)

        await self._context.write(put)

    async def best_validation(self, task: TaskCaller) -> BestValidationReply:
        """Return the best searcher metric of the experiment so far."""

        def best(s: Session) -> BestValidationReply:
            experiment = s.get(ExperimentRow, task.experiment_id)
            return BestValidationReply(value=None if experiment is None else experiment.best_value)

        return await self._context.read(best)

    async def storage_credentials(self, task: TaskCaller) -> StorageCredentials:
        """Return short-lived credentials for the trial's own storage; see `storage_credentials.for_task`.

        Raises:
            StaleAttempt: The attempt is over.
            Unavailable: They cannot be had now.
        """
        return await storage_credentials.for_task(self._context, task)

    async def renew_token(self, task: TaskCaller) -> TokenReply:
        """Make a fresh task token; the old one works until it expires.

        Raises:
            StaleAttempt: The attempt is over.
        """

        def renew(unit: UnitOfWork) -> TokenReply:
            current_holder(unit.session, task)
            expires_at = unit.now + unit.settings.task_token_ttl
            token = tokens.issue(unit.session, "task", task.allocation_id, expires_at, unit.now)
            tokens.extend_runs(unit.session, [task.allocation_id], expires_at)
            return TokenReply(token=token, expires_at=expires_at, life=unit.settings.task_token_ttl)

        return await self._context.write(renew)


_TOLD = frozenset({"stop", "pause", "preempt", "cancel", "drain"})
"""The reasons that a harness of any version knows; it would refuse an answer with another one."""


def _preempt_state(s: Session, task: TaskCaller) -> PreemptReply:
    row, _ = current_holder(s, task)
    if row.preempt_reason is None:
        return PreemptReply(preempt=False)
    # What is to be done is the same for all that came later: save, leave, and go on elsewhere.
    reason = row.preempt_reason if row.preempt_reason in _TOLD else "drain"
    return PreemptReply.model_validate({"preempt": True, "reason": reason})


def _readable(s: Session, task: TaskCaller, uuid: str) -> CheckpointRow:
    row = s.get(CheckpointRow, uuid)
    if row is None or row.state != "COMPLETED" or right_of(who_is(task), _as_seen(s, task, row)) < Right.READ:
        raise no_such(f"there is no checkpoint {uuid[:80]} for this trial", exists=row is not None)
    return row


def _as_seen(s: Session, task: TaskCaller, row: CheckpointRow) -> Thing:
    """Return a checkpoint as the table of rights knows it, to a task."""
    thing = Thing(ObjectKind.CHECKPOINT, experiment_id=row.experiment_id, trial_id=row.trial_id)
    if row.experiment_id != task.experiment_id:
        mine = s.get(ExperimentRow, task.experiment_id)
        # Whether the owner may read the source was checked at submission; ids are never used again.
        if (
            mine is not None
            and is_source(mine.config, row.uuid, row.trial_id)
            and s.get(ExperimentRow, row.experiment_id) is not None
        ):
            thing = replace(thing, source_of=(mine.id,))
    return thing


def _storage_of(s: Session, task: TaskCaller) -> dict[str, Any]:
    experiment = s.get(ExperimentRow, task.experiment_id)
    return {} if experiment is None else experiment.config.get("checkpoint_storage") or {}


def _warn_ungoverned(unit: UnitOfWork, experiment: ExperimentRow, trial: TrialRow) -> None:
    if cards.UNGOVERNED not in trial.warnings:
        trial.warnings = [*trial.warnings, cards.UNGOVERNED]
        experiment.warnings = cards.with_warning(experiment.warnings, f"trial {trial.id}: {cards.UNGOVERNED}")


def _commit(
    unit: UnitOfWork, task: TaskCaller, commit: CommitCheckpoint, size: int, signed: SignedEntry | None
) -> CheckpointView:
    row, trial = current_attempt(unit.session, task)
    if not made_for(commit.uuid, trial.id):
        # Its files may be another's, stored and not committed yet, or another program's: who commits them could have
        # that trial's commit refused, and could have them removed.
        raise Forbidden(
            f"the id of checkpoint {commit.uuid} was not made for trial {trial.id}, which cannot commit it",
            hint="Store a copy with core_context.checkpoint.upload(), which makes an id of this trial; if it was that"
            " which was called, the image of the task has an older detlab: update it.",
        )
    apply_allocation(unit, row, AllocationStarted())
    known = unit.session.get(CheckpointRow, commit.uuid)
    if known is not None:
        same = known.trial_id == trial.id and known.manifest_digest == commit.manifest_digest
        if not same or known.state != "COMPLETED":
            raise Conflict(f"checkpoint {commit.uuid} exists already, with other content")
        return experiment_views.checkpoint_view(unit.session, known)
    experiment = unit.experiment(trial.experiment_id)
    made = CheckpointRow(
        uuid=commit.uuid,
        trial_id=trial.id,
        experiment_id=experiment.id,
        run=row.run,
        steps_completed=commit.steps_completed,
        state="COMPLETED",
        created_at=unit.now,
        size=size,
        files={path: entry.model_dump() for path, entry in commit.files.items()},
        metadata_=commit.metadata,
        storage=experiment.config.get("checkpoint_storage") or {},
        manifest_digest=commit.manifest_digest,
        environment=environments.note(unit.session, commit.environment),
    )
    unit.session.add(made)
    unit.session.flush()
    if signed is not None:
        keep(unit, made, signed)
    elif experiment.config.get("governance") and METADATA_KEY not in commit.metadata:
        _warn_ungoverned(unit, experiment, trial)
    newest = checkpoints.latest(unit.session, trial.id)
    trial.latest_checkpoint = None if newest is None else newest.uuid
    unit.outbox.saved_allocations.add(row.id)
    tell_checkpoint(unit, experiment, trial, made)
    view = announce(unit, made)
    unit.changed_trial(trial)
    unit.changed_experiment(experiment.id)
    return view
