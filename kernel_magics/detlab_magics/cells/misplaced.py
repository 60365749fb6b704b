"""A cell magic that is not in its cell's first line: say so, instead of a syntax error in the YAML below it."""

from __future__ import annotations

import re
from collections.abc import Callable

_OURS = re.compile(r"%%(det_\w+)")


def explain_misplaced(is_complete: Callable[[str], bool]) -> Callable[[list[str]], list[str]]:
    """Return an IPython input transformer.

    Args:
        is_complete: Tells whether a text is whole statements; where it is not, what follows may be inside of a string.
    """

    def transform(lines: list[str]) -> list[str]:
        first = next((line for line in lines if line.strip()), "")
        if first.startswith("%%"):
            return lines
        for index, line in enumerate(lines):
            found = _OURS.match(line)
            if found and _only_comments(lines[:index]):
                return [f"get_ipython().run_line_magic('det_misplaced', '{found.group(1)} comment')\n"]
            if found and is_complete("".join(lines[:index])):
                return [f"get_ipython().run_line_magic('det_misplaced', '{found.group(1)} code')\n"]
        return lines

    return transform


def _only_comments(lines: list[str]) -> bool:
    return bool(lines) and all(not line.strip() or line.lstrip().startswith("#") for line in lines)
