"""Selectors by labels and by fields, and quantities."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from testbed.kubernetes.fake.resources import Object, Refused

_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** n for n, unit in enumerate("kMGTP", 1)},
    **{f"{unit}i": Decimal(1024) ** n for n, unit in enumerate("KMGTP", 1)},
}


def quantity(text: str | int | float) -> Decimal:
    """Return the number that a quantity means, as in `500m` or `2Gi`."""
    matched = re.fullmatch(r"([+-]?[0-9.]+)([a-zA-Z]*)", str(text))
    if matched is None or matched[2] not in _UNITS:
        raise ValueError(f"quantities must match the regular expression: {text!r}")
    return Decimal(matched[1]) * _UNITS[matched[2]]


def by_labels(selector: str) -> Callable[[Object], bool]:
    """Return what says whether an object has the labels."""
    terms = [_label_term(term.strip()) for term in re.split(r",(?![^(]*\))", selector) if term.strip()]
    return lambda found: all(term(found["metadata"].get("labels") or {}) for term in terms)


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if matched := _SET.match(term):
        key, operator, values = matched[1], matched[2], {value.strip() for value in matched[3].split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if "!=" in term:
        key, value = (part.strip() for part in term.split("!=", 1))
        return lambda labels: labels.get(key) != value
    if "=" in term:
        key, value = (part.strip() for part in re.split("==?", term, maxsplit=1))
        return lambda labels: labels.get(key) == value
    if term.startswith("!"):
        return lambda labels: term[1:].strip() not in labels
    return lambda labels: term in labels


def by_fields(selector: str) -> Callable[[Object], bool]:
    """Return what says whether an object's fields are so."""
    terms = []
    for term in filter(None, selector.split(",")):
        key, operator, value = re.match(r"([^!=]+)(!=|==?)(.*)", term).groups()
        if not re.fullmatch(r"metadata\.(name|namespace)|spec\.\w+|status\.\w+|involvedObject\.\w+|reason|type", key):
            raise Refused(400, f"field label not supported: {key}")
        terms.append((key.split("."), operator == "!=", value))
    return lambda found: all((_field(found, path) == value) != negated for path, negated, value in terms)


def _field(found: Any, path: list[str]) -> str:
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return "" if found is None else str(found)
