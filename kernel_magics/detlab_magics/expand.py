"""`${name}` in a YAML body: a notebook variable's value, with its type where it stands alone.

`$${` writes a literal `${`. YAML's own braces are untouched, so flow mappings stay readable.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from detlab_magics.errors import MagicError

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}\n]*)\}")
_TOKEN = re.compile(r"zzdet(\d+)zz")


class Expansion:
    """Replaces references by plain words before YAML is parsed, and the words by values afterwards."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._values: list[Any] = []

    def mask(self, text: str) -> str:
        """Return `text` with each reference as a word that YAML reads as a plain scalar.

        Raises:
            MagicError: A reference names no variable; all of them are named at once, with their lines.
        """
        problems: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if match.group(0) == "$${":
                return self._keep("${")
            name = match.group(1).strip()
            line = text.count("\n", 0, match.start()) + 2  # the magic itself is line 1 of the cell
            if name not in self._namespace:
                close = difflib.get_close_matches(name, [n for n in self._namespace if not n.startswith("_")], 1)
                maybe = f", did you mean ${{{close[0]}}}?" if close else ""
                problems.append(f"line {line} of the cell: no variable {name!r} in this notebook{maybe}")
                return ""
            return self._keep(self._namespace[name])

        masked = _REFERENCE.sub(replace, text)
        if problems:
            raise MagicError(
                "\n".join(problems), hint="define it in an earlier cell, or write $${…} for the text itself"
            )
        return masked

    def unmask(self, value: Any) -> Any:
        """Return parsed YAML with the words replaced: typed where one stands alone, else as text."""
        if isinstance(value, dict):
            return {self.unmask(k): self.unmask(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.unmask(v) for v in value]
        if isinstance(value, str):
            whole = _TOKEN.fullmatch(value)
            if whole:
                return self._values[int(whole.group(1))]
            return _TOKEN.sub(lambda m: str(self._values[int(m.group(1))]), value)
        return value

    def _keep(self, value: Any) -> str:
        self._values.append(_plain(value))
        return f"zzdet{len(self._values) - 1}zz"


def _plain(value: Any) -> Any:
    """Return NumPy scalars and arrays as plain Python (anything with `tolist`), paths as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__fspath__"):
        return str(value)
    return value
