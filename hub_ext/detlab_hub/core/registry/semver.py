"""Semantic versions, as semver.org 2.0.0 has them: MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]."""

from __future__ import annotations

import re
from functools import total_ordering

_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_PART = r"(?:0|[1-9][0-9]{0,17}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PART}(?:\.{_PART})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)


@total_ordering
class SemanticVersion:
    """A semantic version; they order by precedence (section 11), to which the build adds nothing.

    Args:
        text: Such as `1.2.0` or `2.0.0-rc.1`; a leading `v` is not part of one.

    Raises:
        ValueError: It is none; the message says what one looks like.
    """

    def __init__(self, text: str) -> None:
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:100]!r} is no semantic version, such as 1.2.0 or 2.0.0-rc.1")
        self.text = text
        self._core = (int(found[1]), int(found[2]), int(found[3]))
        self._pre = tuple(_rank(part) for part in found[4].split(".")) if found[4] else None

    def _key(self) -> tuple[object, ...]:
        # A version without a pre-release comes after those with one.
        return (self._core, self._pre is None, self._pre or ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemanticVersion) and self._key() == other._key()

    def __lt__(self, other: SemanticVersion) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.text


def _rank(part: str) -> tuple[bool, int, str]:
    """Return what a part of a pre-release orders by: numbers come first, and by their value."""
    return (False, int(part), "") if part.isdigit() else (True, 0, part)


def is_semver(text: str) -> bool:
    """Whether a text is a semantic version."""
    return _SEMVER.fullmatch(text) is not None
