"""The master signs what checkpoints were learnt from, and refuses to go on from what does not verify."""

from __future__ import annotations

import asyncio
import base64
import copy
import dataclasses
import json
import stat
import sys
import textwrap

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from governed_world import POLICY, ROSTER, another_trial, governed_trial
from services_scripted import ALICE, BOB, DIGEST, ROOT
from sqlalchemy import delete, update

from detlab.errors import CheckpointError, Conflict, Forbidden, NotFound, Unavailable
from detlab.governance import Policy, TrainedParameter, compile_policy
from detlab.governance.evidence import ed25519_check, envelope, key_id, opened, to_sign
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.storage_types import StorageHolder
from detlab.schemas.wire.governance.evidence import RecordMatrix, RevokeKey
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.failures import cards
from detlab_hub.services.governance.evidence import SignedEvidence
from detlab_hub.services.governance.keys import SigningKeys, folder_of, public_keys
from detlab_hub.services.governance.reading import EvidenceReading, summary_of
from detlab_hub.services.registry.lineage import capture
from detlab_hub.store.queries.registry import evidence as governance
from detlab_hub.store.tables import CheckpointRow, EvidenceRow, ExperimentRow, LedgerRow, TrialRow

CODE_DIGEST = "tree:" + "3" * 64


async def change(world, statement) -> None:
    await world.services.context.write(lambda unit: unit.session.execute(statement))


async def test_a_trial_whose_code_ignores_the_policy_is_warned_of_once(make_world):
    trial = await governed_trial(make_world)
    await trial.save(5)
    service = trial.world.services[Experiments]
    number = (await trial.world.services.context.read(lambda s: s.get_one(TrialRow, trial.trial_id))).experiment_id
    assert (await service.get(ALICE, number)).warnings == []
    for step in (6, 7):
        await trial.commit(checkpoint_id(step << 80, trial.trial_id), step, None)
    told = (await service.get(ALICE, number)).warnings
    assert told == [f"trial {trial.trial_id}: {cards.UNGOVERNED}"]


async def test_a_commit_is_signed_in_its_transaction_and_the_chain_grows(make_world):
    trial = await governed_trial(make_world)
    await change(trial.world, update(ExperimentRow).values(bundle=CODE_DIGEST))
    first = await trial.save(5)
    second = await trial.save(9, first, 5, counts={"trusted": 4})
    reading = trial.world.services[EvidenceReading]
    seen = await reading.of_checkpoint(ALICE, second)
    keys = {one.id: one for one in seen.keys}
    trusted = public_keys(await trial.world.services.context.read(governance.keys))
    said = opened(seen.envelope, trusted, ed25519_check)
    assert seen.problems == []
    assert said["subject"] == [{"name": second, "digest": {"sha256": DIGEST.removeprefix("sha256:")}}]
    predicate = said["predicate"]
    assert predicate == seen.predicate
    assert predicate["taint"] == {"trusted": [trial.plan.s_hash], "web": [trial.plan.s_hash]}
    assert {one["name"]: one["samples"] for one in predicate["sources"]} == {"trusted": 34, "web": 10}
    assert (predicate["parent"], predicate["ledger"]["index"]) == (first, 1)
    assert predicate["code"] == CODE_DIGEST
    assert keys[predicate["key_id"]].state == "ACTIVE"
    page = await reading.ledger(ALICE, trial.trial_id)
    assert [(one.index, one.kind, one.checkpoint) for one in page.items] == [
        (0, "segment", first),
        (1, "segment", second),
    ]
    assert await trial.codes(second) == []
    assert len((await reading.ledger(ALICE, trial.trial_id)).items) == 2  # nothing new is to be said


async def test_a_commit_again_signs_nothing_again(make_world):
    trial = await governed_trial(make_world)
    first = await trial.save(5)
    await trial.commit(first, 5, trial.segment(None, 0))
    assert len((await trial.world.services[EvidenceReading].ledger(ALICE, trial.trial_id)).items) == 1


async def test_a_trial_goes_on_with_another_number_of_ranks_and_each_segment_says_with_how_many(make_world):
    trial = await governed_trial(make_world)
    first = await trial.save(5, world_size=4)
    assert await trial.codes(first) == []
    second = await trial.save(9, first, 5, world_size=2)
    assert await trial.codes(second) == []
    page = await trial.world.services[EvidenceReading].ledger(ALICE, trial.trial_id)
    assert [one.body["world_size"] for one in page.items] == [4, 2]


