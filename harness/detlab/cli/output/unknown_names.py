"""The error for a name that is none of those that there are."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from detlab.errors import NotFound
from detlab.visible import visible

_SHOWN = 10


def no_such_name(message: str, name: str, known: Collection[str], *, hint: str) -> NotFound:
    """Return the error that says which names there are, those that look like the given one first.

    Args:
        message: What has not got the name.
        name: The given one.
        known: Those that there are.
        hint: The command that lists them all.
    """
    if not known:
        return NotFound(f"{visible(message)}: it has none at all", hint=hint)
    near = difflib.get_close_matches(name, known, n=3)
    names = [*near, *(one for one in sorted(known) if one not in near)]
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return NotFound(f"{visible(message)}: there are {visible(', '.join(names[:_SHOWN]))}{more}", hint=hint)
