"""The commands and magics that front ends and messages tell people to type exist, with these options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import click
from docs_snippets import ROOT
from test_docs_commands import judge

from detlab.cli.root import det
from detlab_magics.magics import magic_functions

_FRONT = ROOT / "labextension" / "src"
_SCREENS = sorted(
    path
    for path in _FRONT.rglob("*.ts*")
    if ".test." not in path.name and "harness" not in path.relative_to(_FRONT).parts
)
_SOURCES = sorted(
    path
    for root in ("harness/detlab", "hub_ext", "server_ext/detlab_server", "kernel_magics/detlab_magics")
    for path in (ROOT / root).rglob("*.py")
)
_CLICK_MAGICS = {"det_model": "model", "det_report": "report", "det_search": "search"}
"""Magics that take the words of a command, or of a group of commands."""
_LINE = re.compile(r"(?<![\w/.%-])(%%?det_\w+|det)((?: (?!det )(?:[\w@./=:$*…+-]+|'[^'\n]*'|\"[^\"\n]*\"))*)")
_FILLED = re.compile(r"\$?\{(?:[^{}]|\{[^{}]*\})*\}")


def lines_of_screen(text: str) -> Iterator[str]:
    """What a TypeScript source shows in code marks, or keeps as a string that begins with a command."""
    for found in re.findall(r"<code>(.*?)</code>", text, re.DOTALL):
        yield _FILLED.sub("1", " ".join(found.split()))
    for quote in "'`":
        for found in re.findall(rf"{quote}((?:%%?det_\w+|det [a-z])[^{quote}\n]*){quote}", text):
            whole = _FILLED.sub("1", found.replace("\\n", "\n"))
            yield whole.partition("${")[0]  # what a nested text would add is not judged


def lines_of_source(text: str) -> Iterator[str]:
    """The texts of a Python source: strings, and formatted ones with the word 1 for each value."""
    tree = ast.parse(text)
    within = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else " 1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            yield node.value


def wrong(line: str) -> str | None:
    """What is wrong with a whole line that people paste: the command, its options, the number of its arguments."""
    line = re.sub(r"[…\[\]]|&amp;&amp;.*|&&.*|\|.*", " ", line)
    words = shlex.split(line)
    if not words[0].startswith("%"):
        problem = judge(words[1:])
        # a string may be the first half of a line, which code adds the rest to
        return problem if problem and not re.match("missing|.*requires an argument", problem) else None
    name, arguments = words[0].lstrip("%"), words[1:]
    magic = magic_functions().get(name)
    if magic is None:
        return f"no magic {name!r}"
    if name in _CLICK_MAGICS:
        return judge([_CLICK_MAGICS[name], *arguments])
    if getattr(magic, "parser", None) is not None:
        try:
            magic.parser.parse_args(arguments)
        except Exception as problem:
            return str(problem)
    return None


def mistaken(text: str) -> list[str]:
    """Commands without such a subcommand, and options that they do not have, anywhere in a text for people."""
    found = []
    for name, rest in _LINE.findall(text):
        words = [word.rstrip(".:") for word in rest.partition(" -- ")[0].split()]
        problem = _command(words) if name == "det" else _magic(name.lstrip("%"), words)
        if problem:
            found.append(f"{name}{rest}: {problem}")
    return found


def _command(words: list[str], command: click.Command = det) -> str | None:
    context = click.Context(command, info_name="det")
    known = {option for one in command.get_params(context) for option in (*one.opts, *one.secondary_opts)}
    while words and isinstance(command, click.Group):
        below = command.get_command(context, words[0])
        if below is None:
            break
        command, words = below, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
        known |= {option for one in command.get_params(context) for option in (*one.opts, *one.secondary_opts)}
    if isinstance(command, click.Group) and len(words) > 1 and words[1].isdigit():  # a word that takes a number
        return f"{context.command_path} has no {words[0]}"
    given = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z0-9-]*(=.*)?", word)]
    strange = [option for option in given if option not in known]
    if strange:
        return f"{context.command_path} has no {', '.join(strange)}"
    return None


def _magic(name: str, words: list[str]) -> str | None:
    magic = magic_functions().get(name)
    if magic is None:
        return f"no magic {name!r}"
    if name in _CLICK_MAGICS:
        group = det.get_command(click.Context(det), _CLICK_MAGICS[name])
        assert group is not None
        return _command(words, group)
    parser = getattr(magic, "parser", None)
    given = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z0-9-]*(=.*)?", word)]
    strange = [option for option in given if parser is not None and option not in parser._option_string_actions]
    return f"has no {', '.join(strange)}" if strange else None


def test_what_screens_tell_to_type_exists() -> None:
    found = []
    for source in _SCREENS:
        for text in lines_of_screen(source.read_text(encoding="utf-8")):
            for line in text.split("\n"):
                if re.match(r"%%?det_\w+|det [a-z]", line) and (problem := wrong(line)):
                    found.append(f"{source.relative_to(ROOT)}: {line}: {problem}")
    assert found == []


def test_options_that_messages_name_exist() -> None:
    found = []
    for source in _SOURCES:
        written = source.read_text(encoding="utf-8")
        if re.search(r"\bdet[ _].*--[a-z]|%det_", written):
            texts = lines_of_source(written)
            found += [f"{source.relative_to(ROOT)}: {one}" for text in texts if "det" in text for one in mistaken(text)]
    assert found == []


def test_mistakes_are_found() -> None:
    assert wrong("%det_model register 12 --model digits")
    assert wrong("%det_model register digits --experiment 12") is None
    assert wrong("%det_compare 12 15") is None
    assert wrong("%det_compare --no-such 12")
    assert wrong("det experiment delete 1") is None
    assert wrong("det experiment delete 1 --no-such")
    assert mistaken("see det model register digits --model 12, or %det_model register 12 --model digits")
    assert mistaken("see det experiment look 1")
    assert list(lines_of_screen("<code>det e delete {e.id}</code>")) == ["det e delete 1"]
    assert list(lines_of_source("hint = f'det e delete {x}'")) == ["det e delete  1"]