BROKEN_SEGMENTS = {
    "a gap": ({"first": 7}, "CHAIN"),
    "an overlap": ({"first": 3}, "CHAIN"),
    "a stranger": ({"parent": "00000000-0000-4000-8000-000000000000"}, "CHAIN"),
    "new weights late": ({"parent": None, "first": 5}, "CHAIN"),
    "another policy": ({"policy_hash": "sha256:" + "0" * 64}, "POLICY"),
    "another matrix": ({"s_hash": "sha256:" + "0" * 64}, "POLICY"),
}


@pytest.mark.parametrize("name", BROKEN_SEGMENTS)
async def test_t9_a_checkpoint_that_does_not_follow_is_not_committed(make_world, name):
    trial = await governed_trial(make_world)
    first = await trial.save(5)
    changes, code = BROKEN_SEGMENTS[name]
    with pytest.raises(Conflict) as error:
        await trial.save(9, **{"parent": first, "first": 5, **changes})
    assert error.value.code == f"governance.{code.lower()}"
    assert await trial.codes(first) == []


async def test_a_profile_of_the_weights_is_signed_with_them(make_world):
    trial = await governed_trial(make_world)
    of_model = {"model": 0, "probe": ROSTER, "samples": 2, "dtype": "", "output": [0.5], "layers": {"0": [1.0, 2.5]}}
    profile = {"rtol": 0.05, "models": [of_model]}
    uuid = await trial.save(5, profile=profile)
    seen = await trial.world.services[EvidenceReading].of_checkpoint(ALICE, uuid)
    assert (seen.problems, seen.predicate["segment"]["profile"]) == ([], profile)
    for wrong in ({"rtol": 0.05, "models": [{**of_model, "output": ["x"]}]}, {"models": []}, {"rtol": 2.0}):
        with pytest.raises(CheckpointError):
            await trial.save(9, uuid, 5, profile=wrong)


async def test_what_is_no_segment_is_refused_and_a_matrix_that_is_none(make_world):
    trial = await governed_trial(make_world)
    for wrong in ({"policy_hash": "x"}, [], {"counts": {"a": -1}}):
        with pytest.raises(CheckpointError):
            await trial.commit("0" * 8 + "-0000-4000-8000-" + "0" * 12, 1, wrong)  # type: ignore[arg-type]
    body = trial.plan.matrix.body()
    for wrong in ({}, {**body, "scales": [[1.0]]}, {**body, "parameters": [["x" * 3_000_000, [1]]]}):
        with pytest.raises(CheckpointError):
            await trial.world.services[SignedEvidence].record_matrix(trial.task.caller, RecordMatrix(matrix=wrong))


async def test_t9_without_evidence_or_with_other_files_nothing_goes_on(make_world):
    trial = await governed_trial(make_world)
    bare = await trial.save(5)
    await change(trial.world, delete(EvidenceRow))
    assert await trial.codes(bare) == ["SIG"]
    ours = await trial.world.services[Audit].page(ROOT, action="attempt.govern")
    assert [one.detail.partition(":")[0] for one in ours.items] == ["SIG"]
    assert await trial.codes(bare) == ["SIG"]  # said again, and recorded once
    assert len((await trial.world.services[Audit].page(ROOT, action="attempt.govern")).items) == 1


