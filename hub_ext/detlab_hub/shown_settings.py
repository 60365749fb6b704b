"""How the master is set up, as administrators may see it: all settings of its configuration, with secrets masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from traitlets.config import Application

from detlab.schemas.expconf.raw.secret_keys import MASK, SECRET_KEYS, is_secret_option
from detlab.schemas.wire.cluster.master import MasterSetting, as_json

_OF_TRAITLETS = frozenset(dir(Application)) - {"log_level"}
_SECRET_NAME = re.compile(r"token|secret|passw|credential|private|signature|(api|access|account)_?key", re.IGNORECASE)
_FILE = re.compile(r"_(file|files|path|dir|certificate)$")
"""Settings that name where something is, and hold nothing of it."""
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_BEHIND_HOST = re.compile(r"(?<=://)([^/?#\s]*)[/?#].*", re.DOTALL)


def shown_settings(application: Application) -> list[MasterSetting]:
    """Return all settings, in alphabetical order."""
    found = []
    for name, trait in sorted(application.traits(config=True).items()):
        if name in _OF_TRAITLETS:
            continue
        value = getattr(application, name)
        usual = trait.default()
        shown = as_json(_masked(name, value))
        found.append(MasterSetting(name=name, value=shown, is_default=value == usual, help=str(trait.help or "")))
    return found


def _masked(name: str, value: Any) -> Any:
    """Return a value of a setting, or a part of it, without what is a secret by its name or its form."""
    if isinstance(value, Mapping):
        return {key: _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(name, item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if _is_secret(name) and value not in ("", 0):
        return MASK
    if not isinstance(value, str):
        return value
    if name in ("url", "webhook") or name.endswith("webhooks"):  # chats have the secret in its path
        return _BEHIND_HOST.sub(rf"\1/{MASK}", _USER_IN_URL.sub(MASK, value))
    variable, given, _ = value.partition("=")
    if given and variable.isidentifier() and _SECRET_NAME.search(variable):
        return f"{variable}={MASK}"
    return _USER_IN_URL.sub(MASK, value)


def _is_secret(name: str) -> bool:
    if _FILE.search(name):
        return False
    return name in SECRET_KEYS or is_secret_option(name) or _SECRET_NAME.search(name) is not None
