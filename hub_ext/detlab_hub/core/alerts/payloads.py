"""What receivers of webhooks get: Determined's payloads, what Slack, Teams and Apprise take, and how a call is signed.

All text may be anybody's. Slack's markup is escaped, Teams gets runs of text, which have none, and Apprise is told that
it is plain.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

APPRISE_TYPES = {"debug": "info", "info": "info", "warn": "warning", "error": "failure"}
"""What Apprise calls the levels of alerts; an end without a mistake is its `success`."""
STATES = {"completed": "COMPLETED", "failed": "ERROR"}
"""Kinds of alerts that Determined calls a change of state."""
TITLE_CHARS, TEXT_CHARS = 200, 2500
SIGNED_AT = "X-Determined-AI-Signature-Timestamp"
SIGNATURE = "X-Determined-AI-Signature"


def render(form: str, call_id: str, time: float, told: Mapping[str, Any], link: str = "") -> bytes:
    """Return the body of a call.

    Args:
        form: `default`, `slack`, `teams` or `apprise`.
        call_id: The same for each attempt of a call: by it a receiver knows one that it has seen.
        time: When it happened, in seconds.
        told: What: `kind`, `level`, `title`, `text`, `experiment`, `trial_id`, `run_id`.
        link: Address of the page of the experiment or run; empty: there is none.
    """
    match form:
        case "slack":
            body = _slack(told, link)
        case "teams":
            body = _teams(told, link)
        case "apprise":
            body = _apprise(told, link)
        case _:
            body = _determined(call_id, time, told, link)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def signed(secret: str, time: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a body as Determined does: the HMAC of `TIME,BODY`."""
    found = hmac.new(secret.encode(), f"{time},".encode() + body, hashlib.sha256).hexdigest()
    return {SIGNED_AT: str(time), SIGNATURE: found}


def _determined(call_id: str, time: float, told: Mapping[str, Any], link: str) -> dict[str, Any]:
    experiment = told.get("experiment")
    state = None if experiment is None else STATES.get(told["kind"])  # Determined has no state of a run
    data: dict[str, Any] = {} if experiment is None else {"experiment": experiment}
    line = told.get("line")
    if line is not None:
        data["task_log"] = {"task_id": line["task"], "node_name": line["node"], "triggering_log": line["line"]}
    elif state is None:
        data["custom_alert"] = {
            "title": told["title"],
            "description": told["text"],
            "level": told["level"],
            "kind": told["kind"],
            "trial_id": told.get("trial_id"),
            "run_id": told.get("run_id"),
        }
    return {
        "event_id": call_id,
        "event_type": "TASKLOG" if line is not None else "CUSTOM" if state is None else "EXPERIMENT_STATE_CHANGE",
        "timestamp": int(time),
        "condition": {"regex": line["pattern"]} if line is not None else {} if state is None else {"state": state},
        "event_data": data,
        "link": link,
    }


def _slack(told: Mapping[str, Any], link: str) -> dict[str, Any]:
    title = _escaped(told["title"])[:TITLE_CHARS]
    text = _escaped(told["text"])[:TEXT_CHARS]
    head = f"<{link}|{title.replace('|', '/')}>" if link else title
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": head or "-", "verbatim": True}}]
    if text:
        # plain_text has no markup at all: neither links nor mentions of everybody
        blocks.append({"type": "section", "text": {"type": "plain_text", "text": told["text"][:TEXT_CHARS]}})
    return {"text": title, "blocks": blocks}


def _escaped(text: str) -> str:
    for char, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, instead)
    return " ".join(text.split())


def _teams(told: Mapping[str, Any], link: str) -> dict[str, Any]:
    def line(text: str, **more: Any) -> dict[str, Any]:
        return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **more}]}

    body = [line(told["title"][:TITLE_CHARS] or "-", weight="Bolder")]
    if told["text"]:
        body.append(line(told["text"][:TEXT_CHARS]))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    if link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": link}]
    return {
        "type": "message",
        "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}],
    }


def _apprise(told: Mapping[str, Any], link: str) -> dict[str, Any]:
    """Return what Apprise's server takes at `/notify/KEY`; it passes it on to any of its services."""
    text = "\n".join(part for part in (told["text"][:TEXT_CHARS], link) if part)
    kind = "success" if told["kind"] == "completed" else APPRISE_TYPES.get(told["level"], "info")
    title = told["title"][:TITLE_CHARS]
    return {"title": title, "body": text or title or "-", "type": kind, "format": "text"}
