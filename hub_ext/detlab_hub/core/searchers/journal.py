"""Events and decisions as JSON, as the master's journal stores them.

Each is an object with its kind under `type`; a field that has its default is left out, so that a field may be added
with a default and older journals still replay. JSON has no NaN and no infinities, and PostgreSQL refuses Python's
spelling of them, so non-finite floats are written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``; all
others survive bit for bit through ``repr``.
"""

import math
import re
from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from detlab_hub.core.searchers.errors import SearcherInputError
from detlab_hub.core.searchers.events import Decision, Event, ExitReason

_EVENTS: dict[str, type[Any]]
_DECISIONS: dict[str, type[Any]]


def _kind(of: type[Any]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", of.__name__).lower()


_EVENTS = {_kind(one): one for one in get_args(Event)}
_DECISIONS = {_kind(one): one for one in get_args(Decision)}
_FLOATS = (float, float | None)


def _default(field: Field[Any]) -> Any:
    """Return what a field is that the journal does not have."""
    if "absent" in field.metadata:
        return field.metadata["absent"]
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    """Return a field's value for JSON; hyperparameters, which are plain already, are left alone."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return list(value) if isinstance(value, tuple) else value


def _to_json(thing: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _kind(type(thing))}
    for field in fields(thing):
        value = getattr(thing, field.name)
        if value != _default(field):
            made[field.name] = {key: _plain(one) for key, one in value.items()} if _of_floats(field) else _plain(value)
    return made


def _of_floats(field: Field[Any]) -> bool:
    return field.type == dict[str, float]


def _from_json(data: dict[str, Any], known: dict[str, type[Any]], what: str) -> Any:
    of = known.get(str(data.get("type")))
    if of is None:
        raise SearcherInputError(f"unknown {what} {data.get('type')!r} in the search journal")
    given: dict[str, Any] = {}
    for field in fields(of):
        if field.name in data:
            given[field.name] = _read(field, data[field.name])
        elif (default := _default(field)) is MISSING:
            raise SearcherInputError(f"{what} {data['type']!r} in the search journal has no {field.name}")
        else:
            given[field.name] = default
    return of(**given)


def _read(field: Field[Any], value: Any) -> Any:
    if _of_floats(field):
        return {key: float(one) for key, one in value.items()}
    if field.type in _FLOATS:
        return None if value is None else float(value)
    if isinstance(value, list) and getattr(field.type, "__origin__", None) is tuple:
        return tuple(value)
    if field.type is ExitReason and value not in get_args(ExitReason):
        raise SearcherInputError(f"unknown exit reason {value!r} in the search journal")
    return value


def event_to_json(event: Event) -> dict[str, Any]:
    """Write an event as a JSON object."""
    return _to_json(event)


def event_from_json(data: dict[str, Any]) -> Event:
    """Read an event written by `event_to_json`.

    Raises:
        SearcherInputError: If the kind of event or the exit reason is unknown, or a field is missing.
    """
    event: Event = _from_json(data, _EVENTS, "event")
    return event


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """Write a decision as a JSON object."""
    return _to_json(decision)


def decision_from_json(data: dict[str, Any]) -> Decision:
    """Read a decision written by `decision_to_json`.

    Raises:
        SearcherInputError: If the kind of decision is unknown, or a field is missing.
    """
    decision: Decision = _from_json(data, _DECISIONS, "decision")
    return decision
