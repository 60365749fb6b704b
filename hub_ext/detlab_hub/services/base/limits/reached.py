"""The errors of limits: which limit, its value, how much is used, what to do, and who can raise it."""

from __future__ import annotations

import math
from typing import TypeAlias

from detlab.errors import Conflict, Forbidden, LimitReached

PREFIX = "limit."
LONGEST_WAIT = 3600.0


def _hint(todo: str, setting: str) -> str:
    return (
        f"{todo}. What there is of it shows `det limits`; an administrator may raise c.UserLimits.{setting}, or exempt"
        " you (c.UserLimits.exempt_users)."
    )


class TooFast(LimitReached):
    """A rate: nothing was done, and the same may be asked again later (429)."""

    def __init__(self, name: str, user: str, setting: str, message: str, wait: float) -> None:
        self.limited_user = user
        self.retry_after = max(1, math.ceil(min(wait, LONGEST_WAIT)))
        todo = f"Try again in {self.retry_after} s, and ask less often"
        super().__init__(message, hint=_hint(todo, setting), code=PREFIX + name)


class TooMany(Conflict):
    """A number of things: some have to end first (409)."""

    def __init__(self, name: str, user: str, setting: str, message: str, todo: str) -> None:
        self.limited_user = user
        super().__init__(message, hint=_hint(todo, setting), code=PREFIX + name)


class NotAllowed(Forbidden):
    """A value that only administrators may give (403)."""

    def __init__(self, name: str, user: str, setting: str, message: str, todo: str) -> None:
        self.limited_user = user
        super().__init__(message, hint=_hint(todo, setting), code=PREFIX + name)


Reached: TypeAlias = TooFast | TooMany | NotAllowed
