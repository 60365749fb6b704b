"""`det governance verify --profile`, and what it says of sources that are withdrawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from detlab.cli.commands.registry.evidence import compared_with, signed_by, verify
from detlab.cli.commands.registry.keying import listed_key, manifest_of
from detlab.cli.invocation import Invocation
from detlab.client import Client
from detlab.client.transport.calls import Retries
from detlab.errors import DetlabError
from detlab.governance.evidence import CHECKPOINT_PREDICATE, envelope, key_id, statement, to_sign
from detlab.schemas.wire.governance.evidence import (
    EvidenceView,
    ModelProfile,
    RefusalView,
    SigningKeyView,
    WithdrawnSourceView,
)

PROBE = "sha256:" + "7" * 64
SIGNED = {"model": 0, "probe": PROBE, "samples": 2, "output": [3.0, 4.0], "layers": {"0": [1.0, 2.0], "2": [1.0, 1.5]}}
REVOKED = RefusalView(code="REVOKED", message="the source 'web' was withdrawn")


def seen(profile: Any = None, withdrawn: list[RefusalView] | None = None) -> EvidenceView:
    predicate = {"segment": {"level": "direct", "profile": profile}, "taint": {}}
    return EvidenceView(checkpoint="good", predicate=predicate, withdrawn=withdrawn or [])


@pytest.fixture
def invocation(request: pytest.FixtureRequest) -> Iterator[Invocation]:
    answer = json.loads(request.param.model_dump_json())
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    made = Invocation()
    with Client("http://hub.example", "t", transport=transport, backoff=Retries(attempts=0)) as client:
        made._client = client
        yield made


def signed(private: Ed25519PrivateKey) -> EvidenceView:
    raw = private.public_key().public_bytes_raw()
    payload = statement("good", PROBE, CHECKPOINT_PREDICATE, {"key_id": key_id(raw), "taint": {}})
    keys = [SigningKeyView(id="0" * 64, public_key="ab" * 32), SigningKeyView(id=key_id(raw), public_key=raw.hex())]
    by = envelope(payload, key_id(raw), private.sign(to_sign(payload)))
    return EvidenceView(
        checkpoint="good", manifest_digest=PROBE, envelope=by, predicate={"key_id": key_id(raw), "taint": {}}, keys=keys
    )


OWN, OTHERS = (Ed25519PrivateKey.from_private_bytes(bytes([one]) * 32) for one in (1, 2))
PUBLIC = OWN.public_key().public_bytes_raw()


@pytest.mark.parametrize("invocation", [signed(OWN)], indirect=True)
def test_a_key_is_taken_in_each_form_in_which_it_is_printed(invocation: Invocation) -> None:
    """It took the public key alone, and refused the id which it prints itself behind "signed with"."""
    said = CliRunner().invoke(verify, ["good"], obj=invocation).output
    printed = said.partition("signed with: ")[2].split()[0]
    forms = [printed, PUBLIC.hex(), f"sha256:{printed}", printed.upper(), PUBLIC.hex(":")]
    for form in forms:
        done = CliRunner().invoke(verify, ["good", "--key", form], obj=invocation)
        assert done.exit_code == 0, (form, done.output)
    other = OTHERS.public_key().public_bytes_raw()
    for form in (key_id(other), other.hex(), "0" * 64):
        done = CliRunner().invoke(verify, ["good", "--key", form], obj=invocation)
        assert done.exit_code == 1
        assert f"SIG: it is signed with the key {printed[:16]}…, which is none of those that --key names" in done.output


def test_a_cluster_cannot_pass_off_another_key_under_an_id_that_is_trusted() -> None:
    found, trusted = signed(OTHERS), key_id(PUBLIC)
    (other,) = [one for one in found.keys if one.id != "0" * 64]
    forged = found.model_copy(update={"keys": [SigningKeyView(id=trusted, public_key=other.public_key)]})
    forged.envelope["signatures"][0]["keyid"] = trusted
    assert signed_by(forged, [trusted])[0].startswith("SIG: ")


@pytest.mark.parametrize("invocation", [signed(OWN)], indirect=True)
def test_what_is_no_key_is_told_at_once_with_what_a_key_looks_like(invocation: Invocation) -> None:
    done = CliRunner().invoke(verify, ["good", "--key", "zz", "--key", "9c81…", "--key", "--"], obj=invocation)
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert "--key is 64 hexadecimal digits, a public key (Ed25519) or the id of one, not 'zz', '9c81…', '--'" in said
    assert "all digits are needed" in said
    assert "det governance keys prints both" in said
    assert "fromhex" not in said


def test_a_key_is_revoked_by_what_is_printed_of_it_and_a_manifest_named_so() -> None:
    listed = [SigningKeyView(id="9c81" * 16, public_key="ab" * 32), SigningKeyView(id="9c81" * 15 + "0000")]
    for given in ("9c81" * 16, "AB" * 32, "ab" * 8, "ababababab…"):
        assert listed_key(given, listed) == "9c81" * 16
    for given in ("9c819c81", "zz", "ab", "", "9" * 64):
        with pytest.raises(DetlabError, match=r"9c819c819c819c81… \(ACTIVE\)"):
            listed_key(given, listed)
    withdrawn = [WithdrawnSourceView(source="web", manifest=PROBE), WithdrawnSourceView(source="x")]
    assert {manifest_of(one, withdrawn) for one in (PROBE, "7" * 64, PROBE.upper(), PROBE[:19])} == {PROBE}
    assert manifest_of("", withdrawn) == ""
    for given, known in ((PROBE[:19], ()), ("sha256:zz", withdrawn), ("sha256:", withdrawn), ("77", withdrawn)):
        with pytest.raises(click.UsageError, match="sha256: and 64 hexadecimal digits"):
            manifest_of(given, known)


def written(folder: Path, **more: Any) -> str:
    file = folder / "profile.json"
    file.write_text(ModelProfile.model_validate({**SIGNED, **more}).model_dump_json())
    return str(file)


@pytest.mark.parametrize("invocation", [seen({"rtol": 0.05, "models": [SIGNED]})], indirect=True)
def test_a_converted_model_is_compared_with_what_was_signed(invocation: Invocation, tmp_path: Path) -> None:
    near = written(tmp_path, output=[3.0, 4.05], layers={"0": [1.01, 2.0]})
    done = CliRunner().invoke(verify, ["good", "--profile", near], obj=invocation)
    assert done.exit_code == 0, done.output
    assert "profile: outputs within 0.01 of what was signed (0.05 is allowed), 1 of 2 layers compared" in done.output
    far = written(tmp_path, output=[3.0, 5.0], layers={})
    done = CliRunner().invoke(verify, ["good", "--profile", far], obj=invocation)
    assert done.exit_code == 1
    assert "PROFILE: outputs for the probe are off by 0.2" in done.output


@pytest.mark.parametrize("invocation", [seen(withdrawn=[REVOKED])], indirect=True)
def test_a_withdrawn_source_is_said_and_is_no_success(invocation: Invocation) -> None:
    done = CliRunner().invoke(verify, ["good"], obj=invocation)
    assert (done.exit_code, done.output.strip()) == (1, "REVOKED: the source 'web' was withdrawn")


def test_what_cannot_be_compared_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DetlabError, match="no profile was signed") as none:
        compared_with(seen(), "x")
    assert "profile: {}" in (none.value.hint or "")
    signed = seen({"rtol": 0.05, "models": [SIGNED]})
    (tmp_path / "other.json").write_text("{}")
    for name in (str(tmp_path / "missing"), str(tmp_path / "other.json")):
        with pytest.raises(DetlabError, match="cannot be read"):
            compared_with(signed, name)
    with pytest.raises(DetlabError, match="no profile of model 3"):
        compared_with(signed, written(tmp_path, model=3))
