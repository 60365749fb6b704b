"""What users have chosen for themselves: among the small facts, a row for each user who has chosen something."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from detlab.schemas.wire.notify.user_settings import SETTING_NAMES, UserSettings
from detlab_hub.store.tables import Meta

_PREFIX = "settings of user "


def settings_of(s: Session, user: str) -> UserSettings:
    """Return the settings of a user. One that this version does not know, or not with this value, has its default."""
    found = _chosen(s, user)
    try:
        return UserSettings(**found, chosen=[name for name in SETTING_NAMES if name in found])
    except ValidationError:
        return UserSettings()


def change(s: Session, user: str, changes: dict[str, Any]) -> None:
    """Change some settings of a user; None resets one."""
    found = {name: value for name, value in {**_chosen(s, user), **changes}.items() if value is not None}
    row = s.get(Meta, _PREFIX + user)
    if found:
        s.merge(Meta(key=_PREFIX + user, value=json.dumps(found)))
    elif row is not None:
        s.delete(row)
    s.flush()


def _chosen(s: Session, user: str) -> dict[str, Any]:
    row = s.get(Meta, _PREFIX + user)
    found = {} if row is None else json.loads(row.value)
    return {name: found[name] for name in SETTING_NAMES if name in found}
