"""What people read of evidence: statements with their verdicts, ledgers, matrices, and the summary of a version."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab.governance.evidence import ed25519_check, unchecked_predicate
from detlab.governance.ledger import sources_that_reached
from detlab.governance.levels import source_levels
from detlab.governance.verification import intact
from detlab.schemas.wire.governance.evidence import (
    EvidenceSummary,
    EvidenceView,
    LedgerEntryView,
    LedgerPage,
    MatrixView,
    RefusalView,
    SourceSummary,
)
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base.access import administers, checkpoint_named, no_such, trial_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.withdrawn import WithdrawnSources
from detlab_hub.services.base.context import Service
from detlab_hub.services.governance.evidence import stored_evidence
from detlab_hub.services.governance.keys import key_view
from detlab_hub.store.queries.registry import evidence as governance
from detlab_hub.store.tables import CheckpointRow, EvidenceRow, LedgerRow, MatrixRow, TrialRow

PAGE = 50
_PAGE_BYTES = 512 * 1024


class EvidenceReading(Service):
    """Reads of evidence, by those who may read what it is of; of what was deleted by administrators alone."""

    async def of_checkpoint(self, caller: Caller, uuid: str) -> EvidenceView:
        """Return the evidence of a checkpoint, named by its uuid or how it begins, with what is wrong with it.

        Raises:
            NotFound: There is none, or the caller may not read the checkpoint: they cannot tell.
        """

        def read(s: Session) -> EvidenceView:
            outlived = administers(caller, ObjectKind.SITE) and s.get(CheckpointRow, uuid) is None
            whole = uuid
            if not outlived or governance.evidence(s, uuid) is None:
                whole = checkpoint_named(s, caller, uuid).uuid
            stored, row = stored_evidence(s, whole), governance.evidence(s, whole)
            if stored is None or row is None:
                raise NotFound(
                    f"checkpoint {whole} has no evidence",
                    hint="what its experiment trained was not governed: docs/how-to/govern-what-sources-train.md",
                )
            problems = intact(stored, ed25519_check)
            over = WithdrawnSources(s).in_checkpoint(s, whole)
            said = predicate_of(row)
            return EvidenceView(
                checkpoint=whole,
                trial_id=row.trial_id,
                experiment_id=row.experiment_id,
                steps_completed=row.steps_completed,
                manifest_digest=stored.manifest_digest,
                envelope=row.envelope,
                predicate=said,
                learnt_from=sources_that_reached(said.get("taint") or {}, stored.matrices),
                levels=source_levels(said.get("taint") or {}, stored.matrices),
                keys=[key_view(key) for key in governance.keys(s)],
                problems=[RefusalView(code=one.code, message=one.message[:1000]) for one in problems],
                withdrawn=[RefusalView(code=one.code, message=one.message[:1000]) for one in over],
            )

        return await self._context.read(read)

    async def ledger(self, caller: Caller, trial_id: int, after: int = -1) -> LedgerPage:
        """Return entries of a trial's ledger, in order.

        Raises:
            NotFound: There is no such trial, or the caller may not read it: they cannot tell.
        """

        def read(s: Session) -> LedgerPage:
            _check_trial(s, caller, trial_id)
            rows = governance.ledger_page(s, trial_id, after, PAGE + 1)
            shown, size = rows[:PAGE], 0
            for count, row in enumerate(shown):
                size += len(json.dumps(row.body)) + len(json.dumps(row.envelope))
                if size > _PAGE_BYTES and count:
                    shown = shown[:count]
                    break
            more = shown[-1].index if len(shown) < len(rows) else None
            return LedgerPage(items=[_entry_view(row) for row in shown], after=more)

        return await self._context.read(read)

    async def matrix(self, caller: Caller, trial_id: int, s_hash: str) -> MatrixView:
        """Return a matrix that a trial's ledger names.

        Raises:
            NotFound: There is none, or the caller may not read the trial: they cannot tell.
        """

        def read(s: Session) -> MatrixView:
            _check_trial(s, caller, trial_id)
            named = any(_names(row.body, s_hash) for row in governance.ledger(s, trial_id))
            row = s.get(MatrixRow, s_hash) if named else None
            if row is None:
                raise NotFound(f"the ledger of trial {trial_id} names no matrix {s_hash[:80]}")
            return MatrixView(s_hash=s_hash, matrix=row.body)

        return await self._context.read(read)


def _check_trial(s: Session, caller: Caller, trial_id: int) -> None:
    if s.get(TrialRow, trial_id) is not None:
        trial_for(s, caller, trial_id)
    elif not administers(caller, ObjectKind.SITE):
        raise no_such(f"there is no trial {trial_id}", exists=False, hint="det trial list EXPERIMENT")


def _names(body: dict[str, Any], s_hash: str) -> bool:
    return body.get("s_hash") == s_hash or any(s_hash in listed for listed in (body.get("taint") or {}).values())


def _entry_view(row: LedgerRow) -> LedgerEntryView:
    return LedgerEntryView(
        trial_id=row.trial_id,
        index=row.index,
        kind=row.kind,
        checkpoint=row.checkpoint_uuid,
        body=row.body,
        previous=row.previous,
        at=row.at,
        hash=row.hash,
        envelope=row.envelope,
    )


def predicate_of(row: EvidenceRow) -> dict[str, Any]:
    """Return what a statement says, whoever has signed it; empty if it cannot be read."""
    return unchecked_predicate(row.envelope)


def summary_of(s: Session, uuid: str) -> EvidenceSummary | None:
    """Return what a version of a model says of its evidence; None: its checkpoint has none."""
    row = governance.evidence(s, uuid)
    if row is None:
        return None
    said, stored = predicate_of(row), stored_evidence(s, uuid)
    levels = source_levels(said.get("taint") or {}, stored.matrices if stored else {})
    head, segment = said.get("ledger") or {}, said.get("segment") or {}
    return EvidenceSummary(
        key_id=str(said.get("key_id", "")),
        policy_hash=str(said.get("policy_hash", "")),
        s_hash=str(said.get("s_hash", "")),
        enforce=str(said.get("enforce", "")),
        privacy=segment.get("privacy"),
        ledger_index=int(head.get("index", 0)),
        ledger_hash=str(head.get("hash", "")),
        sources=[
            SourceSummary.model_validate(
                {**one, "reached": (name := one.get("name")) in levels, "level": levels.get(name, "")}
            )
            for one in said.get("sources") or []
        ],
    )
