"""The operator's webhooks and mail server, read from the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.utils import parseaddr
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from detlab.client.transport.discovery import is_loopback
from detlab.schemas.wire.notify.emails import email_address
from detlab_hub.services.base.settings import SmtpServer, Webhook

EVENTS = ("model.label",)
"""What webhooks are told of."""
_KEYS = ("url", "events", "secret")
_SMTP_KEYS = ("host", "port", "security", "user", "password_file", "from", "ca_file", "domains")
PORTS = {"starttls": 587, "tls": 465, "none": 25}
"""By how it is encrypted, the usual port of a mail server."""
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")


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


# --- the mail server


def read_smtp(given: Mapping[str, Any]) -> tuple[SmtpServer | None, list[str]]:
    """Return the mail server, None if there is none, and what is wrong with its configuration."""
    if not given:
        return None, []
    errors = [f"there is no key {key!r}, only {', '.join(_SMTP_KEYS)}" for key in given if key not in _SMTP_KEYS]
    errors += [f"`{key}` is no text" for key in _TEXTS if not isinstance(given.get(key, ""), str)]
    errors += [] if errors else _smtp_errors(given)
    sender = _sender(given.get("from"))
    if sender is None:
        errors.append("`from` is no address, nor NAME <ADDRESS>")
    if errors or sender is None:
        return None, errors
    security = given.get("security", "starttls")
    return (
        SmtpServer(
            host=given["host"],
            port=given.get("port", PORTS[security]),
            security=security,
            sender=sender[1],
            sender_name=sender[0],
            user=given.get("user", ""),
            password_file=given.get("password_file", ""),
            ca_file=given.get("ca_file", ""),
            domains=tuple(domain.lower() for domain in given.get("domains", ())),
        ),
        [],
    )


_TEXTS = ("host", "security", "user", "password_file", "from", "ca_file")


def _smtp_errors(given: Mapping[str, Any]) -> list[str]:
    errors = []
    host, security, port = given.get("host", ""), given.get("security", "starttls"), given.get("port", 25)
    if _HOST.fullmatch(host) is None:
        errors.append("`host` is no name or address")
    if security not in PORTS:
        errors.append(f"`security` is one of {', '.join(PORTS)}")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        errors.append("`port` is no port")
    if bool(given.get("user")) != bool(given.get("password_file")):
        errors.append("`user` and `password_file` belong together")
    if given.get("user") and security == "none" and not is_loopback(host):
        errors.append("a password is not sent in the clear: `security` is starttls or tls")
    for key in ("password_file", "ca_file"):
        if given.get(key) and not Path(given[key]).is_file():
            errors.append(f"`{key}`: there is no file {given[key]}")
    domains = given.get("domains", ())
    if not isinstance(domains, list | tuple) or not all(_is_domain(one) for one in domains):
        errors.append("`domains` is no list of domains")
    return errors


def _is_domain(domain: Any) -> bool:
    return isinstance(domain, str) and _address(f"a@{domain}") is not None


def _address(text: str) -> str | None:
    try:
        return email_address(text)
    except ValueError:
        return None


def _sender(given: Any) -> tuple[str, str] | None:
    """Return the name and the address that mails are from; None: it is none."""
    if not isinstance(given, str) or not given.isprintable():
        return None
    name, address = parseaddr(given)
    found = _address(address)
    return None if found is None else (name, found)
