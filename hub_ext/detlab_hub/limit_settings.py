"""`c.UserLimits`: the limits of one user's requests, as the operator sets them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from traitlets import Float, Integer, Set, Unicode
from traitlets.config import Configurable

from detlab_hub.services.base.limits.model import PerUserLimits


def _traits() -> dict[str, Any]:
    found: dict[str, Any] = {}
    made = PerUserLimits()
    for one in fields(PerUserLimits):
        if one.metadata:
            default: Any = getattr(made, one.name)
            kind = Integer if isinstance(default, int) else Float
            text = f"{one.metadata['about']} ({one.metadata['unit']}); 0: without limit."
            found[one.name] = kind(default, min=0, help=text).tag(config=True)
    return found


class _Users(Configurable):
    exempt_users = Set(Unicode(), help="Users whom none of these bind.").tag(config=True)
    exempt_groups = Set(Unicode(), help="Groups of the Hub whose users none of these bind.").tag(config=True)


UserLimits = type(
    "UserLimits", (_Users,), {"__doc__": "What one user may ask of the master.", "__module__": __name__, **_traits()}
)


def read_limits(parent: Configurable) -> PerUserLimits:
    """Return the limits that a configuration sets."""
    said: Any = UserLimits(parent=parent)
    values = {one.name: getattr(said, one.name) for one in fields(PerUserLimits)}
    return PerUserLimits(
        **{**values, "exempt_users": frozenset(said.exempt_users), "exempt_groups": frozenset(said.exempt_groups)}
    )
