"""What a governed trial says to the master, and asks of it, beside its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detlab.core.checkpoint.context import CheckpointContext, DummyCheckpointContext
from detlab.errors import CheckpointError
from detlab.governance.ledger import NOTHING
from detlab.governance.refusals import Refusal
from detlab.schemas.wire.governance.attestation import PreflightReply, PreflightReport
from detlab.schemas.wire.governance.evidence import RecordMatrix, RefusalView, VerificationReply, VerifyCheckpoint


def signs(checkpoint: CheckpointContext) -> bool:
    """Return whether checkpoints get signed evidence, which they do on a cluster alone."""
    return not isinstance(checkpoint, DummyCheckpointContext)


def record_matrix(checkpoint: CheckpointContext, matrix: Mapping[str, Any]) -> None:
    """Record what each source may train, before the first checkpoint names it by hash; the chief calls it."""
    if signs(checkpoint):
        body = RecordMatrix(matrix=dict(matrix)).model_dump(mode="json")
        checkpoint._session.call("PUT", "task/governance/matrix", body=body)


def preflight(checkpoint: CheckpointContext, report: PreflightReport) -> list[Refusal]:
    """Report what was found before the first step; return why training may not begin on this node. The chief calls it.

    Off a cluster that is what was found, and nothing else.
    """
    if not signs(checkpoint):
        return [Refusal(one.code, one.message) for one in report.refusals]
    reply = checkpoint._session.call("PUT", "task/governance/preflight", body=report.model_dump(mode="json"))
    return [Refusal(one.code, one.message) for one in PreflightReply.model_validate(reply).refusals]


def verify(
    checkpoint: CheckpointContext,
    uuid: str,
    *,
    s_hash: str,
    roster: str = "",
    damaged: Sequence[str] = (),
    found: Iterable[Refusal] = (),
) -> list[Refusal]:
    """Return why training may not go on from a checkpoint, by its evidence; the chief calls it.

    The master judges, records a refusal, and records where training goes on if that is not the newest checkpoint.

    Args:
        checkpoint: Of the trial.
        uuid: The checkpoint that was read.
        s_hash: Of the trial's matrix, which is recorded.
        roster: Of its data.
        damaged: Newer checkpoints whose files it could not read.
        found: What it has found itself.
    """
    if not signs(checkpoint):
        return list(found)
    try:
        digest = checkpoint._storage.manifest(uuid).digest
    except CheckpointError:
        digest = NOTHING
    told = [RefusalView(code=one.code, message=one.message[:1000]) for one in found]
    request = VerifyCheckpoint(
        manifest_digest=digest, s_hash=s_hash, roster=roster, damaged=list(damaged)[:100], refusals=told
    )
    path = f"task/checkpoints/{uuid}/verification"
    reply = checkpoint._session.call("POST", path, body=request.model_dump(mode="json"))
    return [Refusal(one.code, one.message) for one in VerificationReply.model_validate(reply).refusals]
