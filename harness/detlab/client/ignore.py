"""Which files of a context directory travel: `.detignore` in gitignore syntax, and defaults."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pathspec import GitIgnoreSpec

from detlab.errors import BundleError

IGNORE_FILE = ".detignore"
DEFAULT_IGNORES = (
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.py[co]",
    ".ipynb_checkpoints/",
    ".venv/",
    "node_modules/",
    ".detlab/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".DS_Store",
)
"""Left out unless `.detignore` takes them back in (`!.venv/`)."""


class IgnoreRules:
    """The rules of one context directory.

    The rules are git's: the last pattern that matches decides, and nothing below a directory that is left out
    can be taken back in. Only the `.detignore` at the root counts.

    Args:
        patterns: Lines of a `.detignore`; they come after the defaults.
        defaults: Patterns that hold unless overruled.
    """

    def __init__(self, patterns: Iterable[str] = (), defaults: Iterable[str] = DEFAULT_IGNORES) -> None:
        lines = [*defaults, *patterns]
        try:
            self._spec = GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise BundleError(f"{IGNORE_FILE} holds a pattern that cannot be read: {error}") from error

    @classmethod
    def of(cls, root: Path) -> IgnoreRules:
        """Read the rules of a context directory.

        Raises:
            BundleError: Its `.detignore` cannot be read.
        """
        file = root / IGNORE_FILE
        try:
            lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise BundleError(f"{file} cannot be read: {error}") from error
        return cls(lines)

    def ignores(self, relative: str, *, directory: bool) -> bool:
        """Tell whether a path below the root is left out, given that no directory above it is.

        Args:
            relative: POSIX path below the root, without a slash at its end.
            directory: Whether it is a directory.
        """
        return self._spec.match_file(f"{relative}/" if directory else relative)
