"""The operator's webhooks, read from the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from detlab_hub.services.base.settings import Webhook

EVENTS = ("model.label",)
"""What webhooks are told of."""
_KEYS = ("url", "events", "secret")


def read_webhooks(given: Sequence[Mapping[str, Any]]) -> tuple[tuple[Webhook, ...], list[str]]:
    """Return the webhooks, and what is wrong with their configuration."""
    hooks: list[Webhook] = []
    errors: list[str] = []
    for place, one in enumerate(given):
        found = [f"webhook {place}: {error}" for error in _errors(one)]
        errors += found
        if not found:
            events = tuple(one.get("events") or ("*",))
            hooks.append(Webhook(str(one["url"]), events, str(one.get("secret") or "")))
    if len({hook.url for hook in hooks}) < len(hooks):
        errors.append("two webhooks have the same url")
    return tuple(hooks), errors


def _errors(one: Mapping[str, Any]) -> list[str]:
    errors = [f"there is no key {key!r}, only {', '.join(_KEYS)}" for key in one if key not in _KEYS]
    url = one.get("url")
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        fine = parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        fine = False
    if not fine:
        errors.append("`url` is no address that begins with https:// or http://")
    events = one.get("events") or []
    if not isinstance(events, list | tuple) or not all(isinstance(name, str) for name in events):
        errors.append("`events` is no list of names")
    else:
        errors += [f"there is no event {name!r}, only {', '.join(EVENTS)}" for name in events if not _known(name)]
    if not isinstance(one.get("secret") or "", str):
        errors.append("`secret` is no text")
    return errors


def _known(name: str) -> bool:
    return name in EVENTS or (name.endswith("*") and any(event.startswith(name[:-1]) for event in EVENTS))
