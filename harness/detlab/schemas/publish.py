"""Publish the experiment config: `python -m detlab.schemas.publish [--check] [DIRECTORY]`.

Writes `experiment-config.schema.json` and `experiment-config.md` to the directory (default `docs/reference`), both
made from the models, so that neither can disagree with what the checker does. With `--check` nothing is written
and the exit status says whether the files are up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from detlab.schemas.expconf.blocks.environment import BindMount, Device, ProxyPort
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.scalars import Block
from detlab.schemas.reference import reference_page

SCHEMA_ID = "https://detlab.github.io/schemas/experiment-config.schema.json"
SCHEMA_FILE = "experiment-config.schema.json"
PAGE_FILE = "experiment-config.md"

_NULL = {"type": "null"}
_OUTSIDE = ("title", "description", "default", "deprecated")
"""Keywords that stay beside `anyOf` when a property is made nullable."""


def _models() -> dict[str, type[Block]]:
    found: dict[str, type[Block]] = {}
    pending: list[type[Block]] = [Block]
    while pending:
        for child in pending.pop().__subclasses__():
            found[child.__name__] = child
            pending.append(child)
    return found


def _allows_null(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "null" or any(_allows_null(member) for member in schema.get("anyOf", []))


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if _allows_null(schema):
        return schema
    outer = {key: value for key, value in schema.items() if key in _OUTSIDE or key.startswith("x-")}
    inner = {key: value for key, value in schema.items() if key not in outer}
    return {**outer, "anyOf": [inner, _NULL]} if inner else schema


def _finish_block(schema: dict[str, Any], model: type[Block]) -> None:
    """Null means "not set" everywhere, and the member of a union must say its name."""
    required = list(schema.get("required", []))
    for key, prop in schema.get("properties", {}).items():
        if "const" in prop and key in ("name", "type"):
            required.append(key)
            prop.pop("default", None)
        elif key not in required and key not in model.KEEPS_NULL:
            schema["properties"][key] = _nullable(prop)
    if required:
        schema["required"] = sorted(set(required))


def _finish_hyperparameter(schema: dict[str, Any]) -> None:
    """Bare values are constants, lists are constants of well-formed items, groups have no `type`."""
    for member in schema["oneOf"]:
        if member.get("type") == "object":
            member["not"] = {"required": ["type"]}
    schema["oneOf"] += [
        {"type": "array", "items": {"$ref": "#/$defs/Hyperparameter"}},
        {"type": ["string", "number", "boolean", "null"]},
    ]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an experiment config, shorthands included."""
    schema = ExperimentConfig.model_json_schema(mode="validation")
    models = _models()
    for name, definition in schema["$defs"].items():
        if name in models:
            _finish_block(definition, models[name])
    _finish_block(schema, ExperimentConfig)
    _finish_hyperparameter(schema["$defs"]["Hyperparameter"])
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "detlab experiment config",
    }
    return {**head, **{key: value for key, value in schema.items() if key not in head}}


def render_files() -> dict[str, str]:
    """Return the published files by name."""
    schema = json_schema()
    return {
        SCHEMA_FILE: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        PAGE_FILE: reference_page(schema, entries=(BindMount, Device, ProxyPort)),
    }


def main(arguments: list[str]) -> int:
    """Write or compare the published files; return the exit status."""
    only_check = "--check" in arguments
    places = [argument for argument in arguments if not argument.startswith("-")]
    directory = Path(places[0] if places else "docs/reference")
    stale = []
    for name, text in render_files().items():
        path = directory / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path))
        if not only_check:
            path.write_text(text, encoding="utf-8")
    verb = "out of date" if only_check else "written"
    sys.stdout.write("".join(f"{verb}: {path}\n" for path in stale))
    return 1 if only_check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
