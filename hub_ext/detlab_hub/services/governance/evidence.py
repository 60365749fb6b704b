"""Evidence of checkpoints: signed when they are committed, verified before a trial goes on from one."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import json
from typing import Any, Self

from pydantic import ValidationError
from sqlalchemy.orm import Session

from detlab.errors import CheckpointError, Conflict, Unavailable
from detlab.governance import GovernanceError, Policy, Refusal
from detlab.governance.evidence import (
    CHECKPOINT_PREDICATE,
    ENTRY_PREDICATE,
    FORMAT,
    ed25519_check,
    envelope,
    statement,
)
from detlab.governance.ledger import FORK, REFUSED, SEGMENT, TRANSITION, LedgerEntry, MatrixRecord, newest_state
from detlab.governance.verification import (
    Continuation,
    StoredEvidence,
    entry_name,
    taint_after,
    verify,
)
from detlab.schemas.wire import CommitCheckpoint
from detlab.schemas.wire.governance.evidence import (
    METADATA_KEY,
    GovernedSegment,
    RecordMatrix,
    RefusalView,
    VerificationReply,
    VerifyCheckpoint,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.configs.withdrawn import WithdrawnSources, manifests_of
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.failures.diagnosis import REFUSED_COMMIT
from detlab_hub.services.governance import preflights
from detlab_hub.services.governance.keys import Signer, SigningKeys, public_keys
from detlab_hub.store.queries.registry import evidence as governance
from detlab_hub.store.tables import CheckpointRow, EvidenceRow, ExperimentRow, LedgerRow, MatrixRow, TrialRow

MATRIX_BYTES = 2 * 1024 * 1024
MATRICES_PER_TRIAL = 16
_TRIES = 3
_OF_SEGMENT = (
    "first_step",
    "counts",
    "order",
    "roster",
    "world_size",
    "level",
    "canaries",
    "versions",
    "privacy",
    "profile",
)


class LedgerMovedError(Exception):
    """Another entry has come into the ledger since this one was signed."""


@dataclasses.dataclass(frozen=True)
class SignedEntry:
    """An entry for the ledger, signed by itself or with its checkpoint."""

    entry: LedgerEntry
    envelope: dict[str, Any] | None


class SignedEvidence(Service):
    """Signs, keeps and verifies."""

    def __init__(self, context: ServiceContext, keys: SigningKeys) -> None:
        super().__init__(context)
        self._keys = keys

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[SigningKeys])

    # --- what trials record

    async def record_matrix(self, task: TaskCaller, request: RecordMatrix) -> None:
        """Keep the matrix of a trial, which its segments name by hash; again changes nothing.

        Raises:
            CheckpointError: It is none, or too large.
            Conflict: The trial has recorded too many.
            StaleAttempt: The attempt is over.
        """
        if len(json.dumps(request.matrix)) > MATRIX_BYTES:
            raise CheckpointError(f"a matrix of over {MATRIX_BYTES} bytes as JSON")
        try:
            matrix = MatrixRecord.of(request.matrix)
        except ValueError as error:
            raise CheckpointError(str(error)) from error

        def record(unit: UnitOfWork) -> None:
            allocation, trial = current_attempt(unit.session, task)
            preflights.begun(unit, allocation, trial.id, matrix.s_hash)
            if unit.session.get(MatrixRow, matrix.s_hash) is not None:
                return
            if governance.matrices_of(unit.session, trial.id) >= MATRICES_PER_TRIAL:
                raise Conflict(f"trial {trial.id} has recorded {MATRICES_PER_TRIAL} matrices, and no trial needs more")
            unit.session.add(MatrixRow(s_hash=matrix.s_hash, body=matrix.body(), trial_id=trial.id, at=unit.now))

        await self._context.write(record)

    async def signed(self, task: TaskCaller, commit: CommitCheckpoint) -> SignedEntry | None:
        """Return the entry of a checkpoint that is about to be committed; None: it is not governed, or has one.

        The signature is made here, outside of the transaction in which `keep` stores it.

        Raises:
            CheckpointError: What the trial says of its training is no segment.
            Conflict: It does not follow from what was recorded.
        """
        if METADATA_KEY not in commit.metadata:
            return None
        now = self._context.clock()
        drafted = await self._context.read(lambda s: _segment(s, task, commit, now))
        if drafted is None:
            return None
        entry, predicate = drafted
        signer = await self._keys.signer()
        predicate = {**predicate, "cluster": self._context.settings.cluster_id, "key_id": signer.id}
        payload = statement(commit.uuid, commit.manifest_digest, CHECKPOINT_PREDICATE, predicate)
        return SignedEntry(entry, await _sign(signer, payload))

    # --- verification

    async def verify(self, task: TaskCaller, uuid: str, request: VerifyCheckpoint) -> VerificationReply:
        """Say whether a trial may go on from a checkpoint that it may read, and record what follows from that.

        Raises:
            Conflict: The trial's matrix is not recorded.
            StaleAttempt: The attempt is over.
        """
        for _ in range(_TRIES):
            try:
                return await self._verified_once(task, uuid, request)
            except LedgerMovedError:
                continue
        raise Unavailable(f"the ledger of trial {task.trial_id} changes all the time")

    async def _verified_once(self, task: TaskCaller, uuid: str, request: VerifyCheckpoint) -> VerificationReply:
        now = self._context.clock()
        found, entry = await self._context.read(lambda s: _judge(s, task, uuid, request, now))
        if entry is None:
            return found
        envelope_ = None
        if entry.kind in (FORK, TRANSITION):
            signer = await self._keys.signer()
            predicate = {"cluster": self._context.settings.cluster_id, "key_id": signer.id, **_plain(entry)}
            envelope_ = await _sign(signer, statement(entry_name(entry), entry.hash, ENTRY_PREDICATE, predicate))

        def record(unit: UnitOfWork) -> None:
            _, trial = current_attempt(unit.session, task)
            append(unit, SignedEntry(entry, envelope_))
            if entry.kind == REFUSED:
                owner = unit.experiment(trial.experiment_id).owner
                said = "; ".join(f"{one.code}: {one.message}" for one in found.refusals)
                audit.note(unit, owner, Action.ATTEMPT_GOVERN, f"checkpoint {uuid}", said)

        await self._context.write(record)
        return found


def keep(unit: UnitOfWork, row: CheckpointRow, signed: SignedEntry) -> None:
    """Store the entry and the evidence of a checkpoint, in the transaction that commits it.

    Raises:
        LedgerMovedError: It must be signed anew.
    """
    append(unit, dataclasses.replace(signed, envelope=None))
    unit.session.add(
        EvidenceRow(
            checkpoint_uuid=row.uuid,
            trial_id=signed.entry.trial_id,
            experiment_id=row.experiment_id,
            steps_completed=row.steps_completed,
            manifest_digest=row.manifest_digest,
            envelope=signed.envelope,
            at=signed.entry.at,
        )
    )


def append(unit: UnitOfWork, signed: SignedEntry) -> None:
    """Add an entry to the ledger.

    Raises:
        LedgerMovedError: It is not the next one any more.
    """
    entry = signed.entry
    if governance.last_index(unit.session, entry.trial_id) != entry.index - 1:
        raise LedgerMovedError
    unit.session.add(
        LedgerRow(
            trial_id=entry.trial_id,
            index=entry.index,
            kind=entry.kind,
            checkpoint_uuid=entry.checkpoint,
            body=dict(entry.body),
            previous=entry.previous,
            at=entry.at,
            hash=entry.hash,
            envelope=signed.envelope,
        )
    )
    unit.session.flush()


async def _sign(signer: Signer, payload: bytes) -> dict[str, Any]:
    signature = await asyncio.to_thread(signer.sign, payload)
    return envelope(payload, signer.id, signature)


def _plain(entry: LedgerEntry) -> dict[str, Any]:
    return {"format": FORMAT, **dataclasses.asdict(entry), "body": dict(entry.body)}


def entries_of(rows: list[LedgerRow]) -> list[LedgerEntry]:
    """Return rows of a ledger as entries."""
    return [
        LedgerEntry(row.trial_id, row.index, row.kind, row.checkpoint_uuid, row.body, row.previous, row.at, row.hash)
        for row in rows
    ]


def _refused(code: str, message: str) -> Conflict:
    return Conflict(
        f"{REFUSED_COMMIT}: {code}: {message}",
        hint="It is not stored: what it was learnt from could not be said.",
        code=f"governance.{code.lower()}",
    )


def _policy(s: Session, task: TaskCaller) -> Policy | None:
    experiment = s.get(ExperimentRow, task.experiment_id)
    block = None if experiment is None else experiment.config.get("governance")
    if block is None:
        return None
    try:
        return Policy.of(block)
    except GovernanceError as error:  # a config that an older master took
        raise _refused("POLICY", error.message) from error


def _segment(
    s: Session, task: TaskCaller, commit: CommitCheckpoint, now: float
) -> tuple[LedgerEntry, dict[str, Any]] | None:
    """Return the entry of a checkpoint, and what is to be signed of it."""
    policy = _policy(s, task)
    if policy is None or governance.evidence(s, commit.uuid) is not None:
        return None
    try:
        segment = GovernedSegment.model_validate(commit.metadata[METADATA_KEY])
    except ValidationError as error:
        raise CheckpointError(f"metadata.{METADATA_KEY} of the checkpoint is no segment: {error}") from error
    _, trial = current_attempt(s, task)
    if segment.policy_hash != policy.policy_hash:
        raise _refused("POLICY", "it was trained under another policy than that of its experiment")
    if said := _privacy_problem(segment, policy):
        raise _refused("POLICY", said)
    before = preflights.passed(s, task, trial.id)
    if before is None:
        raise _refused("ENV", "this attempt has not shown in a pre-flight that its node enforces the policy")
    if s.get(MatrixRow, segment.s_hash) is None:
        raise _refused("POLICY", "the matrix that it was trained under was not recorded")
    entries = entries_of(governance.ledger(s, trial.id))
    parent = _parent(entries, segment, commit.steps_completed)
    total = dict((parent.body if parent else {}).get("total") or {})
    for name, count in segment.counts.items():
        total[name] = total.get(name, 0) + count
    body = {
        **segment.model_dump(mode="json"),
        "step": commit.steps_completed,
        "manifest_digest": commit.manifest_digest,
        "taint": taint_after(parent.body if parent else None, segment.counts, segment.s_hash),
        "total": total,
    }
    entry = LedgerEntry.after(entries[-1] if entries else None, trial.id, SEGMENT, commit.uuid, body, now)
    experiment = s.get(ExperimentRow, trial.experiment_id)
    code = None if experiment is None else experiment.bundle  # it changes only while no attempt runs
    return entry, {**_predicate(entry, policy, trial, task), "preflight": before, "code": code}


def _privacy_problem(segment: GovernedSegment, policy: Policy) -> str:
    """Return why what a trial says of its privacy budget is not what the policy allows; empty: it is."""
    if policy.dp is None:
        return ""
    spent = segment.privacy
    if spent is None or segment.level != "dp":
        return "the policy is at the level dp, and the checkpoint says nothing of what was spent"
    asked = (policy.dp.delta, policy.dp.target_epsilon, policy.dp.max_grad_norm)
    if (spent.delta, spent.target_epsilon, spent.max_grad_norm) != asked:
        return "it was trained with other numbers than those of governance.dp"
    if spent.epsilon > policy.dp.target_epsilon:
        return f"it has spent epsilon {spent.epsilon:g}, and governance.dp allows {policy.dp.target_epsilon:g}"
    return ""


def _predicate(entry: LedgerEntry, policy: Policy, trial: TrialRow, task: TaskCaller) -> dict[str, Any]:
    body = entry.body
    return {
        "format": FORMAT,
        "experiment": trial.experiment_id,
        "trial": trial.id,
        "attempt": task.allocation_id,
        "step": body["step"],
        "parent": body["parent"],
        "policy_hash": policy.policy_hash,
        "s_hash": body["s_hash"],
        "enforce": policy.enforce,
        "sources": [
            {
                "name": one.name,
                "license": one.license,
                "manifest": one.manifest,
                "expires": None if one.expires is None else one.expires.isoformat(),
                "samples": body["total"].get(one.name, 0),
            }
            for one in policy.sources
        ],
        "segment": {key: body[key] for key in _OF_SEGMENT},
        "taint": body["taint"],
        "ledger": {"index": entry.index, "hash": entry.hash},
        "signed_at": entry.at,
    }


def _parent(entries: list[LedgerEntry], segment: GovernedSegment, step: int) -> LedgerEntry | None:
    """Return the entry that a segment continues, None for new weights."""
    if segment.first_step > step:
        raise _refused("CHAIN", f"it ends at batch {step}, before it begins at {segment.first_step}")
    if segment.parent is None:
        if segment.first_step != 0:
            raise _refused("CHAIN", f"it begins at batch {segment.first_step}, with new weights")
        return None
    if newest_state(entries) != segment.parent:
        raise _refused("CHAIN", f"it goes on from checkpoint {segment.parent}, which is not where the ledger stands")
    before = [one for one in entries if one.checkpoint == segment.parent and one.kind in (SEGMENT, TRANSITION)]
    if before[-1].body.get("step") != segment.first_step:
        gap = f"batches {before[-1].body.get('step')} to {segment.first_step}"
        raise _refused("CHAIN", f"{gap} are not recorded")
    return before[-1]


def stored_evidence(s: Session, uuid: str) -> StoredEvidence | None:
    """Return all that is kept of a checkpoint; None if there is neither evidence nor a checkpoint."""
    row, kept = s.get(CheckpointRow, uuid), governance.evidence(s, uuid)
    if row is None and kept is None:
        return None
    trial_id = kept.trial_id if kept is not None else (row.trial_id if row is not None else 0) or 0
    rows = governance.ledger(s, trial_id)
    entries = entries_of(rows)
    hashes = {one for entry in entries for listed in (entry.body.get("taint") or {}).values() for one in listed}
    hashes |= {str(entry.body["s_hash"]) for entry in entries if entry.body.get("s_hash")}
    matrices = {one.s_hash: MatrixRecord.of(one.body) for one in governance.matrices(s, hashes)}
    return StoredEvidence(
        uuid,
        trial_id,
        row.steps_completed if row is not None else kept.steps_completed if kept is not None else 0,
        row.manifest_digest if row is not None else kept.manifest_digest if kept is not None else "",
        None if kept is None else kept.envelope,
        entries,
        {one.index: one.envelope for one in rows if one.envelope is not None},
        matrices,
        public_keys(governance.keys(s)),
        {} if kept is None else manifests_of(s, kept),
    )


def _judge(
    s: Session, task: TaskCaller, uuid: str, request: VerifyCheckpoint, now: float
) -> tuple[VerificationReply, LedgerEntry | None]:
    """Return the answer to a trial, and the entry that its ledger gets."""
    _, trial = current_attempt(s, task)
    policy, stored = _policy(s, task), stored_evidence(s, uuid)
    if policy is None or stored is None:
        return VerificationReply(), None
    known = s.get(MatrixRow, request.s_hash)
    if known is None:
        raise Conflict("the trial's matrix is not recorded: PUT task/governance/matrix first")
    later = [one.checkpoint for one in stored.entries if one.kind == SEGMENT]
    continuation = Continuation(
        trial.id,
        policy,
        MatrixRecord.of(known.body),
        request.manifest_digest,
        datetime.datetime.fromtimestamp(now, datetime.UTC).date(),
        request.roster,
        frozenset(request.damaged),
        frozenset(one for one in later if _is_gone(s, one)),
        WithdrawnSources(s).at(*_places(s, trial.experiment_id, stored.trial_id)),
    )
    found = verify(stored, continuation, ed25519_check)
    found += [Refusal(one.code, one.message) for one in request.refusals]
    reply = VerificationReply(
        refusals=[RefusalView(code=one.code, message=one.message[:1000]) for one in found], step=stored.step
    )
    entries = stored.entries if trial.id == stored.trial_id else entries_of(governance.ledger(s, trial.id))
    refused = bool(found) and policy.enforce == "strict"
    return reply, _consequence(list(entries), trial.id, stored, continuation, reply, now, refused=refused)


def _places(s: Session, experiment_id: int, trial_id: int) -> list[int | None]:
    """Return the workspaces of an experiment, and of another trial."""
    other = s.get(TrialRow, trial_id)
    rows = [s.get(ExperimentRow, one) for one in (experiment_id, other and other.experiment_id) if one is not None]
    return [row.workspace_id for row in rows if row is not None]


def _is_gone(s: Session, uuid: str) -> bool:
    row = s.get(CheckpointRow, uuid)
    return row is None or row.state != "COMPLETED"


def _consequence(
    entries: list[LedgerEntry],
    trial_id: int,
    stored: StoredEvidence,
    now: Continuation,
    reply: VerificationReply,
    at: float,
    *,
    refused: bool,
) -> LedgerEntry | None:
    """Return the entry that a verification adds, None if it says nothing new."""
    last = entries[-1] if entries else None
    body: dict[str, Any]
    if refused:
        kind = REFUSED
        body = {"refusals": [one.model_dump() for one in reply.refusals], "policy_hash": now.policy.policy_hash}
        if last is not None and (last.kind, last.checkpoint, dict(last.body)) == (kind, stored.checkpoint, body):
            return None
    elif newest_state(entries) == stored.checkpoint:
        return None
    elif trial_id == stored.trial_id:
        kind, lost = FORK, sorted(now.damaged | now.gone)
        body = {"from": newest_state(entries), "damaged": sorted(now.damaged), "lost": lost}
    else:
        kind, own = TRANSITION, next((one for one in stored.entries if one.checkpoint == stored.checkpoint), None)
        body = {
            "step": 0,
            "from_trial": stored.trial_id,
            "policy_hash": now.policy.policy_hash,
            "s_hash": now.matrix.s_hash,
            "taint": dict(own.body.get("taint") or {}) if own else {},
            "total": dict(own.body.get("total") or {}) if own else {},
            "ledger": None if own is None else {"index": own.index, "hash": own.hash},
            "unproven": [one.code for one in reply.refusals],
        }
    return LedgerEntry.after(last, trial_id, kind, stored.checkpoint, body, at)
