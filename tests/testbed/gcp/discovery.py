"""Checks requests by the description of Compute Engine's API that google-api-python-client ships."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import googleapiclient.discovery_cache

_INT = {"int32": (32, True), "uint32": (32, False), "int64": (64, True), "uint64": (64, False)}
_NEEDED = {"insert": {"name", "machineType", "disks", "networkInterfaces"}}
"""What Compute Engine says it needs in its words only."""


@dataclass(frozen=True)
class Call:
    """A request that the description knows."""

    method: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


class Refused(Exception):
    """The description does not allow a request."""


@cache
def description() -> dict[str, Any]:
    """Google's description of the API, v1."""
    folder = Path(googleapiclient.discovery_cache.__file__).parent / "documents"
    return json.loads((folder / "compute.v1.json").read_text(encoding="utf-8"))


@cache
def _methods() -> list[tuple[str, dict[str, Any], re.Pattern[str]]]:
    root, found = description(), []
    for resource, said in root["resources"].items():
        for name, method in said.get("methods", {}).items():
            path = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape("/" + root["servicePath"] + method["path"]))
            found.append((f"{resource}.{name}", method, re.compile(path)))
    return found


def read(verb: str, path: str, query: Mapping[str, list[str]], body: Any) -> Call:
    """Read a request; the rules are Google's.

    Raises:
        Refused: It breaks some; it says which.
    """
    for name, method, pattern in _methods():
        found = pattern.fullmatch(path)
        if found is None or method["httpMethod"] != verb:
            continue
        inside = {key: unquote(value) for key, value in found.groupdict().items()}
        asked = {key: values[-1] for key, values in query.items()}
        problems = [*_parameters(method, inside, asked), *_body(name.partition(".")[2], method, body)]
        if problems:
            raise Refused(f"{name}: {'; '.join(problems)}")
        return Call(name, inside, asked, body)
    raise Refused(f"no such method: {verb} {path}")


def _parameters(method: Mapping[str, Any], inside: Mapping[str, str], asked: Mapping[str, str]) -> Iterator[str]:
    known = {**description()["parameters"], **method["parameters"]}
    for key, value in {**inside, **asked}.items():
        if key not in known:
            yield f"the parameter {key} is unknown"
        else:
            yield from _value(key, known[key], value, text=True)
    for key in method.get("parameterOrder", ()):
        if key not in {**inside, **asked}:
            yield f"the parameter {key} is missing"


def _body(name: str, method: Mapping[str, Any], body: Any) -> Iterator[str]:
    if "request" not in method:
        if body is not None:
            yield "it has a body"
        return
    yield from _value("body", method["request"], body, name=name, method_id=method["id"])
    if isinstance(body, dict):
        yield from (f"body.{key} is missing" for key in sorted(_NEEDED.get(name, set()) - body.keys()))


def _value(where: str, rule: Mapping[str, Any], value: Any, *, text: bool = False, **known: str) -> Iterator[str]:
    if "$ref" in rule:
        yield from _object(where, description()["schemas"][rule["$ref"]], value, **known)
        return
    kind, form = rule["type"], rule.get("format", "")
    if kind == "object":
        yield from _object(where, rule, value, **known)
    elif kind == "array":
        if not isinstance(value, list):
            yield f"{where} is no list"
            return
        for number, item in enumerate(value):
            yield from _value(f"{where}[{number}]", rule["items"], item, **known)
    elif kind == "boolean":
        if not (value in {"true", "false"} if text else isinstance(value, bool)):
            yield f"{where} is no boolean"
    elif kind in {"integer", "number"} and not text:
        if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else (int, float)):
            yield f"{where} is no {kind}"
        elif form in _INT:
            yield from _in_range(where, form, value)
    elif not isinstance(value, str):
        yield f"{where} is no string"
    else:
        yield from _text(where, rule, value)


def _text(where: str, rule: Mapping[str, Any], value: str) -> Iterator[str]:
    form = rule.get("format", "")
    if form in _INT:
        if not re.fullmatch(r"-?[0-9]+", value):
            yield f"{where} is no {form}: {value!r}"
        else:
            yield from _in_range(where, form, int(value))
    if form == "byte":
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            yield f"{where} is not base64"
    if "enum" in rule and value not in rule["enum"]:
        yield f"{where} is {value!r}, none of {', '.join(rule['enum'])}"
    if "pattern" in rule and re.fullmatch(rule["pattern"], value) is None:
        yield f"{where} is {value!r}, not like {rule['pattern']}"


def _in_range(where: str, form: str, value: int) -> Iterator[str]:
    bits, signed = _INT[form]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= value <= high:
        yield f"{where} is beyond {form}: {value}"


def _object(where: str, rule: Mapping[str, Any], value: Any, **known: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where} is no object"
        return
    inside, others = rule.get("properties", {}), rule.get("additionalProperties")
    for key, item in value.items():
        if key in inside:
            said = inside[key]
            if said.get("readOnly") or str(said.get("description", "")).lstrip().startswith("[Output Only]"):
                yield f"{where}.{key} is for answers only"
            yield from _value(f"{where}.{key}", said, item, **known)
        elif others is not None:
            yield from _value(f"{where}.{key}", others, item, **known)
        else:
            yield f"{where}.{key} is unknown"
    for key, said in inside.items():
        if known.get("method_id") in said.get("annotations", {}).get("required", ()) and key not in value:
            yield f"{where}.{key} is missing"
