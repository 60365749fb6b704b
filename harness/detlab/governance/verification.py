"""Whether training may go on from a checkpoint: its evidence against its files, the ledger and the policy of now."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from detlab.governance.evidence import CHECKPOINT_PREDICATE, ENTRY_PREDICATE, FORMAT, Check, PublicKey, opened
from detlab.governance.isolation import is_private
from detlab.governance.ledger import (
    FORK,
    TRANSITION,
    UNDECLARED,
    LedgerEntry,
    MatrixRecord,
    chain_problems,
    grown,
    newest_state,
    segment_of,
)
from detlab.governance.policy import Policy
from detlab.governance.refusals import Refusal
from detlab.governance.withdrawals import Manifests, Withdrawal, matches, refusals_of

_NAMED = 3
"""Parameters that a refusal names."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredEvidence:
    """What the cluster has of a checkpoint.

    Attributes:
        checkpoint: Its uuid.
        trial_id: The trial that saved it.
        step: Batches trained.
        manifest_digest: The manifest that was committed.
        envelope: The signed statement; None: there is none.
        signatures: Envelopes of entries that are signed by themselves, by index.
        entries: The whole ledger of its trial, in order.
        matrices: All that the taint names, by hash.
        keys: Those of the cluster, by id.
        manifests: What was declared of the sources of its taint, by all trials that led to it.
    """

    checkpoint: str
    trial_id: int
    step: int
    manifest_digest: str
    envelope: Any
    entries: Sequence[LedgerEntry]
    signatures: Mapping[int, Any]
    matrices: Mapping[str, MatrixRecord]
    keys: Mapping[str, PublicKey]
    manifests: Manifests = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Continuation:
    """Who wants to go on from it.

    Attributes:
        trial_id: The trial.
        policy: Its policy.
        matrix: Its matrix S.
        manifest_digest: Of the files that it has read.
        today: For sources whose last day is over.
        roster: Digest of which sample of its data is from which source; empty: not known.
        damaged: Newer checkpoints of the trial whose files it could not read.
        gone: Newer checkpoints of the trial that the cluster itself knows to be gone.
        withdrawn: Sources that are withdrawn where the trial runs, or where the checkpoint lies.
    """

    trial_id: int
    policy: Policy
    matrix: MatrixRecord
    manifest_digest: str
    today: datetime.date
    roster: str = ""
    damaged: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    withdrawn: Sequence[Withdrawal] = ()


def verify(stored: StoredEvidence, now: Continuation, check: Check) -> list[Refusal]:
    """Return why training may not go on from a checkpoint; empty: it may.

    What is looked at first decides alone: nothing in a statement is believed whose signature does not hold.
    """
    predicate, problems = signed_predicate(stored, now.manifest_digest, check)
    if problems:
        return problems
    if problems := _ledger(stored, predicate, check):
        return problems
    same_trial = now.trial_id == stored.trial_id
    found = _rollback(stored, now) if same_trial else []
    if same_trial:
        found += _same_policy(predicate, now)
        found += _data(predicate, now)
    taint = predicate.get("taint") or {}
    found += refusals_of(matches(taint, stored.manifests, now.withdrawn), "the weights were trained on it")
    found += allowed_now(taint, stored.matrices, now)
    found += _coverage(stored.entries, stored.checkpoint, now.policy)
    return found


def intact(stored: StoredEvidence, check: Check) -> list[Refusal]:
    """Return what is wrong with evidence by itself: its signature, its manifest as committed, its ledger."""
    predicate, problems = signed_predicate(stored, stored.manifest_digest, check)
    return problems or _ledger(stored, predicate, check)


