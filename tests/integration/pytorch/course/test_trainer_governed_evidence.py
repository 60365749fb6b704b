"""What a governed trial records with its checkpoints, and when it does not go on from one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_trainer_course_governed import POLICY, SIZES, run

from detlab.core.checkpoint import evidence
from detlab.errors import CheckpointError
from detlab.governance import GovernanceError, Refusal
from detlab.pytorch import Batch, load_probe
from detlab.pytorch.checkpoint.files import read_state
from detlab.pytorch.governance.trial import missing_state
from detlab.schemas.wire.governance.evidence import GovernedSegment

PROFILED = {**POLICY, "profile": {"samples": 4}}


def segments(storage: str) -> dict[str, tuple[int, GovernedSegment]]:
    """Return the steps and the segment of each checkpoint, by its id."""
    found = {}
    for path in Path(storage).glob("*/manifest.json"):
        metadata = json.loads(path.read_text())["metadata"]
        found[path.parent.name] = (metadata["steps_completed"], GovernedSegment.model_validate(metadata["governance"]))
    return found


def chain_of(storage: str) -> list[tuple[str, int, GovernedSegment]]:
    """Return the checkpoints in the order in which each continues the one before."""
    found, chain, parent = segments(storage), [], None
    while len(chain) < len(found):
        ((uuid, (step, segment)),) = [item for item in found.items() if item[1][1].parent == parent]
        chain.append((uuid, step, segment))
        parent = uuid
    return chain


def fit(length: int, **more: Any) -> dict[str, Any]:
    return {"max_length": Batch(length), "checkpoint_period": Batch(3), "checkpoint_policy": "none", **more}


def test_each_checkpoint_says_what_was_trained_since_the_one_before(tmp_path):
    trial = run(str(tmp_path), fit=fit(9))
    chain = chain_of(str(tmp_path))
    assert [(segment.first_step, step) for _, step, segment in chain] == [(0, 3), (3, 6), (6, 9)]
    assert {segment.s_hash for _, _, segment in chain} == {trial.context._governed.plan.s_hash}
    total = {name: sum(segment.counts.get(name, 0) for _, _, segment in chain) for name in SIZES}
    ids = [one for batch, _ in trial.log for one in batch]
    assert total == {"trusted": sum(one < 14 for one in ids), "web": sum(one >= 14 for one in ids)}
    assert [[one.epoch for one in segment.order] for _, _, segment in chain] == [[0], [0], [1]]
    assert len({segment.roster for _, _, segment in chain}) == 1


def test_t10_a_trial_that_was_stopped_has_the_ledger_of_one_that_was_not(tmp_path):
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    first = run(whole, fit=fit(9))
    run(parts, fit=fit(6))
    last = chain_of(parts)[-1][0]
    resumed = run(parts, fit=fit(9, latest_checkpoint=last))
    said = [(step, segment.first_step, segment.counts, segment.order) for _, step, segment in chain_of(whole)]
    again = [(step, segment.first_step, segment.counts, segment.order) for _, step, segment in chain_of(parts)]
    assert again == said
    assert all(torch.equal(a, b) for a, b in zip(first.log[-1][1], resumed.log[-1][1], strict=True))


@pytest.fixture
def judged(monkeypatch):
    """A master that says what it is told to; returns what it was asked."""
    asked: list[dict[str, Any]] = []
    says: list[Refusal] = []

    def verify(checkpoint: Any, uuid: str, **more: Any) -> list[Refusal]:
        asked.append({"uuid": uuid, **more})
        return [*says, *more["found"]]

    monkeypatch.setattr(evidence, "verify", verify)
    return asked, says


def test_a_refused_checkpoint_is_not_loaded_and_under_audit_it_is_said(tmp_path, judged):
    asked, says = judged
    run(str(tmp_path), fit=fit(3))
    ((uuid, _),) = segments(str(tmp_path)).items()
    says.append(Refusal("SIG", "the checkpoint has no signed evidence"))
    with pytest.raises(GovernanceError, match="SIG") as refused:
        run(str(tmp_path), fit=fit(6, latest_checkpoint=uuid))
    assert refused.value.code == "governance.sig"
    assert len(segments(str(tmp_path))) == 1
    trial = run(str(tmp_path), policy={**POLICY, "enforce": "audit"}, fit=fit(6, latest_checkpoint=uuid))
    assert trial.told[-1]["gov/violations"] == 1
    assert asked[0]["damaged"] == ()


def test_an_earlier_checkpoint_is_used_for_damaged_files_and_that_is_said(tmp_path, judged):
    asked, _ = judged
    run(str(tmp_path), fit=fit(6))
    (early, _, _), (late, _, _) = chain_of(str(tmp_path))
    file = next((tmp_path / late).rglob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    run(str(tmp_path), fit=fit(6, latest_checkpoint=late))
    assert [(one["uuid"], one["damaged"]) for one in asked] == [(early, (late,))]


def test_t9_if_no_earlier_one_can_be_read_the_files_are_refused(tmp_path, judged):
    run(str(tmp_path), fit=fit(3))
    ((uuid, _),) = segments(str(tmp_path)).items()
    file = next((tmp_path / uuid).rglob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(GovernanceError, match="FILE"):
        run(str(tmp_path), fit=fit(6, latest_checkpoint=uuid))


def test_t9_a_flipped_byte_in_any_file_of_a_checkpoint_is_refused(tmp_path, judged):
    run(str(tmp_path), policy=PROFILED, fit=fit(3))
    ((uuid, _),) = segments(str(tmp_path)).items()
    listed = json.loads((tmp_path / uuid / "manifest.json").read_text())["files"]
    assert {"model_0.safetensors", "trainer.json", "trainer.safetensors"} <= set(listed)
    for name in listed:
        file = tmp_path / uuid / name
        raw = file.read_bytes()
        for place in {0, len(raw) // 2, len(raw) - 1} if raw else ():
            file.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
            with pytest.raises(GovernanceError, match="FILE"):
                run(str(tmp_path), policy=PROFILED, fit=fit(6, latest_checkpoint=uuid))
        file.write_bytes(raw)
    run(str(tmp_path), policy=PROFILED, fit=fit(4, latest_checkpoint=uuid))


def test_t9_what_a_checkpoint_lacks_to_be_continued_is_named(tmp_path):
    trial = run(str(tmp_path), fit=fit(3))
    found = missing_state({"trial_state": {}}, trial.context)
    assert [one.code for one in found] == ["STATE"] * 3
    assert "optimizers" in str(found[0])


def test_each_checkpoint_has_a_profile_of_its_weights_on_one_probe(tmp_path, judged):
    asked, _ = judged
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    trial = run(whole, policy=PROFILED, fit=fit(9))
    profiles = [segment.profile for _, _, segment in chain_of(whole)]
    assert all(one is not None for one in profiles)
    assert len({one.models[0].probe for one in profiles if one}) == 1
    assert len({tuple(one.models[0].output) for one in profiles if one}) == 3
    assert profiles[0] is not None
    assert (profiles[0].rtol, list(profiles[0].models[0].layers)) == (0.05, ["0", "2"])
    run(parts, policy=PROFILED, fit=fit(6))
    last = chain_of(parts)[-1][0]
    run(parts, policy=PROFILED, fit=fit(9, latest_checkpoint=last))
    assert [segment.profile for _, _, segment in chain_of(parts)] == profiles
    assert [list(one["found"]) for one in asked] == [[]]
    plain = run(None, fit=fit(9))
    assert [ids for ids, _ in plain.log] == [ids for ids, _ in trial.log]
    assert all(torch.equal(a, b) for a, b in zip(plain.log[-1][1], trial.log[-1][1], strict=True))


def test_weights_that_were_exchanged_are_refused_before_they_are_loaded(tmp_path, judged):
    """The digests may have changed for a good reason, as by a cast; what the model makes of the probe may not."""
    asked, _ = judged
    run(str(tmp_path), policy=PROFILED, fit=fit(3))
    ((uuid, _),) = segments(str(tmp_path)).items()
    rewrite(tmp_path / uuid, lambda weights: {name: one.bfloat16().double() for name, one in weights.items()})
    run(str(tmp_path), policy=PROFILED, fit=fit(4, latest_checkpoint=uuid))
    assert list(asked[-1]["found"]) == []
    signed = segments(str(tmp_path))[uuid][1].profile
    assert signed is not None
    assert load_probe(tmp_path / uuid).digest == signed.models[0].probe
    rewrite(tmp_path / uuid, lambda weights: {name: one * 1.5 for name, one in weights.items()})
    with pytest.raises(GovernanceError, match="PROFILE: outputs for the probe are off by") as refused:
        run(str(tmp_path), policy=PROFILED, fit=fit(6, latest_checkpoint=uuid))
    assert refused.value.code == "governance.profile"


def rewrite(folder: Path, change: Any) -> None:
    """Change the weights of a checkpoint, and its manifest with them."""
    file = folder / "model_0.safetensors"
    save_file(change(load_file(file)), file)
    manifest = json.loads((folder / "manifest.json").read_text())
    said = manifest["files"][file.name]
    said.update(size=file.stat().st_size, digest=f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_each_validation_tells_in_how_many_directions_layers_differ_on_the_probe(tmp_path):
    trial = run(str(tmp_path), policy=PROFILED, fit=fit(6, validation_period=Batch(3)))
    signed = [one.models[0] for _, _, segment in chain_of(str(tmp_path)) if (one := segment.profile)]
    told = [one["gov/profile"] for one in trial.told]
    assert [one["probe"] for one in told] == [[one.probe] for one in signed]
    assert [one["layers"] for one in told] == [["0", "2"], ["0", "2"]]
    assert [one["dimension"] for one in told] == [[one.layers[name][1] for name in ("0", "2")] for one in signed]
    assert told[0]["dimension"] != told[1]["dimension"]


def test_without_profiles_checkpoints_keep_no_sample(tmp_path):
    run(str(tmp_path), fit=fit(3, validation_period=Batch(1)))
    ((uuid, (_, segment)),) = segments(str(tmp_path)).items()
    assert segment.profile is None
    assert "probe" not in read_state(tmp_path / uuid)
    with pytest.raises(CheckpointError, match="keeps no probe of model 0"):
        load_probe(tmp_path / uuid)
