"""`${args}` and `${hparams.NAME}` in an entrypoint, which `detlab.launch.hparams` fills in unless a shell takes them.

A shell puts an empty text in the place of `${args}`, so that the script would train its defaults in every trial.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from detlab.errors import Problem

LAUNCHER = "detlab.launch.hparams"
LISTS = ("args", "args_no_hyphens", "args_no_boolean_flags", "args_json")
"""Words for all hyperparameters; each must be a word of its own."""
_LIST = rf"\$(?:\{{(?:{'|'.join(LISTS)})\}}|(?:{'|'.join(LISTS)})(?!\w))"
_LISTED = re.compile(_LIST)
_PLACE = re.compile(rf"{_LIST}|\$\{{(?:hparams|env)\.[^}}]*\}}")
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k)?sh")
_COMMAND = re.compile(r"-[a-z]*c")
_OPERATORS = re.compile(r"[;&|<>`\n()#]|\$\(")
_DEEPEST = 5
_SHOWN = 40


def taken_by_a_shell(raw: dict[str, Any]) -> Iterator[Problem]:
    """Refuse an entrypoint whose placeholders nobody would fill in."""
    entrypoint = raw.get("entrypoint")
    if isinstance(entrypoint, str):
        name = _lost_in_line(entrypoint, 0)
        if name is not None and not _own_variable(raw, entrypoint, name):
            yield Problem(
                "entrypoint",
                f"a line is run by a shell, which takes {name[:_SHOWN]} away: the hyperparameters would never arrive",
                f"write a list of words: entrypoint: {_as_list(entrypoint)}",
            )
    elif isinstance(entrypoint, list) and all(isinstance(word, str) for word in entrypoint):
        yield from _in_words(entrypoint)


def _in_words(words: list[str]) -> Iterator[Problem]:
    start = words.index(LAUNCHER) if LAUNCHER in words else len(words)
    early = next((found[0] for word in words[:start] if (found := _PLACE.search(word)) is not None), None)
    shell = _lost_in_words(words, 0)
    if shell is not None:
        message = f"the shell in it takes {shell[:_SHOWN]} away: the hyperparameters would never arrive"
        yield Problem("entrypoint", message, f"run the program without a shell: {_as_list(words)}")
    elif early is not None:
        message = f"nothing fills in {early[:_SHOWN]}: that is done by {LAUNCHER}, for the words after it"
        yield Problem("entrypoint", message, f"write entrypoint: {_as_list(words)}")
    for index, word in enumerate(words[start:], start):
        found = _LISTED.search(word)
        if found is not None and found[0] != word and found[0].startswith("${") and shell is None:
            message = f"{found[0]} is filled in only where it is a word of its own, not within another"
            yield Problem(f"entrypoint[{index}]", message, f"make it a word: {json.dumps(found[0])}")


def _lost_in_line(line: str, depth: int) -> str | None:
    """Return the first placeholder that a shell replaces when it runs a line; None if there is none."""
    found = _PLACE.search(_bare(line))
    if found is not None:
        return found[0]
    try:
        words = shlex.split(line)
    except ValueError:  # a shell, too, will refuse it
        return None
    return _lost_in_words(words, depth)


def _lost_in_words(words: list[str], depth: int) -> str | None:
    """Return the first placeholder that is lost in a shell which is one of the words: `sh -c "…"`."""
    if depth >= _DEEPEST:
        return None
    shells = {at for at, word in enumerate(words) if _SHELL.fullmatch(word)}
    for at, (option, line) in enumerate(pairwise(words)):
        if not (_COMMAND.fullmatch(option) and any(shell < at for shell in shells)):
            continue
        # Before the shell runs, the launcher has filled in what it knows within a word.
        filled = LAUNCHER in words[:at]
        lost = _lost_in_line(re.sub(r"\$\{(?:hparams|env)\.[^}]*\}", "x", line) if filled else line, depth + 1)
        if lost is not None:
            return lost
    return None


def _bare(line: str) -> str:
    """Return a line without what a shell leaves alone: within '…', and after a backslash."""
    kept, at, doubled = [], 0, False
    while at < len(line):
        letter = line[at]
        if letter == "\\":
            at += 2
            continue
        if letter == "'" and not doubled:
            end = line.find("'", at + 1)
            at = len(line) if end < 0 else end + 1
            kept.append(" ")
            continue
        doubled ^= letter == '"'
        kept.append(letter)
        at += 1
    return "".join(kept)


def _own_variable(raw: dict[str, Any], line: str, name: str) -> bool:
    """Whether a line that does not run the launcher means a variable of its own, such as `args=…`."""
    plain = name.strip("${}")
    if LAUNCHER in line or plain not in LISTS:
        return False
    environment = raw.get("environment")
    given = environment.get("environment_variables") if isinstance(environment, dict) else None
    return bool(re.search(rf"(?<!\w){plain}=", line)) or f"{plain}" in json.dumps(given, default=str)


def _as_list(entrypoint: str | list[str]) -> str:
    """Return the entrypoint as it should be written, or its form where a shell does more than split it."""
    form = f'["python3", "-m", "{LAUNCHER}", "--", "python3", "train.py", "${{args}}"]'
    if isinstance(entrypoint, str):
        if _OPERATORS.search(entrypoint):
            return form
        try:
            words = shlex.split(entrypoint)
        except ValueError:
            return form
    else:
        words = entrypoint
    if len(words) > _SHOWN or any(_SHELL.fullmatch(word) for word in words):
        return form
    if LAUNCHER not in words:
        words = ["python3", "-m", LAUNCHER, "--", *words]
    bare = [re.sub(rf"^\$({'|'.join(LISTS)})$", r"${\1}", word) for word in words]
    return json.dumps(bare, ensure_ascii=False)