def signed_predicate(
    stored: StoredEvidence, manifest_digest: str, check: Check
) -> tuple[dict[str, Any], list[Refusal]]:
    """Return what the evidence says of a checkpoint, or SIG, ENV or FILE."""
    if stored.envelope is None:
        return {}, [Refusal("SIG", f"checkpoint {stored.checkpoint} has no signed evidence of what it has learnt")]
    try:
        said = opened(stored.envelope, stored.keys, check)
    except ValueError as error:
        return {}, [Refusal("SIG", f"the evidence of checkpoint {stored.checkpoint} cannot be trusted: {error}")]
    predicate = said.get("predicate")
    subject = said.get("subject")
    if said.get("predicateType") != CHECKPOINT_PREDICATE or not isinstance(predicate, dict):
        return {}, [Refusal("SIG", f"the evidence of checkpoint {stored.checkpoint} is a statement of another kind")]
    if predicate.get("format") != FORMAT:
        what = f"the evidence of checkpoint {stored.checkpoint} has the format {predicate.get('format')!r}"
        return {}, [Refusal("ENV", f"{what}, and this detlab knows {FORMAT}")]
    is_of = [{"name": stored.checkpoint, "digest": {"sha256": stored.manifest_digest.removeprefix("sha256:")}}]
    if subject != is_of or predicate.get("trial") != stored.trial_id or predicate.get("step") != stored.step:
        return {}, [Refusal("SIG", f"the evidence is not of checkpoint {stored.checkpoint} as it was committed")]
    if manifest_digest != stored.manifest_digest:
        what = f"the manifest of checkpoint {stored.checkpoint} has the digest {manifest_digest[:23]}…"
        return {}, [Refusal("FILE", f"{what}, and {stored.manifest_digest[:23]}… was signed")]
    return predicate, []


def _ledger(stored: StoredEvidence, predicate: Mapping[str, Any], check: Check) -> list[Refusal]:
    """Return CHAIN if the ledger does not lead to what was signed, or entries beside it are not signed."""
    if problems := chain_problems(stored.entries):
        return problems
    head, name = predicate.get("ledger") or {}, stored.checkpoint
    entry = segment_of(stored.entries, name)
    if entry is None or (entry.index, entry.hash) != (head.get("index"), head.get("hash")):
        return [Refusal("CHAIN", f"the ledger of trial {stored.trial_id} has not what was signed of checkpoint {name}")]
    for one in stored.entries:
        if one.kind not in (FORK, TRANSITION):
            continue
        try:
            said = opened(stored.signatures.get(one.index), stored.keys, check)
        except ValueError as error:
            return [Refusal("CHAIN", f"entry {one.index} of the ledger ({one.kind}) is not signed: {error}")]
        subject = [{"name": entry_name(one), "digest": {"sha256": one.hash.removeprefix("sha256:")}}]
        if said.get("predicateType") != ENTRY_PREDICATE or said.get("subject") != subject:
            return [Refusal("CHAIN", f"entry {one.index} of the ledger ({one.kind}) has the signature of another")]
    return _counted_on(stored.entries, stored.trial_id)


def _counted_on(entries: Sequence[LedgerEntry], trial_id: int) -> list[Refusal]:
    """Return CHAIN if a segment does not begin where the one before it ended: training that is not recorded."""
    steps = {one.checkpoint: one.body.get("step") for one in entries if one.body.get("step") is not None}
    for one in entries:
        parent = one.body.get("parent")
        if one.kind == "segment" and parent in steps and one.body.get("first_step") != steps[parent]:
            gap = f"batches {steps[parent]} to {one.body.get('first_step')} of trial {trial_id}"
            return [Refusal("CHAIN", f"{gap} are not in the ledger")]
    return []


def entry_name(entry: LedgerEntry) -> str:
    """Return the name that a signature of an entry is about."""
    return f"ledger/{entry.trial_id}/{entry.index}"


def _rollback(stored: StoredEvidence, now: Continuation) -> list[Refusal]:
    """Return CHAIN if the trial has gone on since, and nothing says why it should go back."""
    newest = newest_state(stored.entries)
    if newest in (None, stored.checkpoint):
        return []
    after = segment_of(stored.entries, stored.checkpoint)
    later = [one for one in stored.entries if after is not None and one.index > after.index and one.kind == "segment"]
    lost = now.damaged | now.gone
    if all(one.checkpoint in lost for one in later):
        return []
    kept = next(one for one in later if one.checkpoint not in lost)
    what = f"checkpoint {stored.checkpoint} is behind checkpoint {kept.checkpoint} of the same trial"
    return [Refusal("CHAIN", f"{what}, which is there: going back would drop what was recorded since")]


