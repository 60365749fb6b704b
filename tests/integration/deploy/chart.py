"""The chart as Helm renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import helm

CHART = Path(__file__).resolve().parents[3] / "deploy" / "helm" / "detlab"
RELEASE, NAMESPACE = "rel", "lab"
NAME = "rel-detlab"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm."""
    program = helm.find()
    if program is None:
        pytest.skip("no Helm: python tests/testbed/helm.py .venv/bin/helm, as make setup-test does")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def template(*settings: str) -> subprocess.CompletedProcess[str]:
    """Render the chart with these values, `a.b=c` each."""
    options = [part for setting in settings for part in ("--set", setting)]
    return run("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *options)


def objects(*settings: str) -> list[dict[str, Any]]:
    """Return what the chart makes with these values."""
    done = template(*settings)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def one(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the one object of this kind and name, in the release's namespace or in none."""
    there = [it for it in found if it["metadata"].get("namespace", NAMESPACE) == NAMESPACE]
    (it,) = [it for it in there if it["kind"] == kind and it["metadata"]["name"] == name]
    return it


def pods(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each workload, and the spec of its pods."""
    for it in found:
        if it["kind"] in {"Deployment", "StatefulSet", "DaemonSet", "Job"}:
            yield it["metadata"]["name"], it["spec"]["template"]["spec"]
