r"""Which files of a context directory are uploaded: `.detignore` in gitignore syntax, and defaults.

The patterns are translated here, after git's own matcher (`wildmatch.c`, with `WM_PATHNAME` for patterns that hold
a slash): each entry is matched by itself, from the top down, and the last pattern that matches it decides. A test
compares this with `git` on random trees; the `pathspec` library differs from git there (it lets `!*/` overrule a
later `.git`, and fails on a lone `!`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from detlab.errors import BundleError

IGNORE_FILE = ".detignore"
DEFAULT_IGNORES = (
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.py[co]",
    ".ipynb_checkpoints/",
    ".venv/",
    "node_modules/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".DS_Store",
)
"""Left out unless `.detignore` takes them back in (`!.venv/`)."""
NEVER = (".git", ".detlab/")
"""Left out whatever `.detignore` says: `!*/` is a common line, and a state folder holds secrets."""

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


class _Unmatchable(Exception):
    """A pattern that git takes and that matches nothing, such as an open bracket."""


@dataclass(frozen=True, slots=True)
class _Rule:
    regex: re.Pattern[str]
    ignore: bool
    directories_only: bool
    whole_path: bool

    def matches(self, relative: str, directory: bool) -> bool:
        if self.directories_only and not directory:
            return False
        text = relative if self.whole_path else relative.rpartition("/")[2]
        return self.regex.fullmatch(text) is not None


class IgnoreRules:
    """The rules of one context directory.

    The last pattern that matches decides, and nothing below a directory that is left out can be taken back in.
    Only the `.detignore` at the root counts.

    Args:
        patterns: Lines of a `.detignore`; they come after the defaults and before `NEVER`.
        defaults: Patterns that hold unless overruled.
    """

    def __init__(self, patterns: Iterable[str] = (), defaults: Iterable[str] = DEFAULT_IGNORES) -> None:
        rules = (_rule(line) for line in (*defaults, *patterns, *NEVER))
        self._rules = [rule for rule in rules if rule is not None][::-1]

    @classmethod
    def of(cls, root: Path) -> IgnoreRules:
        """Read the rules of a context directory.

        Raises:
            BundleError: Its `.detignore` cannot be read.
        """
        file = root / IGNORE_FILE
        try:
            lines = file.read_text(encoding="utf-8-sig").split("\n") if file.is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise BundleError(f"{file} cannot be read: {error}") from error
        return cls(lines)

    def ignores(self, relative: str, *, directory: bool) -> bool:
        """Tell whether a path below the root is left out, given that no directory above it is.

        Args:
            relative: POSIX path below the root, without a slash at its end.
            directory: Whether it is a directory (a link to one is not).
        """
        for rule in self._rules:
            if rule.matches(relative, directory):
                return rule.ignore
        return False


def _rule(line: str) -> _Rule | None:
    """Return the rule of a line, or None if it says nothing."""
    text = _without_trailing_spaces(line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    ignore = not text.startswith("!")
    text = text if ignore else text[1:]
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    whole_path = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    try:
        regex = _translate(text)
    except _Unmatchable:
        return None
    return _Rule(regex, ignore, directories_only, whole_path)


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return f"{stripped} " if escaped and len(stripped) < len(line) else stripped


def _translate(pattern: str) -> re.Pattern[str]:
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            end = at
            while end < len(pattern) and pattern[end] == "*":
                end += 1
            part, at = _stars(pattern, at, end)
        elif char == "?":
            part, at = "[^/]", at + 1
        elif char == "[":
            part, at = _bracket(pattern, at + 1)
        elif char == "\\":
            if at + 1 == len(pattern):
                raise _Unmatchable
            part, at = re.escape(pattern[at + 1]), at + 2
        else:
            part, at = re.escape(char), at + 1
        out.append(part)
    return re.compile("".join(out), re.DOTALL)


def _stars(pattern: str, start: int, end: int) -> tuple[str, int]:
    """Translate a run of asterisks; two or more between slashes or ends cross directories."""
    after = pattern[end : end + 1]
    crosses = end - start > 1 and (start == 0 or pattern[start - 1] == "/") and after in {"", "/"}
    if not crosses:
        return "[^/]*", end
    return ("(?:.*/)?", end + 1) if after == "/" else (".*", end)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """Translate a bracket whose content begins at a position; return the position after it."""
    negated = pattern[at : at + 1] in {"!", "^"}
    at += negated
    members: list[str] = []
    previous: str | None = None
    first = True
    while True:
        char = pattern[at : at + 1]
        if not char:
            raise _Unmatchable
        if char == "]" and not first:
            break
        first = False
        if char == "[" and pattern[at + 1 : at + 2] == ":" and ":]" in pattern[at + 2 :]:
            name, _, _ = pattern[at + 2 :].partition(":]")
            if name not in _CLASSES:
                raise _Unmatchable
            members.append(_CLASSES[name])
            previous = None
            at += len(name) + 4
        elif char == "-" and previous is not None and pattern[at + 1 : at + 2] not in {"", "]"}:
            last, at = _member(pattern, at + 1)
            if previous <= last:
                members.append(f"{re.escape(previous)}-{re.escape(last)}")
            previous = None
        else:
            previous, at = _member(pattern, at)
            members.append(re.escape(previous))
    inside = "".join(members)
    return f"(?!/)[{'^' if negated else ''}{inside}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    """Return one member of a bracket, unescaped, and the position after it."""
    if pattern[at] != "\\":
        return pattern[at], at + 1
    if at + 1 == len(pattern):
        raise _Unmatchable
    return pattern[at + 1], at + 2
