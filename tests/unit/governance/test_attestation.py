"""What an agent attests: bound to a challenge and to its own key, and about the code that is loaded."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from detlab.governance import attestation as module
from detlab.governance.attestation import (
    attest,
    attestation_key,
    attestation_problem,
    contradictions,
    installed_code,
    key_of,
    loaded_code,
    mac_of,
)
from detlab.schemas.wire.governance.attestation import Attestation, PreflightReport
from detlab.schemas.wire.governance.capabilities import CAPABILITIES, CAPABILITY, ENFORCED, required_by
from detlab_hub.backends.connection import AgentAttestation
from detlab_hub.store.queries.tokens import digest

TOKEN = "dtagent_secret"
NONCE, NEXT = "ab" * 16, "cd" * 16
OTHER = "sha256:" + "0" * 64


def said(**more: Any) -> Attestation:
    given = {"cluster_id": "c", "agent_id": "node", "token": TOKEN, **more}
    return attest(given.pop("nonce", NONCE), **given)


def problem(one: Attestation, **more: Any) -> str:
    expected = {"nonce": NONCE, "cluster_id": "c", "agent_id": "node", "key": attestation_key(digest(TOKEN)), **more}
    return attestation_problem(one, **expected)


def test_an_answer_to_the_challenge_counts_and_says_what_is_enforced():
    assert problem(said()) == ""
    assert said().enforces == sorted(ENFORCED)
    assert said().code == [installed_code()]
    assert key_of(TOKEN) == attestation_key(digest(TOKEN))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"mac": ""}, "not signed"),
        ({"mac": "0" * 64}, "not that of the agent's key"),
        ({"mac": "\u00e4"}, "not that of the agent's key"),
        ({"enforces": [*ENFORCED, "gov.dp@1"]}, "not that of the agent's key"),
        ({"code": [OTHER]}, "not that of the agent's key"),
        ({"version": "9"}, "not that of the agent's key"),
        ({"nonce": NEXT}, "not that of the agent's key"),
    ],
)
def test_a_changed_or_unsigned_one_does_not(changed, why):
    assert why in problem(said().model_copy(update=changed))


def test_nor_one_of_another_agent_cluster_key_or_challenge():
    assert "not that of the agent's key" in problem(said(token="dtagent_other"))
    assert "of agent other" in problem(said(agent_id="other"))
    assert "cluster d" in problem(said(cluster_id="d"))
    assert "another challenge" in problem(said(nonce=NEXT))
    assert "another challenge" in problem(said(nonce=""), nonce="")
    bare = said().model_copy(update={"code": []})
    assert "names no code" in problem(bare.model_copy(update={"mac": mac_of(bare, key_of(TOKEN))}))


def test_a_process_attests_what_it_has_loaded_whatever_is_installed_later(tmp_path, monkeypatch):
    package = tmp_path / "detlab"
    real = module.PACKAGE
    for folder in ("governance", "pytorch"):
        shutil.copytree(real / folder, package / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "PACKAGE", package)
    loaded_code.cache_clear()
    try:
        loaded = loaded_code()
        assert loaded == installed_code() == installed_code(package)
        (package / "pytorch" / "governance" / "router.py").write_text("# nothing is routed\n")
        assert installed_code() != loaded
        assert loaded_code() == loaded
        assert said(warm=lambda: [loaded]).code == sorted({loaded, installed_code()})
    finally:
        loaded_code.cache_clear()
    assert installed_code(real) == loaded, "the folder is not part of it"


def test_an_attestation_ages_from_its_challenge_and_is_renewed_in_time():
    one = AgentAttestation("node", attestation_key(digest(TOKEN)))
    one.ttl = 90.0
    assert "missing" in one.described(0.0)
    one.challenge(NONCE, 100.0)
    assert one.answer(said(), "c")
    assert one.enforces(190.0) == ENFORCED
    assert not one.answer(said(), "c"), "nothing new"
    assert one.enforces(190.1) == frozenset()
    assert one.described(190.1) == "stale"
    assert one.is_due(131.0)
    assert not one.is_due(129.0)
    one.challenge(NEXT, 131.0)
    assert one.answer(said(), "c"), "the old challenge is answered again: that is a replay"
    assert (one.enforces(140.0), one.code) == (frozenset(), frozenset())
    assert "another challenge" in one.described(140.0)
    assert one.answer(said(nonce=NEXT), "c")
    assert one.enforces(220.0) == ENFORCED


def test_an_agent_without_a_key_attests_nothing():
    nobody = AgentAttestation("node", b"")
    nobody.challenge(NONCE, 0.0)
    unsigned = said().model_copy(update={"mac": ""})
    for one in (said(), unsigned, unsigned.model_copy(update={"mac": mac_of(unsigned, b"")})):
        nobody.answer(one, "c")
        assert nobody.enforces(0.0) == frozenset()


def test_what_a_trial_has_loaded_is_compared_with_what_its_node_attests():
    report = PreflightReport(version="1", code=[OTHER], enforces=sorted(ENFORCED))
    needs = {"gov.direct@1", "gov.ledger@1"}
    assert contradictions(report, requires=needs, code={OTHER}) == []
    assert contradictions(report, requires=needs, code=None) == []
    (loaded,) = contradictions(report, requires=needs, code={"sha256:" + "1" * 64})
    assert "has loaded the code sha256:00000" in loaded
    (nothing,) = contradictions(report, requires=needs, code=())
    assert nothing.endswith("attests none")
    (weaker,) = contradictions(report, requires={"gov.dp@1"}, code={OTHER})
    assert "does not enforce gov.dp@1" in weaker


def test_what_a_config_needs_follows_from_its_policy_and_from_what_it_asks_for():
    assert required_by({}) == frozenset()
    assert required_by({"governance": {"enforce": "audit", "level": "dp"}}) == frozenset()
    assert required_by({"governance": {}}) == {"gov.direct@1", "gov.ledger@1"}
    rules = [{"source": "*"}, {"source": "a", "level": "isolated"}]
    strict = {"governance": {"rules": rules, "engine": "dual"}, "resources": {"requires": ["gov.dp@1"]}}
    assert required_by(strict) == {"gov.direct@1", "gov.isolated@1", "gov.dual@1", "gov.ledger@1", "gov.dp@1"}
    assert all(CAPABILITY.fullmatch(name) for name in CAPABILITIES)
    for engine in ("fused", "dual", "microbatch"):
        needed = required_by({"governance": {"engine": engine}})
        assert f"gov.{engine}@1" in needed <= ENFORCED
