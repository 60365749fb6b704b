"""What alerts are as e-mail: plain text, in which the words of others stand behind `> ` and can be no header.

All text may be anybody's. Characters that are not for reading (line ends in a subject, control and invisible ones)
become blanks, there is no HTML, and what the cluster itself says is never quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any

SUBJECT_CHARS, TEXT_CHARS = 200, 4000
CODE_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that nobody confuses."""
CODE_CHARS = 12


@dataclass(frozen=True)
class Letter:
    """What a mail says."""

    subject: str
    text: str


def alert_letter(told: Mapping[str, Any], link: str, page: str) -> Letter:
    """Return what tells an alert.

    Args:
        told: What: `kind`, `level`, `title`, `text`, `experiment`, `trial_id`, `run_id`.
        link: Address of the experiment's page; empty: there is none.
        page: Address of the cluster.
    """
    lines = ["An alert of your cluster:", "", _quoted(one_line(told["title"]))]
    if told["text"]:
        lines += [">", _quoted(told["text"])]
    lines += ["", f"level: {told['level']}"]
    lines += [f"{name}: {told[key]}" for name, key in _ABOUT.items() if told.get(key) is not None]
    lines += [link] if link else []
    return _letter(told["title"] or "alert", lines, page)


_ABOUT = {"trial": "trial_id", "run": "run_id"}


def summary_letter(count: int, page: str) -> Letter:
    """Return what tells how many alerts of an hour were not sent."""
    lines = [f"Within an hour {count} more alerts came than are sent by e-mail. They are in your list:", ""]
    lines += ["    det alert list --unread"]
    return _letter(f"{count} more alerts", lines, page)


def code_letter(user: str, code: str, hours: float, page: str) -> Letter:
    """Return what tells the code that confirms an address."""
    lines = [
        "A user of a detlab cluster wants to have alerts sent to this address. Their name there is:",
        "",
        _quoted(user),
        "",
        f"If that is you, confirm it within {hours:g} hours, on that cluster:",
        "",
        f"    det alert email confirm {code}",
        "",
        "If it is not, do nothing: no alert is sent to an address that was not confirmed.",
    ]
    return Letter("[detlab] Confirm your address", "\n".join([*lines, "", "-- ", page]) + "\n")


def grouped(code: str) -> str:
    """Return a code as it is written: `k7mq-9xwd-4tzp`."""
    return "-".join(code[begin : begin + 4] for begin in range(0, len(code), 4))


def plain_code(text: str) -> str:
    """Return a code that somebody has typed or pasted as it was made."""
    return "".join(char for char in text.lower() if char in CODE_ALPHABET)


def compose(letter: Letter, sender: Address, recipient: Address, message_id: str, time: float) -> EmailMessage:
    """Return a mail.

    Args:
        letter: What it says.
        sender: Whom it is from.
        recipient: Whom it is to: this one alone.
        message_id: The same for each attempt: by it a repeated one is recognised.
        time: When it happened, in seconds.

    Raises:
        ValueError: Something that becomes a header has line ends: nothing in here does.
    """
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"], mail["Subject"] = sender, recipient, letter.subject
    mail["Date"], mail["Message-ID"] = formatdate(time), message_id
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's holiday notice answers
    mail.set_content(letter.text, charset="utf-8", cte="quoted-printable")
    return mail


def _letter(subject: str, lines: list[str], page: str) -> Letter:
    """Add the subject's beginning, and why somebody gets this."""
    lines = [
        *lines,
        "",
        "-- ",
        "You have a rule for this: det alert rules. No more e-mail: det alert email remove",
        page,
    ]
    return Letter(f"[detlab] {one_line(subject)[:SUBJECT_CHARS]}", "\n".join(lines) + "\n")


def one_line(text: str) -> str:
    """Return text as one line of what can be read, in which no mail program finds an encoded word (RFC 2047)."""
    return " ".join("".join(map(_readable, text)).replace("=?", "= ?").split())


def _quoted(text: str) -> str:
    """Return somebody's text, each line of it marked as such."""
    lines = text[:TEXT_CHARS].splitlines() or [""]
    return "\n".join(f"> {''.join(map(_readable, line))}".rstrip() for line in lines)


def _readable(char: str) -> str:
    return char if char.isprintable() else " "
