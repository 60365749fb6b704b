"""E-mail: the addresses to which users have alerts sent, each confirmed by a code or set by an administrator."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.grants import NAME_CHARS

ADDRESS_CHARS, LOCAL_CHARS = 254, 64
"""Of a whole address, and before its `@` (RFC 5321, section 4.5.3.1)."""
_WORD = r"[A-Za-z0-9_+=&~'-]+"
_LOCAL = re.compile(rf"(?![-'&=~+]){_WORD}(?:\.{_WORD})*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def email_address(text: str) -> str:
    """Return an address as it is kept: its domain in small letters.

    An allow-list: one address of plain letters. Other mail servers know quotes, routes, comments and addresses in
    brackets; nobody needs them here.

    Raises:
        ValueError: It is none.
    """
    local, at, domain = text.rpartition("@")
    fine = at and len(text) <= ADDRESS_CHARS and len(local) <= LOCAL_CHARS
    if not fine or _LOCAL.fullmatch(local) is None or _DOMAIN.fullmatch(domain) is None:
        raise ValueError("an address is NAME@DOMAIN of letters, digits and . _ + - = & ~ ', and nothing else")
    if domain.rpartition(".")[2].isdigit():
        raise ValueError("the domain of an address is a name, no number")
    return f"{local}@{domain.lower()}"


Address = Annotated[str, Field(min_length=3, max_length=ADDRESS_CHARS), AfterValidator(email_address)]
UserName = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]


class SetEmail(PersonRequest):
    """PUT alerts/email: has a code sent to an address of the caller."""

    address: Address


class ConfirmEmail(PersonRequest):
    """POST alerts/email/confirm: the code that came."""

    code: str = Field(min_length=1, max_length=100)


class SetUsersEmail(PersonRequest):
    """PUT alerts/emails [admin]: sets the address of a user, without a code."""

    user: UserName
    address: Address


class EmailView(Wire):
    """Where a user has alerts sent by e-mail."""

    user: str
    address: str = ""
    """Confirmed; empty: none is."""
    confirmed_at: float | None = None
    set_by: str = ""
    """Who confirmed or set it."""
    pending: str = ""
    """An address to which a code was sent, or will be, that has not come back yet."""
    code_until: float | None = None
    """Until when that code is taken; null: it was not sent yet."""
    delivered: int = 0
    """Alerts that the mail server has taken."""
    delivered_at: float | None = None
    waiting: int = 0
    """Those that are to be sent, or sent again."""
    failed: int = 0
    """Those that were given up, and are kept for a week."""
    error: str = ""
    """Of the last attempt, if it failed."""
    offered: bool = True
    """Whether this cluster sends e-mail."""
