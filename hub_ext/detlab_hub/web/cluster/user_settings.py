"""Routes of the settings of users."""

from __future__ import annotations

from detlab.schemas.wire import PersonRequest
from detlab.schemas.wire.notify.user_settings import SettingName, SetUserSettings, UserSettings
from detlab_hub.core.rights import Action
from detlab_hub.services.cluster.user_settings import UserSettingsKept
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class SettingsToReset(PersonRequest):
    """Which settings."""

    name: SettingName | None = None
    """Null: all."""


@route("me/settings", relayed=True)
class MySettings(Guarded):
    """What the caller has chosen for themselves."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> UserSettings:
        """Return the caller's settings."""
        return await self.services[UserSettingsKept].get(self.person)

    @needs("write", cross_site="xsrf", action=Action.USER_SETTINGS_SET)
    async def post(self, body: SetUserSettings) -> UserSettings:
        """Change some of the caller's settings; those that are not named stay."""
        return await self.services[UserSettingsKept].set(self.person, body)

    @needs("write", cross_site="xsrf", action=Action.USER_SETTINGS_RESET)
    async def delete(self, query: SettingsToReset) -> UserSettings:
        """Give one of the caller's settings its default again, or all."""
        return await self.services[UserSettingsKept].reset(self.person, [] if query.name is None else [query.name])
