"""The page of the chart's values, from values.yaml and its comments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from reference_pages.markdown import page, table

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "detlab"
_PLACEMENT = ("resources", "nodeSelector", "tolerations", "affinity", "storageClass", "annotations")
"""Kubernetes' own words, which need no line of ours where they have none."""
_USUAL = {
    "resources": "requests and limits of its container",
    "nodeSelector": "labels of nodes on which its pod may run",
    "tolerations": "taints of nodes that its pod tolerates",
    "affinity": "affinity of its pod",
    "storageClass": "its storage class; empty: the cluster's default",
    "annotations": "annotations of the object",
    "size": "size of its volume",
    "image": "its image",
    "className": "class of the Ingress",
}


def values() -> list[tuple[str, Any, str]]:
    """Return every value of the chart: its dotted name, its default and what it means."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    found: list[tuple[str, Any, str]] = []
    about: list[str] = []
    path: list[str] = []
    defaults = yaml.safe_load(text)
    for line in text.splitlines():
        said = re.match(r" *# ?(.*)", line)
        key = re.match(r"( *)([A-Za-z]+):", line)
        if said:
            about.append(said[1])
        elif not line.strip():
            about = []
        elif key:
            path = [*path[: len(key[1]) // 2], key[2]]
            value = _at(defaults, path)
            if value is not None and path[-1] != "requests" and path[-1] != "limits":
                if not _is_group(path, value):
                    found.append((".".join(path), value, " ".join(about) or _USUAL.get(path[-1], "")))
                    about = []
                elif not path[:-1]:
                    about = []
            else:
                about = []
    return found


def _is_group(path: list[str], value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and path[-1] not in _PLACEMENT


def _at(tree: Any, path: list[str]) -> Any:
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


def helm_values() -> str:
    """The page of the chart's values."""
    intro = """
All values of the chart `deploy/helm/detlab`. How to install it is in [On Kubernetes](../how-to/kubernetes.md).
`values.schema.json` beside the values refuses misspelt names and wrong values before anything is installed.
"""
    rows = [(f"`{name}`", f"`{json.dumps(value)}`", about) for name, value, about in values()]
    return page("Values of the Helm chart", intro, table(("value", "default", "meaning"), rows))
