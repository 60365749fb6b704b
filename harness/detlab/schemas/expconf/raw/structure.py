"""Whether a raw value is plain JSON of reasonable size, before anything walks over it.

YAML can say what JSON cannot (NaN, dates, sets, recursive aliases), and a few aliases can stand for billions
of values. Configs reach the master from untrusted users, so size and depth are judged first.
"""

from __future__ import annotations

import math

from detlab.errors import Problem
from detlab.schemas.expconf.raw.paths import Path, render

MAX_DEPTH = 64
MAX_NODES = 50_000
MAX_CHARS = 400_000
"""Characters of all texts together: what YAML may bring, whichever way the config comes."""
MAX_INT = 2**64
MAX_PROBLEMS = 100
"""Problems of each level that one check names; a hostile config could have hundreds of thousands."""


class _TooMuchError(Exception):
    """The value is too deep or too large to walk over, or holds what cannot be printed."""


def _is_storable(text: str) -> bool:
    """Whether a text survives UTF-8 and the text columns of a database."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


class _Inspector:
    def __init__(self) -> None:
        self.nodes = 0
        self.chars = 0
        self.problems: list[Problem] = []

    def inspect(self, value: object, path: Path) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _TooMuchError(f"holds more than {MAX_NODES:,} values once its aliases are spelt out")
        if len(path) > MAX_DEPTH:
            raise _TooMuchError(f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, dict):
            for key, item in value.items():
                self._judge_key(key, path)
                self._count_chars(key)
                self.inspect(item, (*path, str(key)))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self.inspect(item, (*path, index))
        else:
            self._count_chars(value)
            self._judge_scalar(value, path)

    def _count_chars(self, value: object) -> None:
        if isinstance(value, str):
            self.chars += len(value)
            if self.chars > MAX_CHARS:
                raise _TooMuchError(f"holds texts of more than {MAX_CHARS:,} characters once its aliases are spelt out")

    def _judge_key(self, key: object, path: Path) -> None:
        if not isinstance(key, str):
            self._add(path, f"has the key {key!r}, which is not a text")
        elif not _is_storable(key):
            self._add(path, f"has the key {key!r}, which is not plain text")

    def _judge_scalar(self, value: object, path: Path) -> None:
        match value:
            case float() if not math.isfinite(value):
                self._add(path, f"must be a finite number, not {value}")
            case str() if not _is_storable(value):
                self._add(path, "must not hold a NUL character or half of a surrogate pair")
            case int() if abs(value) >= MAX_INT:
                raise _TooMuchError(f"holds a number of more than 64 bits, at {render(path)}")
            case None | bool() | int() | float() | str():
                pass
            case _:
                self._add(path, f"must be plain JSON, not a {type(value).__name__}")

    def _add(self, path: Path, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(render(path), message))


def inspect(raw: object) -> tuple[list[Problem], bool]:
    """Return what keeps a raw value from being JSON, and whether it is safe to walk over it."""
    inspector = _Inspector()
    try:
        inspector.inspect(raw, ())
    except _TooMuchError as error:
        return [Problem("", str(error))], False
    return inspector.problems, True