async def test_t9_another_manifest_is_file(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    assert await trial.codes(uuid, manifest_digest="sha256:" + "1" * 64) == ["FILE"]
    await change(trial.world, update(CheckpointRow).values(manifest_digest="sha256:" + "1" * 64))
    assert await trial.codes(uuid, manifest_digest="sha256:" + "1" * 64) == ["SIG"]


async def test_t9_a_forged_statement_and_a_stolen_key_id_are_sig(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    row = await trial.world.services.context.read(lambda s: copy.deepcopy(s.get(EvidenceRow, uuid).envelope))
    said = json.loads(base64.b64decode(row["payload"]))
    said["predicate"]["taint"] = {}
    payload = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    thief = Ed25519PrivateKey.generate()
    own = key_id(thief.public_key().public_bytes_raw())
    for name in (row["signatures"][0]["keyid"], own):
        forged = envelope(payload, name, thief.sign(to_sign(payload)))
        await change(trial.world, update(EvidenceRow).values(envelope=forged))
        assert await trial.codes(uuid) == ["SIG"]
    unsigned = {**row, "payload": base64.b64encode(payload).decode()}
    await change(trial.world, update(EvidenceRow).values(envelope=unsigned))
    assert await trial.codes(uuid) == ["SIG"]
    await change(trial.world, update(EvidenceRow).values(envelope=row))
    assert await trial.codes(uuid) == []


async def test_t9_a_changed_ledger_or_a_gap_in_it_is_chain(make_world):
    trial = await governed_trial(make_world)
    first = await trial.save(5)
    second = await trial.save(9, first, 5)
    rows = await trial.world.services.context.read(
        lambda s: [dict(r.body) for r in governance.ledger(s, trial.trial_id)]
    )
    for index in (0, 1):
        body = {**rows[index], "counts": {"trusted": 40}}
        await change(trial.world, update(LedgerRow).where(LedgerRow.index == index).values(body=body))
        assert await trial.codes(second) == ["CHAIN"]
        await change(trial.world, update(LedgerRow).where(LedgerRow.index == index).values(body=rows[index]))
    await change(trial.world, delete(LedgerRow).where(LedgerRow.kind == "refused"))
    assert await trial.codes(second) == []
    await change(trial.world, delete(LedgerRow).where(LedgerRow.index == 0))
    assert await trial.codes(second) == ["CHAIN"]


async def test_t9_a_rollback_is_chain_unless_the_newer_files_are_damaged_or_gone(make_world):
    trial = await governed_trial(make_world)
    first = await trial.save(5)
    second = await trial.save(9, first, 5)
    assert await trial.codes(first) == ["CHAIN"]
    assert await trial.codes(first, damaged=[second]) == []
    page = await trial.world.services[EvidenceReading].ledger(ALICE, trial.trial_id)
    fork = page.items[-1]
    assert (fork.kind, fork.checkpoint, fork.body["from"], fork.body["damaged"]) == ("fork", first, second, [second])
    assert fork.envelope is not None
    third = await trial.save(8, first, 5)
    assert await trial.codes(third) == []
    await change(trial.world, update(LedgerRow).where(LedgerRow.kind == "fork").values(envelope=None))
    assert await trial.codes(third) == ["CHAIN"]  # a fork that nobody signed


async def test_a_newer_checkpoint_that_was_deleted_is_no_rollback(make_world):
    trial = await governed_trial(make_world)
    first = await trial.save(5)
    second = await trial.save(9, first, 5)
    await trial.world.services.context.write(
        lambda unit: setattr(unit.session.get(CheckpointRow, second), "state", "DELETED")
    )
    assert await trial.codes(first) == []


async def test_t9_data_and_structure_that_differ_are_refused(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    assert await trial.codes(uuid, roster="sha256:" + "6" * 64) == ["DATA"]
    await change(trial.world, delete(LedgerRow).where(LedgerRow.kind == "refused"))
    trial.plan = compile_policy(
        Policy.of(POLICY), [TrainedParameter("body.weight", (3, 2)), *trial.plan.parameters[1:]]
    )
    await trial.record()
    assert await trial.codes(uuid) == ["STRUCT"]


async def test_t9_what_the_trial_itself_finds_is_recorded_too(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    said = [{"code": "STATE", "message": "the checkpoint has not the state of its optimizers"}]
    assert await trial.codes(uuid, refusals=said) == ["STATE"]
    page = await trial.world.services[EvidenceReading].ledger(ALICE, trial.trial_id)
    assert [one.kind for one in page.items] == ["segment", "refused"]


async def test_another_trial_begins_with_it_if_its_policy_allows_what_is_in_the_weights(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    wider = {**POLICY, "rules": POLICY["rules"][:1]}
    source = {"searcher": {"name": "single", "metric": "loss", "source_checkpoint_uuid": uuid}}
    heir = await another_trial(trial.world, wider, **source)
    assert await heir.codes(uuid) == []
    own = await heir.save(3, uuid, 0, counts={"trusted": 2})
    seen = await trial.world.services[EvidenceReading].of_checkpoint(ALICE, own)
    assert seen.problems == []
    assert sorted(seen.predicate["taint"]["trusted"]) == sorted([trial.plan.s_hash, heir.plan.s_hash])
    assert seen.predicate["taint"]["web"] == [trial.plan.s_hash]
    page = await trial.world.services[EvidenceReading].ledger(ALICE, heir.trial_id)
    assert [one.kind for one in page.items] == ["transition", "segment"]


@pytest.mark.parametrize(
    ("sources", "rules", "code"),
    [
        (POLICY["sources"], [*POLICY["rules"], {"source": "web", "layers": "head", "scale": 0.0}], "POLICY"),
        (POLICY["sources"][:1], POLICY["rules"][:1], "REVOKED"),
    ],
)
async def test_t9_a_source_that_is_closed_or_withdrawn_now_is_refused_where_it_has_trained(
    make_world, sources, rules, code
):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    narrower = {**POLICY, "sources": sources, "rules": rules}
    source = {"searcher": {"name": "single", "metric": "loss", "source_checkpoint_uuid": uuid}}
    heir = await another_trial(trial.world, narrower, **source)
    assert await heir.codes(uuid) == [code]
    with pytest.raises(Conflict, match="CHAIN"):
        await heir.save(3, uuid, 0)  # it goes on nevertheless: nothing of it is stored


async def test_t9_a_source_whose_last_day_is_over_is_revoked(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    trial.world.services.context.clock = lambda: 2_000_000_000.0
    assert await trial.codes(uuid) == ["REVOKED"]


async def test_t9_too_little_of_declared_source_is_cover(make_world):
    block = {**POLICY, "default": "allow", "constraints": {"provenance_coverage": {"min": 0.9}}}
    trial = await governed_trial(make_world, block)
    uuid = await trial.save(5, counts={"trusted": 8, "": 2})
    assert await trial.codes(uuid) == ["COVER"]


async def test_evidence_outlives_its_checkpoint_and_only_readers_see_it(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    reading = trial.world.services[EvidenceReading]
    assert (await reading.of_checkpoint(ALICE, uuid[:8])).checkpoint == uuid
    begun = reading.of_checkpoint(BOB, uuid[:8])
    for ask in (reading.of_checkpoint(BOB, uuid), begun, reading.ledger(BOB, trial.trial_id)):
        with pytest.raises(NotFound) as hidden:
            await ask
        assert "evidence" not in hidden.value.message
    with pytest.raises(NotFound):
        await reading.matrix(BOB, trial.trial_id, trial.plan.s_hash)
    assert (await reading.matrix(ALICE, trial.trial_id, trial.plan.s_hash)).matrix == trial.plan.matrix.body()
    with pytest.raises(NotFound):
        await reading.matrix(ALICE, trial.trial_id, "sha256:" + "0" * 64)
    await change(trial.world, delete(CheckpointRow))
    assert (await reading.of_checkpoint(ROOT, uuid)).problems == []
    with pytest.raises(NotFound):
        await reading.of_checkpoint(ALICE, uuid)


# --- keys


async def test_keys_lie_beside_the_other_secrets_and_are_rotated_and_revoked(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    keys = trial.world.services[SigningKeys]
    (old,) = (await keys.page()).items
    path = folder_of(trial.world.settings) / f"{old.id}.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for ask in (keys.rotate(ALICE), keys.revoke(ALICE, old.id, RevokeKey())):
        with pytest.raises(Forbidden):
            await ask
    new = next(one for one in (await keys.rotate(ROOT)).items if one.state == "ACTIVE")
    assert not path.exists()
    assert new.id != old.id
    assert await trial.codes(uuid) == []
    second = await trial.save(9, uuid, 5)
    await trial.world.reboot()
    assert await trial.codes(second) == []
    keys = trial.world.services[SigningKeys]
    third = await trial.save(10, second, 9)
    seen = await trial.world.services[EvidenceReading].of_checkpoint(ALICE, third)
    assert seen.predicate["key_id"] == new.id  # the same one after a restart
    with pytest.raises(NotFound):
        await keys.revoke(ROOT, "f" * 64, RevokeKey())
    await keys.revoke(ROOT, old.id, RevokeKey(reason="it was copied"))
    assert [one.code for one in (await trial.world.services[EvidenceReading].of_checkpoint(ALICE, uuid)).problems] == [
        "SIG"
    ]
    assert await trial.codes(third) == []


async def test_a_key_that_is_changed_on_disk_signs_nothing(make_world):
    trial = await governed_trial(make_world)
    await trial.save(5)
    (path,) = folder_of(trial.world.settings).glob("*.key")
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes_raw())
    await trial.world.reboot()
    with pytest.raises(Unavailable, match="another key"):
        await trial.save(9)


async def test_a_restored_copy_signs_with_a_key_of_its_own(make_world):
    trial = await governed_trial(make_world, holder=StorageHolder("c", "original", 1))
    uuid = await trial.save(5)
    (old,) = (await trial.world.services[SigningKeys].page()).items
    trial.world.settings = dataclasses.replace(trial.world.settings, holder=StorageHolder("c", "heir", 2))
    await trial.world.reboot()
    assert await trial.codes(uuid) == []
    second = await trial.save(9, uuid, 5)
    seen = await trial.world.services[EvidenceReading].of_checkpoint(ALICE, second)
    assert seen.predicate["key_id"] != old.id
    assert [one.installation for one in seen.keys if one.id == seen.predicate["key_id"]] == ["heir"]


SIGNER = """
    import sys
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(sys.argv[1]))
    sys.stdout.buffer.write(key.sign(sys.stdin.buffer.read()))
"""


async def test_an_administrators_command_signs(make_world, tmp_path):
    private = Ed25519PrivateKey.generate()
    program = tmp_path / "signer.py"
    program.write_text(textwrap.dedent(SIGNER))
    command = (sys.executable, str(program), private.private_bytes_raw().hex())
    public = private.public_key().public_bytes_raw()
    trial = await governed_trial(make_world, evidence_signer=command, evidence_signer_key=public.hex())
    uuid = await trial.save(5)
    assert await trial.codes(uuid) == []
    seen = await trial.world.services[EvidenceReading].of_checkpoint(ALICE, uuid)
    assert seen.predicate["key_id"] == key_id(public)
    assert not folder_of(trial.world.settings).exists()
    with pytest.raises(Conflict):
        await trial.world.services[SigningKeys].rotate(ROOT)


async def test_a_command_that_signs_with_another_key_or_nothing_stores_nothing(make_world, tmp_path):
    program = tmp_path / "signer.py"
    program.write_text(textwrap.dedent(SIGNER))
    other = Ed25519PrivateKey.generate().private_bytes_raw().hex()
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    trial = await governed_trial(
        make_world, evidence_signer=(sys.executable, str(program), other), evidence_signer_key=public
    )
    with pytest.raises(Unavailable):
        await trial.save(5)
    assert await trial.world.services.context.read(lambda s: governance.ledger(s, trial.trial_id)) == []


async def test_commits_of_two_trials_at_once_have_chains_of_their_own(make_world):
    trial = await governed_trial(make_world)
    other = await another_trial(trial.world, POLICY)
    await asyncio.gather(trial.save(5), other.save(5))
    for one in (trial, other):
        page = await trial.world.services[EvidenceReading].ledger(ALICE, one.trial_id)
        assert [entry.index for entry in page.items] == [0]


async def test_a_source_that_is_closed_to_all_layers_is_seen_and_not_learnt_from(make_world):
    closed = {**POLICY, "rules": [POLICY["rules"][0], {"source": "web", "layers": ".*", "scale": 0.0}]}
    trial = await governed_trial(make_world, closed)
    uuid = await trial.save(5)
    seen = await trial.world.services[EvidenceReading].of_checkpoint(ALICE, uuid)
    assert (set(seen.predicate["taint"]), seen.learnt_from) == ({"trusted", "web"}, ["trusted"])
    said = await trial.world.services.context.read(lambda s: summary_of(s, uuid))
    assert {one.name: (one.reached, one.level) for one in said.sources} == {
        "trusted": (True, "direct"),
        "web": (False, ""),
    }
    assert (seen.levels, said.enforce) == ({"trusted": "direct"}, "strict")


async def test_a_version_of_a_model_shows_its_evidence(make_world):
    trial = await governed_trial(make_world)
    uuid = await trial.save(5)
    made = await trial.world.services.context.read(lambda s: capture(s, s.get_one(CheckpointRow, uuid)))
    assert made.governed is not None
    assert made.governed.s_hash == trial.plan.s_hash
    assert [(one.name, one.license, one.samples) for one in made.governed.sources] == [
        ("trusted", "CC-BY-4.0", 30),
        ("web", "unknown", 10),
    ]
    await change(trial.world, delete(EvidenceRow))
    made = await trial.world.services.context.read(lambda s: capture(s, s.get_one(CheckpointRow, uuid)))
    assert made.governed is None
