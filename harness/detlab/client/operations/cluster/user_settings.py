"""Operations on the settings of the user who is logged in."""

from __future__ import annotations

from typing import Any

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.notify.user_settings import SetUserSettings, UserSettings

_PATH = "me/settings"


def user_settings() -> Flow[UserSettings]:
    """Fetch the caller's settings."""
    return one(Call("GET", _PATH, parse=model(UserSettings)))


def set_user_settings(**changes: Any) -> Flow[UserSettings]:
    """Change some of the caller's settings."""
    with valid_request():
        body = SetUserSettings(**changes)
    return one(Call("POST", _PATH, json=body, parse=model(UserSettings)))


def reset_user_settings(name: str | None = None) -> Flow[UserSettings]:
    """Give one of the caller's settings its default again; None: all."""
    params = {} if name is None else {"name": name}
    return one(Call("DELETE", _PATH, params=params, parse=model(UserSettings)))
