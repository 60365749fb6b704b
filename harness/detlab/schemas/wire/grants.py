"""Whom the owner of an experiment lets look at it, or change it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from detlab.schemas.wire.base import PersonRequest, Wire

GrantKind = Literal["user", "group"]
NAME_CHARS = 255
"""Most characters of a Hub's user or group name."""


class GrantTo(Wire):
    """A user of the Hub, or one of its groups. Nobody checks that there is one: they may yet come."""

    kind: GrantKind
    name: str = Field(min_length=1, max_length=NAME_CHARS)


class GrantRequest(GrantTo, PersonRequest):
    """What is granted; a grant to the same user or group is replaced."""

    write: bool = False
    """They may also pause, activate, cancel, kill, edit and archive it."""


class GrantView(GrantTo):
    """A grant that stands.

    Attributes:
        write: See `GrantRequest`.
        granted_by: Who made it.
        created_at: Seconds since the epoch.
    """

    write: bool = False
    granted_by: str = ""
    created_at: float = 0.0


class GrantList(Wire):
    """The grants of an experiment, users first."""

    items: list[GrantView]