def _same_policy(predicate: Mapping[str, Any], now: Continuation) -> list[Refusal]:
    if predicate.get("policy_hash") != now.policy.policy_hash:
        was = str(predicate.get("policy_hash"))[:23]
        return [Refusal("POLICY", f"the checkpoint was made under the policy {was}…, not under that of this config")]
    if predicate.get("s_hash") != now.matrix.s_hash:
        what = "the same policy gives another matrix for this model than for the one that was saved"
        return [Refusal("STRUCT", f"{what}: names or shapes of parameters differ")]
    return []


def _data(predicate: Mapping[str, Any], now: Continuation) -> list[Refusal]:
    was = (predicate.get("segment") or {}).get("roster") or ""
    if was and now.roster and was != now.roster:
        return [Refusal("DATA", "samples of the data set, or their sources, are not those of when it was saved")]
    return []


def allowed_now(
    taint: Mapping[str, Sequence[str]], matrices: Mapping[str, MatrixRecord], now: Continuation
) -> list[Refusal]:
    """Return REVOKED or POLICY for what has reached the weights and may not now."""
    found = []
    declared = {one.name: one for one in now.policy.sources}
    for name, hashes in taint.items():
        source, said = declared.get(name), "samples without a declared source" if name == UNDECLARED else repr(name)
        if source is not None and source.expires is not None and source.expires < now.today:
            found.append(Refusal("REVOKED", f"{said} could be trained on until {source.expires}, and the weights were"))
            continue
        if source is None and now.matrix.default is None:
            found.append(Refusal("REVOKED", f"the weights were trained on {said}, which this policy does not declare"))
            continue
        found += _closed(name, said, hashes, matrices, now.matrix)
    return found


def _closed(
    name: str, said: str, hashes: Sequence[str], matrices: Mapping[str, MatrixRecord], matrix: MatrixRecord
) -> list[Refusal]:
    reached: dict[str, None] = {}
    for one in hashes:
        if one not in matrices or matrices[one].s_hash != one:
            return [Refusal("CHAIN", f"the matrix {one[:23]}… under which {said} was trained on is not recorded")]
        if is_private(matrix) and not is_private(matrices[one]) and matrices[one].reached(name):
            message = f"{said} was trained on without noise, which the level dp of this policy does not take back"
            return [Refusal("LEVEL", message)]
        reached |= dict.fromkeys(matrices[one].reached(name))
    row = matrix.row(name)
    closed = [path for path in reached if row.get(path, 1.0) == 0]
    if not closed:
        return []
    more = f" and {len(closed) - _NAMED} more" if len(closed) > _NAMED else ""
    return [Refusal("POLICY", f"{said} has trained {', '.join(closed[:_NAMED])}{more}, and is closed to it now")]


def _coverage(entries: Sequence[LedgerEntry], checkpoint: str, policy: Policy) -> list[Refusal]:
    least = policy.constraints.get("provenance_coverage", (None, None))[0]
    entry = segment_of(entries, checkpoint)
    if least is None or entry is None:
        return []
    counts = entry.body.get("total") or {}
    total = sum(counts.values())
    share = 1.0 if total == 0 else 1.0 - counts.get(UNDECLARED, 0) / total
    if share >= least:
        return []
    return [Refusal("COVER", f"{share:g} of the samples had a declared source, and {least:g} is the least")]


def taint_after(parent: Mapping[str, Any] | None, counts: Mapping[str, int], s_hash: str) -> dict[str, list[str]]:
    """Return the taint of a checkpoint from what its parent's entry says and what was trained on since."""
    return grown({} if parent is None else parent.get("taint") or {}, counts, s_hash)
