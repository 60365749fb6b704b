"""Mistakes of YAML in words that say what to do: PyYAML's name its own tokens."""

from __future__ import annotations

import yaml

from detlab.errors import Problem

_KEPT = 60
"""Characters of a line that are shown."""


def syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    """Return what is wrong with a text, with line and column, and what to do.

    Args:
        error: What PyYAML says.
        text: The text.
    """
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem("", f"is not YAML: {str(error).splitlines()[0]}")
    what, hint = _said(error, text.split("\n"))
    return Problem("", f"{_place(error)}{what}", hint)


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _said(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[str, str | None]:
    what = error.problem or error.context or "cannot be read"
    context = error.context or ""
    begun = f"line {error.context_mark.line + 1}" if error.context_mark else "an earlier line"
    if "\\t" in what or "'\t'" in what:
        return what, "indent with spaces, not with tabs"
    if "mapping values are not allowed" in what:
        return _value_of_value(error, lines)
    if "expected <block end>" in what:
        return _fits_nowhere(error, lines, begun)
    if "could not find expected ':'" in what:
        return what, f"{begun} has no colon after its key: write `key: value`, with a space after the colon"
    if "expected ',' or" in what or context.startswith("while parsing a flow"):
        return what, f"the [ or {{ that begins in {begun} is not closed, or a comma is missing in it"
    if "quoted scalar" in context or "end of stream" in what:
        return what, f"the quote that begins in {begun} is not closed"
    if "cannot start any token" in what:
        return what, "put the value in quotes: it begins with a character that means something in YAML"
    if "expected a single document" in str(error):
        return "holds several documents", "keep one; `---` starts a second"
    if "could not determine a constructor" in what:
        return what, "remove the `!tag`"
    return what, None


def _value_of_value(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[str, str]:
    """Say what a key is doing where a value ends: the line above has one already, or a text holds `: `."""
    what = error.problem or ""
    at = error.problem_mark.line if error.problem_mark else 0
    above = _above(lines, at)
    quote = "quote texts that contain `: `, and check the indentation"
    if above is None or _indent(lines[at]) <= _indent(lines[above]) or lines[above].rstrip().endswith(":"):
        return what, quote
    wanted = _indent(lines[above])
    return (
        f"{what}: it is indented deeper than line {above + 1}, which has a value already",
        f"indent line {at + 1} like line {above + 1}, by {_spaces(wanted)}; and quote texts that contain `: `",
    )


def _fits_nowhere(error: yaml.MarkedYAMLError, lines: list[str], begun: str) -> tuple[str, str]:
    """Say of a line that begins at a column where no block above begins."""
    at = error.problem_mark.line if error.problem_mark else 0
    line = lines[at] if at < len(lines) else ""
    begins = sorted({_indent(one) for one in lines[:at] if one.strip() and not one.lstrip().startswith("#")})
    if _indent(line) in begins:  # a list and keys side by side
        return (
            f"{line.strip()[:_KEPT]!r} does not continue the block that begins in {begun}",
            "a list has `- ` in each line and a mapping `key: value`: one block is either of them",
        )
    columns = " or ".join(map(str, begins[-3:]))
    return (
        f"{line.strip()[:_KEPT]!r} is indented by {_spaces(_indent(line))}, which fits no key above it",
        f"indent it by {columns} spaces, as the keys that it belongs to are",
    )


def _above(lines: list[str], at: int) -> int | None:
    found = (number for number in range(at - 1, -1, -1) if lines[number].strip())
    return next((number for number in found if not lines[number].lstrip().startswith("#")), None)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spaces(count: int) -> str:
    return f"{count} space{'' if count == 1 else 's'}"
