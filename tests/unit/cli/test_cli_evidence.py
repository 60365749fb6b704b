"""`det governance verify --profile`, and what it says of sources that are withdrawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from detlab.cli.commands.registry.evidence import compared_with, verify
from detlab.cli.invocation import Invocation
from detlab.client import Client
from detlab.client.transport.calls import Retries
from detlab.errors import DetlabError
from detlab.schemas.wire.governance.evidence import EvidenceView, ModelProfile, RefusalView

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
