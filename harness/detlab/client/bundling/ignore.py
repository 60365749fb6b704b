"""Which files of a context directory are uploaded: `.detignore` in gitignore syntax, and defaults.

Each entry is matched by itself, from the top down, and the last pattern that matches it decides, as in git; a test
compares the two on drawn trees. `wcmatch` translates the patterns. (`pathspec` does not serve: its negations reach
below what they name, so that `!src` takes `src/__pycache__` back in, and its `a/**` covers `a` itself.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wcmatch import glob

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
    "detlab-runs/",
    ".*.detlab",
    ".*.partial/",
    ".*.resume/",
)
"""Left out unless `.detignore` takes them back in (`!.venv/`); the last three are notes and parts of downloads."""
NEVER = (".git", ".detlab/")
"""Left out regardless of `.detignore`: `!*/` is a common line, and a state folder holds secrets."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BRACKETS = re.compile(r"(?<!\\)\[(?P<negation>[!^]?)(?P<characters>[^]\\]*/[^]\\]*)\]")
_FLAGS = glob.GLOBSTAR | glob.DOTGLOB | glob.CASE | glob.FORCEUNIX


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
        rule = self._deciding(relative, directory)
        return rule is not None and rule.ignore

    def leaves_out_download(self, folder: Path, relative: str) -> bool:
        """Tell whether a folder is left out because a download of a checkpoint has made it.

        Such a folder is no code; `!NAME/` in `.detignore` takes it back in.

        Args:
            folder: Which is not ignored.
            relative: Its POSIX path below the root.
        """
        noted = folder.with_name(f".{folder.name}.detlab").is_file()
        if not noted and not (_UUID.fullmatch(folder.name) and (folder / "metadata.json").is_file()):
            return False
        return self._deciding(relative, True) is None

    def _deciding(self, relative: str, directory: bool) -> _Rule | None:
        return next((rule for rule in self._rules if rule.matches(relative, directory)), None)


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
    translated, _ = glob.translate(_BRACKETS.sub(_without_slashes, text), flags=_FLAGS)
    return _Rule(re.compile(translated[0]), ignore, directories_only, whole_path)


def _without_slashes(found: re.Match[str]) -> str:
    """Return brackets as git reads them: they never match a slash, which would end them for `wcmatch`."""
    negation, characters = found["negation"], found["characters"].replace("/", "")
    if characters:
        return f"[{negation}{characters}]"
    return "?" if negation else "[!\\x00-\U0010ffff]"


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return f"{stripped} " if escaped and len(stripped) < len(line) else stripped
