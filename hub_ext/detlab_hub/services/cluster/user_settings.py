"""Settings of users: each reads and changes their own alone."""

from __future__ import annotations

from collections.abc import Collection

from detlab.errors import ConfigError, Problem
from detlab.schemas.wire.notify.user_settings import (
    BROWSERS,
    SETTING_NAMES,
    SettingName,
    SetUserSettings,
    UserSettings,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_may_ask, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.schedules.views import zone_of
from detlab_hub.store.queries.notify import user_settings


class UserSettingsKept(Service):
    """Use cases of the settings of users."""

    async def get(self, caller: Caller) -> UserSettings:
        """Return the caller's settings."""
        return await self._context.read(lambda s: user_settings.settings_of(s, person(caller).name))

    async def set(self, caller: Caller, wanted: SetUserSettings) -> UserSettings:
        """Change some of the caller's settings; those that are not named stay.

        Raises:
            ConfigError: There is no such time zone.
        """
        changes = wanted.model_dump(exclude_none=True)
        zone = changes.get("time_zone", BROWSERS)
        if zone != BROWSERS:
            try:
                zone_of(zone)
            except ValueError as error:
                hint = "an IANA name, such as Europe/Berlin; UTC; or local, the browser's own"
                raise ConfigError([Problem("time_zone", str(error), hint)], str(error)) from None

        def change(unit: UnitOfWork) -> UserSettings:
            check_may_ask(caller, Action.USER_SETTINGS_SET)
            user_settings.change(unit.session, person(caller).name, changes)
            said = ", ".join(f"{name}={value}" for name, value in changes.items())
            audit.note(unit, caller, Action.USER_SETTINGS_SET, f"settings of {person(caller).name}", said)
            return user_settings.settings_of(unit.session, person(caller).name)

        return await self._context.write(change) if changes else await self.get(caller)

    async def reset(self, caller: Caller, names: Collection[SettingName]) -> UserSettings:
        """Give some of the caller's settings their defaults again; without names all."""

        def reset(unit: UnitOfWork) -> UserSettings:
            check_may_ask(caller, Action.USER_SETTINGS_RESET)
            wanted = names or SETTING_NAMES
            user_settings.change(unit.session, person(caller).name, dict.fromkeys(wanted))
            about = f"settings of {person(caller).name}"
            audit.note(unit, caller, Action.USER_SETTINGS_RESET, about, ", ".join(wanted))
            return user_settings.settings_of(unit.session, person(caller).name)

        return await self._context.write(reset)
