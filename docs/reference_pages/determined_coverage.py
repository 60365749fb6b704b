"""The table in "Come from Determined": each leaf command of what teams manage, and where it is here."""

from __future__ import annotations

from reference_pages.determined import COMMANDS, OPTIONS, exists, options_of
from reference_pages.markdown import table
from reference_pages.plugins import ROOT

START = "<!-- Made by `python docs/generate.py` from the commands; do not edit up to the end mark. -->"
END = "<!-- end of what is made -->"
PAGE = "docs/how-to/come-from-determined.md"
GROUPS = (
    "experiment", "experiment label", "experiment set", "trial", "trial set", "checkpoint", "workspace",
    "workspace bindings", "workspace resource-quota", "project", "rbac", "user-group",
)  # fmt: skip
"""Of experiments, trials, checkpoints, workspaces, projects, roles and groups of users."""
SAME, OTHER, ABSENT = "same", "other name", "not here"


def coverage() -> list[tuple[str, str, str]]:
    """Return (command of Determined, same | other name | not here, what to use or what differs) for each leaf."""
    return [_leaf(f"{group} {leaf}") for group in GROUPS for leaf in COMMANDS[group].split()]


def _leaf(words: str) -> tuple[str, str, str]:
    from detlab.cli.determined_options import instead_of_command

    if exists(words):
        lacking = [f"`--{name}`" for name in OPTIONS[words].split() if f"--{name}" not in options_of(words)]
        return words, SAME, f"without {', '.join(lacking)}" if lacking else ""
    found = instead_of_command(words.split())
    assert found is not None, f"{words} is neither here nor refused by name"
    return words, OTHER if other_name(found[1]) else ABSENT, found[1]


def other_name(hint: str) -> str | None:
    """Return the command that a hint begins with, which does the same; None if it gives a reason.

    Raises:
        ValueError: The hint begins with a command that is not here.
    """
    words = hint.replace(",", " ,").replace(":", " :").split()
    if words[:1] != ["det"]:
        return None
    longest = next((" ".join(words[1:end]) for end in (4, 3, 2) if exists(" ".join(words[1:end]))), None)
    if longest is None:
        raise ValueError(f"there is no such command: {hint}")
    return longest


def coverage_table() -> str:
    """Return the table between the two marks of the page."""
    rows = [(f"`det {words}`", kind, text) for words, kind, text in coverage()]
    counts = {kind: sum(1 for _, one, _ in rows if one == kind) for kind in (SAME, OTHER, ABSENT)}
    told = (
        f"Of {len(rows)} commands {counts[SAME]} are the same, {counts[OTHER]} have another name, "
        f"{counts[ABSENT]} are not here."
    )
    return "\n".join([START, "", told, "", table(("Determined", "here", ""), rows), "", END])


def come_from_determined() -> str:
    """Return the page with this part renewed."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE} has lost one of its marks: {START} and {END}")
    return before + coverage_table() + after
