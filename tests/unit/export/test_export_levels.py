"""What goes out with a model names a level for each source, with what that does not promise; none for the model."""

from __future__ import annotations

import json
from typing import Any

from detlab.export.bom import bill_of_materials
from detlab.export.card import model_card
from detlab.export.contents import Contents
from detlab.schemas.wire.governance.evidence import EvidenceSummary, SourceSummary
from detlab.schemas.wire.registry import VersionView

SOURCES = [
    SourceSummary(name="trusted", samples=9, level="direct"),
    SourceSummary(name="partner", samples=4, level="isolated"),
]


def governed(version: VersionView, enforce: str = "strict") -> VersionView:
    said = EvidenceSummary(key_id="a1", enforce=enforce, sources=SOURCES)
    return version.model_copy(update={"lineage": version.lineage.model_copy(update={"governed": said})})


def test_a_card_has_a_level_for_each_source(version: VersionView, contents: Contents) -> None:
    card = model_card(governed(version), contents)
    assert "| trusted | direct | 9 |" in card
    assert "| partner | isolated | 4 |" in card
    assert "not promised: that it has no influence" in card
    assert "not promised: privacy" in card
    assert "no level is promised" not in card
    assert "no level is promised" in model_card(governed(version, "audit"), contents)


def test_a_bill_has_a_level_for_each_data_set(version: VersionView, contents: Contents) -> None:
    document: dict[str, Any] = json.loads(bill_of_materials(governed(version), contents))
    card = document["metadata"]["component"]["modelCard"]
    sets = {one["name"]: one["contents"]["properties"] for one in card["modelParameters"]["datasets"]}
    assert {"name": "detlab:level", "value": "isolated"} in sets["partner"]
    assert {"name": "detlab:level", "value": "direct"} in sets["trusted"]
    assert any(one["name"] == "detlab:not promised" for one in sets["trusted"])
    assert not any("level" in one["name"] for one in card["properties"])
