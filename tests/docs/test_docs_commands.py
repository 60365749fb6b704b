"""What the pages tell people to type exists: commands and their options, magics, settings."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from docs_snippets import ROOT, blocks, pages
from traitlets import HasTraits

from detlab.cli.root import det
from detlab_hub.app import DetHub
from detlab_hub.embedded.settings import EmbeddedCluster
from detlab_hub.spawners import DetSpawner
from detlab_hub.spawners.docker import DetDockerSpawner
from detlab_hub.spawners.kube import DetKubeSpawner
from detlab_magics.magics import magic_table

# `det TRIAL`-like words of other programs, and Determined's own commands in the table of what they became.
_TABLES_OF_OLD_NAMES = {"docs/how-to/come-from-determined.md"}
_CONFIGURABLE: dict[str, type[HasTraits]] = {
    cls.__name__: cls for cls in (DetHub, EmbeddedCluster, DetSpawner, DetDockerSpawner, DetKubeSpawner)
}


def typed(page: Path) -> list[tuple[str, str]]:
    """(where, command line) of every `det …` in the page's shell blocks and indented code, less columns of text."""
    if page.name == "cli.md":
        return []  # usage lines, made from the commands themselves
    found = []
    for block in blocks(page, "sh", "console"):
        found += [(str(block), line.strip()) for line in block.text.splitlines()]
    text = page.read_text(encoding="utf-8")
    found += [
        (str(page.relative_to(ROOT)), line.strip()) for line in re.findall(r"^ {4,}(det .+)$", text, re.MULTILINE)
    ]
    return [(where, re.split(r" {2,}", line)[0]) for where, line in found if re.match(r"(?:\S+=\S+ )*det ", line)]


def words(line: str) -> list[str]:
    """The words of one command: less variables before it, comments, and what follows a pipe or &&."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    split = list(lexer)
    while split and re.match(r"\w+=", split[0]):
        split.pop(0)
    end = next((at for at, word in enumerate(split) if set(word) <= set("|&;<>")), len(split))
    return split[1:end]


def judge(arguments: list[str]) -> str | None:
    """What is wrong with a command line, if anything is."""
    command: click.Command = det
    context = click.Context(det, info_name="det")
    rest = list(arguments)
    while True:
        parser = command.make_parser(context)
        parser.allow_interspersed_args = not isinstance(command, click.Group)
        try:
            values, extra, _ = parser.parse_args(list(rest))
        except click.UsageError as problem:
            return problem.format_message()
        if not isinstance(command, click.Group):
            break
        if not extra:
            return None if values.get("help") or values.get("version") or command is not det else "no command"
        below = command.get_command(context, extra[0])
        if below is None:
            return f"no command {extra[0]!r} in {context.command_path}"
        command, rest = below, extra[1:]
        context = click.Context(below, info_name=extra[0], parent=context)
    if values.get("help"):
        return None
    if extra:
        return f"too many arguments: {extra}"
    missing = [
        parameter.name
        for parameter in command.params
        if isinstance(parameter, click.Argument)
        and parameter.required
        # click's own mark of an absent value is neither text nor a list of them
        and not (isinstance(given := values.get(parameter.name or ""), str | tuple | list) and given)
    ]
    return f"missing {missing}" if missing else None


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist_with_these_options(page: Path) -> None:
    judged = [(where, line, judge(words(line))) for where, line in typed(page)]
    assert [found for found in judged if found[2]] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_named_in_the_text_exist(page: Path) -> None:
    if str(page.relative_to(ROOT)) in _TABLES_OF_OLD_NAMES:
        return
    text = page.read_text(encoding="utf-8")
    wrong = []
    for line in re.findall(r"`(det [a-z][^`\n]*)`", text):
        cleaned = re.sub(r"[…\[\]]|\|.*", " ", line)
        problem = judge(words(cleaned))
        if problem and not problem.startswith("missing") and "requires an argument" not in problem:
            wrong.append(f"{line}: {problem}")
    assert not wrong, "\n".join(wrong)


def test_the_judge_judges() -> None:
    assert judge(["up", "--slots", "2"]) is None
    assert judge(["up", "--no-such"])
    assert judge(["experiment", "crate", "x"])
    assert judge(["experiment", "create"])
    assert judge(["up", "--dir"])
    assert judge(words("DET_DEBUG=1 det e list --json | head # comment")) is None


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_magics_exist(page: Path) -> None:
    known = {name.lstrip("%") for name, _ in magic_table()}
    named = set(re.findall(r"(?<!\w)%%?(det\w*)", page.read_text(encoding="utf-8")))
    assert named <= known


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_exist(page: Path) -> None:
    for name, trait in re.findall(r"\bc\.([A-Z]\w+)\.(\w+)", page.read_text(encoding="utf-8")):
        if name in _CONFIGURABLE:
            assert trait in _CONFIGURABLE[name].class_trait_names(config=True), f"c.{name}.{trait}"
