"""Operations on evidence: what checkpoints were learnt from, and the keys that sign."""

from __future__ import annotations

import dataclasses
from urllib.parse import quote

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.errors import DetlabError, NotFound
from detlab.governance.ledger import TRANSITION, LedgerEntry, MatrixRecord, lineage
from detlab.schemas.wire.governance.evidence import (
    EvidenceView,
    LearningView,
    LedgerEntryView,
    LedgerPage,
    MatrixView,
    RestoreSource,
    RevokeKey,
    SigningKeyList,
    WithdrawnSourceList,
    WithdrawnSourceView,
    WithdrawSource,
)
from detlab.visible import visible

_MOST_TRIALS = 20
"""Trials before a checkpoint's own whose ledgers are read."""


@dataclasses.dataclass(frozen=True, slots=True)
class LearntFrom:
    """What led to a checkpoint.

    Attributes:
        segments: Oldest first.
        matrices: Those that they name, by hash.
        unknown: The trial whose ledger could not be read, with what came before; None: all was.
    """

    segments: list[LedgerEntry]
    matrices: dict[str, MatrixRecord]
    unknown: int | None = None


def evidence(uuid: str) -> Flow[EvidenceView]:
    """Fetch the signed evidence of a checkpoint, with what the master finds wrong with it."""
    return one(Call("GET", f"checkpoints/{quote(uuid, safe='')}/evidence", parse=model(EvidenceView)))


def ledger(trial_id: int) -> Flow[list[LedgerEntryView]]:
    """Fetch the whole ledger of a trial."""
    found: list[LedgerEntryView] = []
    after: int | None = -1
    while after is not None:
        path = f"trials/{int(trial_id)}/ledger"
        page: LedgerPage = yield Call("GET", path, params={"after": after}, parse=model(LedgerPage))
        found += page.items
        after = page.after
    return found


def learning(trial_id: int) -> Flow[LearningView]:
    """Fetch what each source may train in a trial, and what it gave so far."""
    return one(Call("GET", f"trials/{int(trial_id)}/governance", parse=model(LearningView)))


def learnt_from(uuid: str) -> Flow[LearntFrom]:
    """Fetch the segments that led to a checkpoint, through the trials before its own, with their matrices."""
    seen: EvidenceView = yield from evidence(uuid)
    segments: list[LedgerEntry] = []
    matrices: dict[str, MatrixRecord] = {}
    trial: int | None = seen.trial_id
    wanted = seen.checkpoint
    for _ in range(_MOST_TRIALS):
        try:
            listed = yield from ledger(trial or 0)
        except NotFound:
            return LearntFrom(segments, matrices, trial)
        entries = [entry_of(one) for one in listed]
        own = lineage(entries, wanted)
        for s_hash in dict.fromkeys(str(entry.body["s_hash"]) for entry in own):
            path = f"trials/{trial}/matrices/{quote(s_hash, safe='')}"
            found: MatrixView = yield Call("GET", path, parse=model(MatrixView))
            matrices[s_hash] = MatrixRecord.of(found.matrix)
        segments = [*own, *segments]
        first = own[0].body.get("parent") if own else None
        began = [one for one in entries if one.kind == TRANSITION and one.checkpoint == first]
        if not began:
            return LearntFrom(segments, matrices)
        trial, wanted = int(began[-1].body["from_trial"]), str(first)
    return LearntFrom(segments, matrices, trial)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedTraining:
    """How a trial came to a checkpoint, as it was recorded.

    Attributes:
        seen: The evidence of the checkpoint.
        segments: Those of its trial that led to it, oldest first; at least one.
        matrix: Under which the last of them was trained.
    """

    seen: EvidenceView
    segments: list[LedgerEntry]
    matrix: MatrixRecord


def recorded_training(uuid: str) -> Flow[RecordedTraining]:
    """Fetch how a trial came to a checkpoint.

    Raises:
        DetlabError: Its evidence is not in order: all that is wrong is named.
    """
    seen: EvidenceView = yield from evidence(uuid)
    if seen.problems:
        listed = "\n".join(f"  {visible(one.code)}: {visible(one.message)}" for one in seen.problems)
        raise DetlabError(f"the evidence of checkpoint {visible(seen.checkpoint)} is not in order:\n{listed}")
    segments = lineage([entry_of(one) for one in (yield from ledger(seen.trial_id))], seen.checkpoint)
    if not segments:
        raise DetlabError(f"the ledger of trial {seen.trial_id} has no segment of checkpoint {seen.checkpoint}")
    path = f"trials/{seen.trial_id}/matrices/{quote(str(segments[-1].body.get('s_hash')), safe='')}"
    found: MatrixView = yield Call("GET", path, parse=model(MatrixView))
    return RecordedTraining(seen, segments, MatrixRecord.of(found.matrix))


def entry_of(view: LedgerEntryView) -> LedgerEntry:
    """Return an entry as the rules take it."""
    return LedgerEntry(
        view.trial_id, view.index, view.kind, view.checkpoint, view.body, view.previous, view.at, view.hash
    )


def keys() -> Flow[SigningKeyList]:
    """Fetch the public keys of the cluster."""
    return one(Call("GET", "signing-keys", parse=model(SigningKeyList)))


def rotate() -> Flow[SigningKeyList]:
    """Sign with a new key from now on; each call makes one."""
    return one(Call("POST", "signing-keys", json={}, again=False, parse=model(SigningKeyList)))


def revoke(key: str, reason: str) -> Flow[SigningKeyList]:
    """Declare that nothing which a key has signed holds any more; can safely be repeated."""
    with valid_request():
        body = RevokeKey(reason=reason)
    return one(Call("POST", f"signing-keys/{quote(key, safe='')}/revoke", json=body, parse=model(SigningKeyList)))


def withdrawn_sources() -> Flow[WithdrawnSourceList]:
    """Fetch what is withdrawn in the cluster, and in workspaces that the caller may read."""
    return one(Call("GET", "withdrawn-sources", parse=model(WithdrawnSourceList)))


def withdraw_source(source: str, reason: str, manifest: str = "", workspace: str = "") -> Flow[WithdrawnSourceView]:
    """Withdraw a source in a workspace, or in the whole cluster; can safely be repeated."""
    with valid_request():
        body = WithdrawSource(source=source, manifest=manifest, workspace=workspace, reason=reason)
    return one(Call("POST", "withdrawn-sources", json=body, parse=model(WithdrawnSourceView)))


def restore_source(source: str, reason: str, manifest: str = "", workspace: str = "") -> Flow[WithdrawnSourceView]:
    """Take a withdrawal back; return what it was."""
    with valid_request():
        body = RestoreSource(source=source, manifest=manifest, workspace=workspace, reason=reason)
    return one(Call("POST", "withdrawn-sources/undo", json=body, again=False, parse=model(WithdrawnSourceView)))
