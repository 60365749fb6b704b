"""T9: whatever is changed of evidence or ledger is refused, with the right code; no clock, key file or database."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from detlab.governance import REFUSALS, Policy, TrainedParameter, compile_policy
from detlab.governance.evidence import (
    CHECKPOINT_PREDICATE,
    PublicKey,
    ed25519_check,
    envelope,
    key_id,
    opened,
    statement,
    to_sign,
)
from detlab.governance.ledger import SEGMENT, LedgerEntry, MatrixRecord, Touch, chain_problems, joined, lineage, who
from detlab.governance.verification import Continuation, StoredEvidence, intact, verify

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RAW = PRIVATE.public_key().public_bytes_raw()
KEY = key_id(RAW)
BLOCK = {
    "version": 1,
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}, {"source": "web", "layers": "body", "scale": 0.0}],
}
PLAN = compile_policy(Policy.of(BLOCK), [TrainedParameter("body.w", (2,)), TrainedParameter("head.w", (2,))])
DIGEST = "sha256:" + "ab" * 32
TODAY = datetime.date(2026, 1, 1)


def stored(steps=(5, 9)) -> StoredEvidence:
    entries: list[LedgerEntry] = []
    for number, step in enumerate(steps):
        body = {
            "parent": entries[-1].checkpoint if entries else None,
            "first_step": steps[number - 1] if number else 0,
            "step": step,
            "counts": {"trusted": 3, "web": 2},
            "total": {"trusted": 3, "web": 2},
            "taint": {"trusted": [PLAN.s_hash], "web": [PLAN.s_hash]},
            "s_hash": PLAN.s_hash,
            "policy_hash": PLAN.policy_hash,
        }
        entries.append(LedgerEntry.after(entries[-1] if entries else None, 7, SEGMENT, f"c{number}", body, 1.5))
    head = entries[-1]
    predicate = {
        "format": 1,
        "trial": 7,
        "step": steps[-1],
        "policy_hash": PLAN.policy_hash,
        "s_hash": PLAN.s_hash,
        "taint": head.body["taint"],
        "ledger": {"index": head.index, "hash": head.hash},
    }
    payload = statement(head.checkpoint, DIGEST, CHECKPOINT_PREDICATE, predicate)
    return StoredEvidence(
        head.checkpoint,
        7,
        steps[-1],
        DIGEST,
        envelope(payload, KEY, PRIVATE.sign(to_sign(payload))),
        entries,
        {},
        {PLAN.s_hash: PLAN.matrix},
        {KEY: PublicKey(KEY, RAW)},
    )


def asked(**more) -> Continuation:
    return dataclasses.replace(Continuation(7, PLAN.policy, PLAN.matrix, DIGEST, TODAY), **more)


def codes(found) -> list[str]:
    return [one.code for one in verify(found, asked(), ed25519_check)]


def test_what_is_as_it_was_signed_is_accepted() -> None:
    assert codes(stored()) == []


def test_t9_each_character_of_an_envelope_counts() -> None:
    whole = stored()
    for key in ("payloadType", "payload"):
        for place in range(len(whole.envelope[key])):
            changed = copy.deepcopy(whole.envelope)
            text = changed[key]
            changed[key] = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
            assert codes(dataclasses.replace(whole, envelope=changed)) == ["SIG"], (key, place)
    for key in ("keyid", "sig"):
        for place in range(len(whole.envelope["signatures"][0][key])):
            changed = copy.deepcopy(whole.envelope)
            text = changed["signatures"][0][key]
            changed["signatures"][0][key] = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
            assert codes(dataclasses.replace(whole, envelope=changed)) == ["SIG"], (key, place)


@pytest.mark.parametrize("wrong", [None, {}, [], "x", {"payloadType": "x"}, 3])
def test_t9_what_is_no_envelope_is_sig(wrong) -> None:
    assert codes(dataclasses.replace(stored(), envelope=wrong)) == ["SIG"]


def test_t9_more_signatures_or_further_keys_are_not_taken() -> None:
    whole = stored()
    twice = {**whole.envelope, "signatures": whole.envelope["signatures"] * 2}
    more = {**whole.envelope, "comment": "x"}
    for changed in (twice, more, {**whole.envelope, "signatures": []}):
        assert codes(dataclasses.replace(whole, envelope=changed)) == ["SIG"]


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for key, item in enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def test_t9_each_field_of_each_entry_counts() -> None:
    whole = stored()
    for number, entry in enumerate(whole.entries):
        for field in ("trial_id", "index", "kind", "checkpoint", "previous", "at", "hash"):
            was = getattr(entry, field)
            other = was + 1 if isinstance(was, int | float) else f"{was}x"
            entries = list(whole.entries)
            entries[number] = dataclasses.replace(entry, **{field: other})
            assert codes(dataclasses.replace(whole, entries=entries)) == ["CHAIN"], (number, field)
        for path, value in leaves(dict(entry.body)):
            body = json.loads(json.dumps(entry.body))
            at = body
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value + 1 if isinstance(value, int) else f"{value}x"
            entries = list(whole.entries)
            entries[number] = dataclasses.replace(entry, body=body)
            assert codes(dataclasses.replace(whole, entries=entries)) == ["CHAIN"], (number, path)


def test_t9_a_ledger_without_an_entry_or_in_another_order_is_chain() -> None:
    whole = stored((3, 5, 9))
    for entries in (whole.entries[1:], whole.entries[:-1], whole.entries[::-1], [], [whole.entries[0], *whole.entries]):
        assert codes(dataclasses.replace(whole, entries=entries)) == ["CHAIN"]
    anew = [LedgerEntry.after(None, 7, SEGMENT, one.checkpoint, one.body, one.at) for one in whole.entries[-1:]]
    assert codes(dataclasses.replace(whole, entries=anew)) == ["CHAIN"]  # consistent, and not what was signed


def test_t9_batches_that_nobody_recorded_are_chain() -> None:
    first = LedgerEntry.after(None, 7, SEGMENT, "a", {"parent": None, "first_step": 0, "step": 5}, 1.0)
    second = LedgerEntry.after(first, 7, SEGMENT, "b", {"parent": "a", "first_step": 6, "step": 9}, 1.0)
    assert chain_problems([first, second]) == []
    payload_of = {"format": 1, "trial": 7, "step": 9, "ledger": {"index": 1, "hash": second.hash}}
    payload = statement("b", DIGEST, CHECKPOINT_PREDICATE, payload_of)
    signed = envelope(payload, KEY, PRIVATE.sign(to_sign(payload)))
    whole = dataclasses.replace(stored(), checkpoint="b", entries=[first, second], envelope=signed)
    (found,) = intact(whole, ed25519_check)
    assert (found.code, "batches 5 to 6" in found.message) == ("CHAIN", True)


def test_t9_a_matrix_that_was_changed_or_lost_is_chain() -> None:
    whole = stored()
    scales = tuple(tuple(0.0 for _ in row) for row in PLAN.scales)
    for matrices in ({}, {PLAN.s_hash: dataclasses.replace(PLAN.matrix, scales=scales)}):
        assert set(codes(dataclasses.replace(whole, matrices=matrices))) == {"CHAIN"}


def test_t9_evidence_of_another_checkpoint_trial_or_step_is_sig() -> None:
    whole = stored()
    for change in ({"checkpoint": "c0"}, {"trial_id": 8}, {"step": 10}, {"manifest_digest": "sha256:" + "0" * 64}):
        assert codes(dataclasses.replace(whole, **change)) == ["SIG"]


def test_t9_a_later_format_is_env() -> None:
    payload = statement("c1", DIGEST, CHECKPOINT_PREDICATE, {"format": 2, "trial": 7, "step": 9})
    whole = dataclasses.replace(stored(), envelope=envelope(payload, KEY, PRIVATE.sign(to_sign(payload))))
    assert codes(whole) == ["ENV"]


def test_t9_a_revoked_key_is_sig_and_a_retired_one_holds() -> None:
    for state, expected in (("REVOKED", ["SIG"]), ("RETIRED", [])):
        assert codes(dataclasses.replace(stored(), keys={KEY: PublicKey(KEY, RAW, state)})) == expected
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    assert codes(dataclasses.replace(stored(), keys={KEY: PublicKey(KEY, other)})) == ["SIG"]  # a stolen id


def test_the_published_vector_of_dsse_is_signed_as_it_says() -> None:
    """The example of the DSSE protocol, with our payload type in place of its."""
    assert to_sign(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"


def test_the_published_vector_of_ed25519_is_accepted() -> None:
    """RFC 8032, section 7.1, test 2."""
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert ed25519_check(public, b"\x72", signature)
    assert not ed25519_check(public, b"\x73", signature)
    assert not ed25519_check(b"short", b"\x72", signature)


def test_an_envelope_that_says_no_statement_is_refused() -> None:
    payload = b'{"_type":"x"}'
    with pytest.raises(ValueError, match="no in-toto statement"):
        opened(envelope(payload, KEY, PRIVATE.sign(to_sign(payload))), {KEY: PublicKey(KEY, RAW)}, ed25519_check)


def test_who_says_which_source_reached_which_layer_and_when() -> None:
    whole = stored()
    segments = lineage(whole.entries, "c1")
    assert [one.checkpoint for one in segments] == ["c0", "c1"]
    found = who(segments, whole.matrices)
    assert [(one.source, one.first, one.last, one.layers) for one in found] == [
        ("trusted", 0, 5, ("body", "head")),
        ("web", 0, 5, ("head",)),
        ("trusted", 5, 9, ("body", "head")),
        ("web", 5, 9, ("head",)),
    ]
    assert {one.source for one in who(segments, whole.matrices, layer="body")} == {"trusted"}
    assert {one.layers for one in who(segments, whole.matrices, source="web")} == {("head",)}


def test_segments_of_a_source_that_follow_each_other_are_one_line() -> None:
    """After 25 checkpoints there were 50 lines, all of which said the same."""
    whole = stored()
    found = joined(who(lineage(whole.entries, "c1"), whole.matrices))
    assert [(one.source, one.first, one.last) for one in found] == [("trusted", 0, 9), ("web", 0, 9)]
    parts = [
        Touch("web", 0, 5, 10, ("head",)),
        Touch("web", 5, 9, 1, ("head", "body")),  # another matrix
        Touch("web", 9, 12, 2, ("head", "body")),
        Touch("web", 20, 25, 4, ("head", "body")),  # nothing in between
        Touch("trusted", 25, 30, 4, ("head", "body")),
        Touch("web", 25, 30, 4, ("head", "body"), "direct"),  # at another level
    ]
    assert [(one.source, one.first, one.last, one.samples) for one in joined(parts)] == [
        ("web", 0, 5, 10),
        ("web", 5, 12, 3),
        ("web", 20, 25, 4),
        ("trusted", 25, 30, 4),
        ("web", 25, 30, 4),
    ]


def test_a_matrix_that_is_none_is_refused() -> None:
    body = PLAN.matrix.body()
    assert MatrixRecord.of(json.loads(json.dumps(body))).s_hash == PLAN.s_hash
    for wrong in ({}, {**body, "scales": []}, {**body, "levels": [["direct"]] * 2}, {**body, "scales": "x"}):
        with pytest.raises(ValueError, match="matrix"):
            MatrixRecord.of(wrong)


def test_the_eleven_codes_of_recovery_have_a_next_thing_to_do() -> None:
    eleven = ["SIG", "FILE", "CHAIN", "POLICY", "STRUCT", "DATA", "REVOKED", "STATE", "PROFILE", "ENV", "COVER"]
    assert all(REFUSALS[code] for code in eleven)
