"""Checkpoints of governed trials: their matrix is recorded, and their evidence verified before training goes on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from detlab import core
from detlab.core.checkpoint import evidence
from detlab.errors import CheckpointError, CheckpointMissing, DetlabError
from detlab.governance import GovernanceError, Refusal
from detlab.governance.attestation import enforced, loaded_code
from detlab.pytorch.checkpoint.files import read_state
from detlab.pytorch.checkpoint.manager import RestoredCheckpoint
from detlab.pytorch.checkpoint.matching import as_named
from detlab.pytorch.governance.preflight import PreflightResult
from detlab.pytorch.governance.profiles import STATE as PROBES
from detlab.pytorch.governance.profiles import ModelProbe, probes_in
from detlab.pytorch.governance.trial import missing_state
from detlab.pytorch.parallel.unwrapping import bare
from detlab.schemas.wire.governance.attestation import PreflightReport
from detlab.schemas.wire.governance.evidence import RefusalView

if TYPE_CHECKING:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext

logger = logging.getLogger("detlab.pytorch")


def admit(core_context: core.Context, context: PyTorchTrialContext, restored: RestoredCheckpoint | None) -> None:
    """Try the layers, record the matrix, and verify the checkpoint that the trial goes on from; all ranks call in step.

    Nothing happens without a policy. Off a cluster nobody signs, and nothing is verified but the state.

    Raises:
        GovernanceError: Training may not go on from it; nothing of it was loaded.
    """
    governed, recorder = context._governed, context._recorder
    if governed is None or recorder is None:
        return
    found: list[Refusal] = []
    distributed = core_context.distributed
    failure: str | None = None
    layers = governed.preflight()
    told = distributed.gather((loaded_code(), layers))
    before: list[Refusal] = []
    if told is not None:
        try:
            evidence.record_matrix(core_context.checkpoint, governed.plan.matrix.body())
            before = evidence.preflight(core_context.checkpoint, _report(told))
            if restored is not None and not before:
                found = _verdict(core_context, context, restored)
        except DetlabError as error:
            failure = error.message
    found, before, failure = distributed.broadcast((found, before, failure))
    if failure is not None:
        raise CheckpointError(f"the evidence could not be verified: {failure}")
    governed.refuse(before, "training may not begin on this node:")
    if restored is not None:
        context._refuse_checkpoint(found, restored.uuid)
        if told is not None and not found and evidence.signs(core_context.checkpoint):
            logger.info(
                "verified: the evidence of checkpoint %s is in order, and it may be gone on from", restored.uuid
            )
        recorder.resume(restored.uuid, restored.progress.steps_completed)
        if context._probes is not None and restored.same_trial:
            context._probes.resume(restored.tree.get(PROBES))


def _report(told: Sequence[tuple[str, PreflightResult]]) -> PreflightReport:
    """Return what the ranks have found; that of the first one with refusals counts."""
    worst = next((result for _, result in told if result.refusals), told[0][1])
    return PreflightReport(
        version=version("detlab"),
        code=sorted({code for code, _ in told})[:64],
        enforces=sorted(enforced()),
        layers=worst.tried,
        untried=worst.untried,
        refusals=[RefusalView(code=one.code, message=one.message[:1000]) for one in worst.refusals[:20]],
    )


def _verdict(core_context: core.Context, context: PyTorchTrialContext, restored: RestoredCheckpoint) -> list[Refusal]:
    assert context._governed is not None  # `admit` has looked
    assert context._recorder is not None
    found = missing_state(restored.tree, context) if restored.same_trial else []
    listed = zip(context.models, restored.tree.get("models_state_dict") or [], strict=False)
    states = [as_named(bare(model), state) for model, state in listed]
    metadata = core_context.checkpoint.get_metadata(restored.uuid)
    found += context._profile_problems(metadata, restored.tree.get(PROBES), states)
    return evidence.verify(
        core_context.checkpoint,
        restored.uuid,
        s_hash=context._governed.plan.s_hash,
        roster=context._recorder.roster,
        damaged=restored.damaged,
        found=found,
    )


def load_probe(path: str | Path, model: int = 0) -> ModelProbe:
    """Return the probe that a checkpoint keeps of one of its models; nothing is unpickled.

    Args:
        path: Folder of the checkpoint, as of `det checkpoint download`.
        model: Which of the trial's models.

    Raises:
        CheckpointError: It keeps none, or cannot be read.
    """
    kept = read_state(Path(path), allow_pickle=False, only=(PROBES,)).get(PROBES)
    found = next((one for one in probes_in(kept) if one.model == model), None)
    if found is None:
        raise CheckpointError(
            f"{path} keeps no probe of model {model}",
            hint="a trial under a policy keeps one if its config has `governance: {profile: {}}`",
        )
    return found


@contextlib.contextmanager
def damage_refused(context: PyTorchTrialContext, uuid: str) -> Iterator[None]:
    """Turn the error of a checkpoint of a governed trial, of which no earlier one can be read either, into FILE."""
    try:
        yield
    except CheckpointMissing:
        raise  # the master looks for an earlier one, or starts no other attempt
    except CheckpointError as error:
        if context._governed is None or context._governed.plan.policy.enforce != "strict":
            raise
        raise GovernanceError([Refusal("FILE", error.message)], f"training may not go on from {uuid}:") from error
