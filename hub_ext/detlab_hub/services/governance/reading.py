"""What people read of evidence: statements with their verdicts, ledgers, matrices, and the summary of a version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab.governance.evidence import ed25519_check, unchecked_predicate
from detlab.governance.ledger import MatrixRecord, sources_that_reached
from detlab.governance.levels import source_levels
from detlab.governance.picture import groups
from detlab.governance.verification import intact
from detlab.schemas.wire.governance.evidence import (
    DepthView,
    EvidenceSummary,
    EvidenceView,
    LearningView,
    LedgerEntryView,
    LedgerPage,
    MatrixGroup,
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
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.queries.registry import evidence as governance
from detlab_hub.store.tables import (
    CheckpointRow,
    EvidenceRow,
    ExperimentRow,
    LedgerRow,
    MatrixRow,
    PreflightRow,
    TrialRow,
)

PAGE = 50
MOST_LINES = 200
"""Of S and of D that are shown; a model with more is cut, and the answer says so."""
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

    async def learning(self, caller: Caller, trial_id: int) -> LearningView:
        """Return what each source may train in a trial, and what it gave so far.

        Raises:
            NotFound: There is no such trial, or the caller may not read it: they cannot tell; or it has no policy.
        """

        def read(s: Session) -> LearningView:
            trial = trial_for(s, caller, trial_id)
            experiment = s.get(ExperimentRow, trial.experiment_id)
            if experiment is None or not experiment.config.get("governance"):
                raise NotFound(
                    f"trial {trial_id} has no policy",
                    hint="its config has no block `governance`: docs/how-to/govern-what-sources-train.md",
                )
            preflight = s.get(PreflightRow, trial_id)
            body = preflight.body if preflight is not None else {}
            stored = s.get(MatrixRow, body.get("s_hash") or _last_matrix(s, trial_id))
            matrix = None if stored is None else MatrixRecord.of(stored.body)
            shown = [] if matrix is None else groups(matrix)
            return LearningView(
                trial_id=trial_id,
                s_hash="" if stored is None else stored.s_hash,
                sources=[] if matrix is None else list(matrix.sources),
                groups=[
                    MatrixGroup(label=one.label, count=one.count, scales=list(one.scales), levels=list(one.levels))
                    for one in shown[:MOST_LINES]
                ],
                left_out=max(0, len(shown) - MOST_LINES),
                share=_numbers(_newest(s, trial_id, "gov/share")[1]),
                depth=_depth(*_newest(s, trial_id, "gov/depth"), () if matrix is None else matrix.sources),
                refusals=[RefusalView.model_validate(one) for one in body.get("refusals") or []],
            )

        return await self._context.read(read)


def _last_matrix(s: Session, trial_id: int) -> str:
    """Return the matrix of the newest segment, for trials whose attempts noted none; empty if there is none."""
    named = [str(row.body["s_hash"]) for row in governance.ledger(s, trial_id) if row.body.get("s_hash")]
    return named[-1] if named else ""


def _newest(s: Session, trial_id: int, name: str) -> tuple[int, Any]:
    """Return the steps and the value of the last report of a structured metric; 0 and None if there is none."""
    found = metrics.values(s, trial_id, name=name, limit=1)
    return (int(found[0]["steps_completed"]), found[0]["value"]) if found else (0, None)


def _numbers(value: Any) -> dict[str, float]:
    """Return what is a number of something that a trial has reported."""
    if not isinstance(value, dict):
        return {}
    return {str(name): float(one) for name, one in value.items() if _is_share(one)}


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _depth(step: int, value: Any, sources: Sequence[str]) -> DepthView | None:
    """Return D as it is shown, in the order of `sources`; None if what was reported is no such matrix."""
    if not isinstance(value, dict):
        return None
    layers, mass, names = value.get("layers"), value.get("mass"), value.get("sources")
    if not (isinstance(layers, list) and isinstance(mass, list) and isinstance(names, list)):
        return None
    rows = {str(name): row for name, row in zip(names, mass, strict=False) if isinstance(row, list)}
    if any(len(row) != len(layers) or not all(map(_is_share, row)) for row in rows.values()):
        return None
    found = [rows.get(name, [0.0] * len(layers)) for name in sources]
    kept: Sequence[int] = range(len(layers))
    if len(layers) > MOST_LINES:
        most = sorted(kept, key=lambda at: -max((row[at] for row in found), default=0.0))[:MOST_LINES]
        kept = sorted(most)
    return DepthView(
        steps_completed=step,
        layers=[str(layers[at]) for at in kept],
        shares=[[float(row[at]) for at in kept] for row in found],
        left_out=len(layers) - len(kept),
    )


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
