"""What a user has chosen for themselves: colours, time zone, and which notifications they want."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from detlab.schemas.wire.base import PersonRequest, Wire

SettingName = Literal["theme", "time_zone", "bell", "email"]
SETTING_NAMES: tuple[SettingName, ...] = get_args(SettingName)
Theme = Literal["system", "light", "dark"]
BROWSERS = "local"
"""In place of a time zone: the browser's own."""
TimeZoneName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$")]


class UserSettings(Wire):
    """The settings of a user; what they have not set has its default."""

    theme: Theme = "system"
    """Colours of the Hub's page."""
    time_zone: TimeZoneName = BROWSERS
    """In which pages show times: an IANA name, or `local`, the browser's own."""
    bell: bool = True
    """Whether alerts are new at the bell; else they are in the list as read."""
    email: bool = True
    """Whether alerts are sent by e-mail, where a rule says so."""
    chosen: list[SettingName] = []
    """Those that the user has set."""


class SetUserSettings(PersonRequest):
    """POST me/settings: changes those settings of the caller that are named."""

    theme: Theme | None = None
    time_zone: TimeZoneName | None = None
    bell: bool | None = None
    email: bool | None = None
