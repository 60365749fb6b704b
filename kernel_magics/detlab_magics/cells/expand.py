"""`${name}` in a YAML body: a notebook variable's value, with its type where it stands alone.

`$${` writes a literal `${`. In a body that runs `detlab.launch.hparams`, the words that it fills in for each trial stay
as they are: `${args}`, `${args_json}`, …; `${hparams.NAME}` and `${env.NAME}` name no variable and stay in every body.
YAML's own braces are untouched, so flow mappings stay readable; comment lines are, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from detlab_magics.errors import MagicError

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}\n]*)\}")
_LAUNCHER = "detlab.launch.hparams"
_ITS_WORDS = ("args", "args_no_hyphens", "args_no_boolean_flags", "args_json")
_ITS_NAMES = ("hparams.", "env.")
_OF_IPYTHON = frozenset({"In", "Out", "exit", "get_ipython", "open", "quit"})
_TOKEN = re.compile(r"zzdet(\d+)zz")


class Expansion:
    """Replaces references by plain words before YAML is parsed, and the words by values afterwards.

    Args:
        namespace: The notebook's variables.
        where: What the text is, in errors: `the cell`, `search.yaml`.
        first_line: Number of the text's first line, in errors (a cell's body begins in line 2).
    """

    def __init__(self, namespace: Mapping[str, Any], *, where: str = "the cell", first_line: int = 2) -> None:
        self._namespace = namespace
        self._where = where
        self._first_line = first_line
        self._values: list[Any] = []
        self._filled_later = False

    def mask(self, text: str) -> str:
        """Return `text` with each reference as a word that YAML reads as a plain scalar.

        Raises:
            MagicError: A reference names no variable, or one that YAML cannot hold; all of them are listed.
        """
        problems: list[str] = []
        masked = []
        self._filled_later = _LAUNCHER in text
        for number, line in enumerate(text.split("\n"), self._first_line):
            comment = line.lstrip().startswith("#")
            masked.append(line if comment else self._mask_line(line, number, problems))
        if problems:
            hint = "define it in an earlier cell, or write $${…} for the text itself"
            raise MagicError("\n".join(problems), hint=hint)
        return "\n".join(masked)

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

    def _mask_line(self, line: str, number: int, problems: list[str]) -> str:
        def replace(match: re.Match[str]) -> str:
            if match.group(0) == "$${":
                return self._keep("${")
            name = match.group(1).strip()
            if name.startswith(_ITS_NAMES) or (self._filled_later and name in _ITS_WORDS):
                return self._keep(match.group(0))
            try:
                return self._keep(_plain(self._value(name), name))
            except LookupError as problem:
                problems.append(f"line {number} of {self._where}: {problem.args[0]}")
                return ""

        return _REFERENCE.sub(replace, line)

    def _value(self, name: str) -> Any:
        if name in self._namespace:
            return self._namespace[name]
        if not name.isidentifier():
            raise LookupError(f"${{{name}}} is not a variable's name (expressions are not evaluated)")
        if name in _ITS_WORDS:
            raise LookupError(
                f"no variable {name!r} in this notebook; for a trial's hyperparameters the entrypoint is"
                f' ["python3", "-m", "{_LAUNCHER}", "--", "python3", "train.py", "${{{name}}}"]'
            )
        close = near_variable(name, self._namespace)
        maybe = f", did you mean ${{{close}}}?" if close else ""
        raise LookupError(f"no variable {name!r} in this notebook{maybe}")

    def _keep(self, value: Any) -> str:
        self._values.append(value)
        return f"zzdet{len(self._values) - 1}zz"


def near_variable(name: str, namespace: Iterable[str]) -> str | None:
    """Return a variable of the notebook's own whose name is like one that it does not have."""
    own = [one for one in namespace if not one.startswith("_") and one not in _OF_IPYTHON]
    return next(iter(difflib.get_close_matches(name, own, 1)), None)


def _plain(value: Any, name: str) -> Any:
    """Return what YAML can hold: NumPy scalars and arrays (anything with `tolist`) as plain Python, paths as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, name) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__fspath__"):
        return str(value)
    raise LookupError(f"the variable {name!r} is a {type(value).__name__}, which a configuration cannot hold")
