"""Bills of materials: valid by CycloneDX's own schema, and filled with what was recorded alone."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from detlab.errors import DetlabError
from detlab.export.bom import bill_of_materials
from detlab.export.contents import Contents
from detlab.schemas.wire.governance.evidence import EvidenceSummary, PrivacySpent, SourceSummary
from detlab.schemas.wire.registry import Lineage, VersionView
from testbed.privacy import SPENT


def valid(text: str) -> dict[str, Any]:
    """The document, once the library's validator has found nothing wrong with it."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    return dict(json.loads(text))


def test_the_validator_would_object() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str('{"bomFormat": "CycloneDX"}') is not None


def test_a_bill_names_model_files_packages_code_and_data(version: VersionView, contents: Contents) -> None:
    bom = valid(bill_of_materials(version, contents))
    model = bom["metadata"]["component"]
    assert (model["type"], model["name"], model["version"]) == ("machine-learning-model", "digits", "3")
    files = {file["name"]: file["hashes"] for file in model["components"]}
    assert files == {
        name: [{"alg": "SHA-256", "content": file.digest.removeprefix("sha256:")}]
        for name, file in contents.files.items()
    }
    card = model["modelCard"]
    assert card["quantitativeAnalysis"]["performanceMetrics"] == [
        {"type": "accuracy", "value": "0.9375"},
        {"type": "training.loss", "value": "0.2"},
        {"type": "validation.accuracy", "value": "0.9375"},
    ]
    (data,) = card["modelParameters"]["datasets"]
    assert (data["type"], data["name"]) == ("dataset", "digits-v3")
    assert data["contents"]["properties"] == [{"name": "detlab:digest", "value": "sha256:" + "ef" * 32}]
    rows = {row["name"]: row["value"] for row in card["properties"]}
    assert rows["detlab:hyperparameter:lr"] == "0.01"
    assert json.loads(rows["detlab:hyperparameter:net"]) == {"act": "relu", "width": 64}
    assert rows["detlab:steps_completed"] == "200"
    assert "considerations" not in card
    parts = {part["bom-ref"]: part for part in bom["components"]}
    assert parts["environment/torch"]["purl"] == "pkg:pypi/torch@2.13.0%2Bcpu"
    assert parts["environment/python"]["type"] == "platform"
    assert "purl" not in parts["environment/python"]
    assert parts["code"]["hashes"] == [{"alg": "SHA-256", "content": "cd" * 32}]
    (needs,) = (row["dependsOn"] for row in bom["dependencies"] if row["ref"] == model["bom-ref"])
    assert set(needs) == set(parts)


def test_the_same_version_gives_the_same_bytes(version: VersionView, contents: Contents) -> None:
    assert bill_of_materials(version, contents) == bill_of_materials(version, contents)
    other = version.model_copy(update={"version": 4})
    first, second = (json.loads(bill_of_materials(each, contents)) for each in (version, other))
    assert first["serialNumber"] != second["serialNumber"]


def test_a_bill_of_a_governed_version_has_the_sources_of_the_ledger_and_its_evidence(
    version: VersionView, contents: Contents
) -> None:
    own = SourceSummary(name="own", license="MIT", samples=9, manifest="sha256:" + "12" * 32, expires="2030-01-01")
    closed = SourceSummary(name="web", samples=3, reached=False)
    spent = PrivacySpent.model_validate(SPENT)
    governed = EvidenceSummary(key_id="ab" * 32, level="dp", ledger_index=4, sources=[own, closed], privacy=spent)
    made = version.model_copy(update={"lineage": version.lineage.model_copy(update={"governed": governed})})
    card = valid(bill_of_materials(made, contents))["metadata"]["component"]["modelCard"]
    declared, learnt = card["modelParameters"]["datasets"]
    assert (declared["name"], learnt["type"], learnt["name"]) == ("digits-v3", "dataset", "own")
    assert {row["name"]: row["value"] for row in learnt["contents"]["properties"]} == {
        "detlab:samples": "9",
        "detlab:license": "MIT",
        "detlab:manifest": own.manifest,
        "detlab:expires": "2030-01-01",
    }
    rows = {row["name"]: row["value"] for row in card["properties"]}
    assert (rows["detlab:evidence:key_id"], rows["detlab:evidence:ledger_index"]) == ("ab" * 32, "4")
    assert json.loads(rows["detlab:evidence:privacy"])["epsilon"] == 3.5


def test_what_was_not_recorded_is_not_there(contents: Contents) -> None:
    bare = VersionView(model_id=1, model="bare", version=1, lineage=Lineage())
    bom = valid(bill_of_materials(bare, contents))
    assert bom["metadata"]["component"]["modelCard"] == {}
    assert bom.get("components", []) == []


def test_odd_names_and_numbers_stay_valid(version: VersionView, contents: Contents) -> None:
    odd = {"<b>\u202e\x00": float("nan"), "ünï": float("inf")}
    made = version.lineage.model_copy(
        update={
            "metrics": odd,
            "hyperparameters": {"a b": None, "\ud800": [1, {"x": float("nan")}]},
            "environment": {"Zope.Interface": "1", "a/b@c": "1 2", "": ""},
            "data": {"x": "v3"},
            "bundle_digest": "sha256:short",
        }
    )
    text = bill_of_materials(version.model_copy(update={"lineage": made, "comment": "\x00"}), contents)
    bom = valid(text)
    assert "\u202e" not in text
    purls = {part.get("purl") for part in bom["components"]}
    assert "pkg:pypi/zope-interface@1" in purls
    (code,) = (part for part in bom["components"] if part["bom-ref"] == "code")
    assert "hashes" not in code


def test_without_the_library_one_is_told_what_to_install(
    version: VersionView, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cyclonedx.output.json", None)
    with pytest.raises(DetlabError, match=r"pip install 'detlab\[registry\]'"):
        bill_of_materials(version, contents)
