"""The dashboard for Grafana: what it draws is what the master exports, and Grafana can read it."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from detlab_hub.services.cluster.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/detlab.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
WIDE = 24
"""Columns of Grafana's grid."""


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_it_draws_every_metric_and_no_other() -> None:
    drawn = {name for expression in expressions() for name in re.findall(r"detlab_\w+", expression)}
    assert drawn == {metric.name for metric in METRICS}
    asked = " ".join(one.get("definition", "") for one in DASHBOARD["templating"]["list"])
    assert set(re.findall(r"detlab_\w+", asked)) <= drawn


@pytest.mark.parametrize("expression", expressions())
def test_expressions_are_whole(expression: str) -> None:
    for left, right in ("()", "{}"):
        assert expression.count(left) == expression.count(right)
    assert set(re.findall(r"\$(\w+)", expression)) <= {one["name"] for one in DASHBOARD["templating"]["list"]}


def test_it_is_a_dashboard_of_grafana() -> None:
    """What Grafana's schema of a dashboard requires, and what its import asks for."""
    assert (DASHBOARD["id"], DASHBOARD["schemaVersion"] >= 36) == (None, True)
    assert re.fullmatch(r"[\w-]{1,40}", DASHBOARD["uid"])
    assert {"title", "tags", "time", "templating", "annotations", "refresh"} <= set(DASHBOARD)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    sources = [one["name"] for one in DASHBOARD["templating"]["list"] if one["type"] == "datasource"]
    for panel in PANELS:
        assert panel["type"] in {"stat", "gauge", "timeseries"}
        assert panel["title"]
        assert panel["description"]
        assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": f"${{{sources[0]}}}"}


def test_no_panel_lies_on_another() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    assert all(at["x"] >= 0 and at["x"] + at["w"] <= WIDE and at["w"] > 0 and at["h"] > 0 for at in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_the_chart_asks_for_readiness_and_liveness_apart() -> None:
    text = (ROOT / "deploy/helm/detlab/templates/master.yaml").read_text(encoding="utf-8")
    probes = dict(re.findall(r"(\w+)Probe:\n\s+httpGet: (\{.*\})", text))
    paths = {name: yaml.safe_load(value)["path"] for name, value in probes.items()}
    assert paths == {
        "startup": "/services/detlab/health",
        "liveness": "/services/detlab/health",
        "readiness": "/services/detlab/ready",
    }
