"""The block of YAML at the head of a model card, by which Hugging Face's Hub and its library know a model.

Only what was recorded is in it, and what the version's metadata says under the Hub's own names. Strings are written as
JSON, which is YAML, with everything but letters and digits escaped: also where a card is rendered with the block in it,
text of users is only ever text.
The format: https://github.com/huggingface/hub-docs/blob/main/modelcard.md
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from detlab.export.contents import Contents
from detlab.schemas.wire.registry import VersionView, untwinned
from detlab.visible import visible

_ESCAPED = re.compile(
    r"(?<![A-Za-z0-9])[._]|[._](?![A-Za-z0-9])|(?<=www)\.|[^A-Za-z0-9 ,;._\x80-\U0010ffff-]", re.IGNORECASE
)
"""What could mean something to Markdown or HTML; a point or a line between letters cannot."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,199}")
_MOST = 100
_WORDS = ("language", "datasets", "base_model", "tags")
"""Names of the Hub whose values are words, or lists of some."""
_ONE_WORD = ("license", "license_name", "license_link", "pipeline_tag", "library_name", "model_name")
_TORCH = frozenset({"torch_pickle", "torch_export", "torchscript", "safetensors"})


def front_matter(version: VersionView, contents: Contents) -> str:
    """Return the block, with the lines around it.

    Args:
        version: With its lineage.
        contents: Its files.
    """
    made, said = version.lineage, version.metadata
    found: dict[str, Any] = {name: said[name] for name in _ONE_WORD if _is_word(said.get(name))}
    if "library_name" not in found and _is_of_torch(contents):
        found["library_name"] = "pytorch"
    found |= {name: words for name in _WORDS if (words := _words(said.get(name)))}
    found["tags"] = list(dict.fromkeys(["detlab", *found.get("tags", [])]))
    if "datasets" not in found and made.data:
        found["datasets"] = _words(sorted(made.data))
    finite = {name: value for name, value in sorted(made.metrics.items()) if math.isfinite(value)}
    measured = {name: finite[name] for name in untwinned(finite)}
    if measured:
        found["metrics"] = _words(list(measured))
    if measured and made.data:
        found["model-index"] = [_index(version, found, measured)]
    return "\n".join(["---", *_lines({name: item for name, item in found.items() if item}), "", "---", "", ""])


def _index(version: VersionView, found: Mapping[str, Any], measured: Mapping[str, float]) -> dict[str, Any]:
    """Return what the Hub shows of results: it wants a task and a data set with them."""
    task = found.get("pipeline_tag", "other")
    data = min(version.lineage.data)
    metrics = [{"type": name, "name": name, "value": value} for name, value in list(measured.items())[:_MOST]]
    results = [{"task": {"type": task}, "dataset": {"type": data, "name": data}, "metrics": metrics}]
    return {"name": version.model, "results": results}


def _is_of_torch(contents: Contents) -> bool:
    """Whether a file is torch's: that torch was installed says nothing of a model of scikit-learn."""
    return any(kind.value in _TORCH for kind in contents.formats.values())


def _is_word(value: object) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def _words(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [str(one) for one in values if _is_word(one)][:_MOST]


def _lines(value: Mapping[str, Any]) -> Iterable[str]:
    """Write a mapping: our own names as they are, and each value as JSON in one line, or as a list of them."""
    for name, item in value.items():
        if isinstance(item, list) and item and isinstance(item[0], str):
            yield f"{name}:"
            yield from (f"- {_json(one)}" for one in item)
        else:
            yield f"{name}: {_json(item)}"


def _json(value: Any) -> str:
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(_code, visible(value, keep="")[:500]) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}": {_json(item)}' for name, item in value.items()) + "}"
    return json.dumps(value)


def _code(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
