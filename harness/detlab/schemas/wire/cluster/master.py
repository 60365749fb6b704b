"""The master itself: what it writes into its log, how it is set up, and its message to everybody."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue

from detlab.schemas.wire.base import PersonRequest, Wire

MESSAGE_CHARS = 250
"""Most that a message to everybody may have."""
LogLevel = Literal["debug", "info", "warning", "error"]


class ClusterMessageView(Wire):
    """What administrators tell everybody at the top of all pages."""

    text: str
    set_by: str
    set_at: float
    begins_at: float
    """From when on it is shown, in seconds since the epoch."""
    ends_at: float | None = None
    """Until when; null: until it is cleared."""


class ClusterMessageReply(Wire):
    """GET cluster/message."""

    message: ClusterMessageView | None = None
    """null: there is none. Administrators also see one that has not begun."""


class SetClusterMessage(PersonRequest):
    """PUT cluster/message: instead of the one before."""

    text: str = Field(min_length=1, max_length=MESSAGE_CHARS)
    begins_at: float | None = Field(None, ge=0)
    """null: now."""
    ends_at: float | None = Field(None, ge=0)


class MasterLogLine(Wire):
    """A line of the master's log."""

    id: int
    """Ascending since the master started."""
    at: float
    """Seconds since the epoch."""
    level: str
    logger: str
    text: str
    """Control characters spelt out; a traceback has several lines."""


class MasterLogPage(Wire):
    """GET master/logs."""

    items: list[MasterLogLine]
    """Oldest first."""
    last: int = 0
    """Id of the last line that there is: what follows has larger ones."""
    dropped: int = 0
    """Lines of this start of the master that are not kept any more."""


class MasterSetting(Wire):
    """One setting of the master, as its configuration files name it: `c.DetHub.NAME`."""

    name: str
    value: JsonValue = None
    """Secrets are masked."""
    is_default: bool = True
    help: str = ""


class MasterConfig(Wire):
    """GET master/config."""

    settings: list[MasterSetting]
    log_level: str
    """Now; it may have been changed since the start."""


class SetMasterConfig(PersonRequest):
    """POST master/config: what can be changed while the master runs; it holds until the next start."""

    log_level: LogLevel


def as_json(value: Any) -> JsonValue:
    """Return a value of a setting as JSON; what JSON has no word for as Python writes it."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)
