"""`det user settings …`: what you have chosen for yourself."""

from __future__ import annotations

from typing import Any, get_args

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import say, table
from detlab.client.operations.cluster import user_settings
from detlab.schemas.wire.notify.user_settings import SETTING_NAMES, Theme, UserSettings

_ABOUT = {
    "theme": f"colours of the Hub's page: {', '.join(get_args(Theme))}",
    "time_zone": "in which pages show times: an IANA name, or local (the browser's)",
    "bell": "whether alerts are new at the bell",
    "email": "whether alerts are sent by e-mail, by rules with --email",
}


class _Name(click.ParamType[str]):
    """The name of a setting, with `-` or `_`."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = str(value).replace("-", "_").lower()
        if found not in SETTING_NAMES:
            self.fail(f"there is no setting {value!r}: {', '.join(SETTING_NAMES)}", param, ctx)
        return found


@click.group(cls=LazyGroup, short={"show": "get"})
def settings() -> None:
    """Your own settings: colours and times of the pages, and which notifications you want.

    \b
    Examples:
      det user settings get
      det user settings set time_zone Europe/Berlin
      det user settings set email off
      det user settings reset time_zone
    """


@settings.command()
@click.argument("name", type=_Name(), required=False)
@csv_option
@json_option
@pass_invocation
def get(invocation: Invocation, name: str | None) -> None:
    """Show your settings, or the value of one.

    \b
    Examples:
      det user settings get
      det user settings get time_zone
    """
    found = invocation.client.session.run(user_settings.user_settings())
    if name is not None:
        value = getattr(found, name)
        invocation.tell({name: value}, _text(value))
    elif not invocation.answered(found):
        _show(found)


@settings.command(name="set")
@click.argument("name", type=_Name())
@click.argument("value")
@json_option
@pass_invocation
def set_command(invocation: Invocation, name: str, value: str) -> None:
    """Change one of your settings.

    \b
    Examples:
      det user settings set theme dark
      det user settings set time_zone UTC
      det user settings set bell off
    """
    changed: Any = value
    if name in {"bell", "email"}:
        changed = click.BOOL.convert(value, None, click.get_current_context())
    found = invocation.client.session.run(user_settings.set_user_settings(**{name: changed}))
    invocation.tell(found, f"{name} is {_text(getattr(found, name))}.")


@settings.command()
@click.argument("name", type=_Name(), required=False)
@json_option
@pass_invocation
def reset(invocation: Invocation, name: str | None) -> None:
    """Give one of your settings its default again, or all of them.

    \b
    Examples:
      det user settings reset time_zone
      det user settings reset
    """
    found = invocation.client.session.run(user_settings.reset_user_settings(name))
    said = "All settings have their defaults." if name is None else f"{name} is {_text(getattr(found, name))}."
    invocation.tell(found, said)


def _show(found: UserSettings) -> None:
    rows = [
        (name, _text(getattr(found, name)), "" if name in found.chosen else "default", _ABOUT[name])
        for name in SETTING_NAMES
    ]
    table(("Setting", "Value", "Set", "About"), rows)
    if not found.email:
        say("No alert is sent by e-mail: those of rules that would are new at the bell.")


def _text(value: str | bool) -> str:
    return value if isinstance(value, str) else "on" if value else "off"
