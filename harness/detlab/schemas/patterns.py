"""Users' regular expressions: in the syntax of RE2, whose time is linear in the text for any expression.

The master matches with RE2 and judges with it. Where it is not installed (a laptop), an expression is judged by
Python's `re`, which takes more; the master says the rest.
"""

from __future__ import annotations

import re
import warnings
from importlib.util import find_spec
from typing import Any

MOST_MEMORY = 1 << 20
"""Bytes of a compiled expression and of the states that it is matched with."""
MOST_INSTRUCTIONS = 5000
"""Of a compiled expression: each character of a text costs so many steps at most."""
_SYNTAX = "https://github.com/google/re2/wiki/Syntax"
_HINTS = (
    ("(?=", "there is no lookahead: match the text itself, or filter with --search beside it"),
    ("(?!", "there is no lookahead: match what is wanted, or filter with --search beside it"),
    ("(?<=", "there is no lookbehind: match the text before it, too"),
    ("(?<!", "there is no lookbehind: match what is wanted before it"),
    ("(?P=", "there are no backreferences: write the alternatives out"),
    ("(?>", "leave out (?> >: nothing is tried twice here"),
    ("(?#", "there are no comments in expressions"),
    ("\\Z", "write \\z for the end of the text"),
    ("\\u", "write the character itself, or \\x{20AC}"),
)


class BadPattern(ValueError):
    """An expression that RE2 does not take.

    Attributes:
        hint: What to write instead, where that is known.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def compile_pattern(pattern: str) -> Any:
    """Compile an expression; `search(text)` of the result is None where it does not match.

    Raises:
        BadPattern: It is not in RE2's syntax, or too large.
        ModuleNotFoundError: RE2 is not installed: only the master needs it.
    """
    import re2

    options = re2.Options()
    options.max_mem = MOST_MEMORY
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise BadPattern("is not a text in Unicode") from error
    except re2.error as error:
        said = error.args[0]
        raise _refusal(pattern, said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error
    if compiled.programsize > MOST_INSTRUCTIONS:
        raise _refusal(pattern, "pattern too large")
    return compiled


def check_pattern(pattern: str) -> None:
    """Judge an expression, by RE2 where that is installed.

    Raises:
        BadPattern: It is not a regular expression.
    """
    if find_spec("re2") is not None:
        compile_pattern(pattern)
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"is not a regular expression: {error}") from error


def _refusal(pattern: str, said: str) -> BadPattern:
    if "too large" in said:
        return BadPattern("is too large a regular expression", "repeat less: x+ for x{1,1000}")
    hint = next((hint for mark, hint in _HINTS if mark in pattern), None)
    if hint is None and re.search(r"\\[1-9]", pattern):
        hint = "there are no backreferences: write the alternatives out"
    if hint is None and "repetition" in said:
        hint = "a repetition counts to 1000, and stands alone: x+ for x++"
    return BadPattern(f"is not a regular expression of RE2: {said}", hint or _SYNTAX)
