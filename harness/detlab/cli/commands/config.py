"""`det config`: check, resolve and import experiment configs, without a cluster."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from detlab.errors import ConfigError, Problem, StorageError
from detlab.schemas.expconf import check_yaml, errors_of, resolve
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.schemas.imports import Imported, Outcome

COMMANDS = {"config": "Check and resolve experiment configs; needs no cluster."}

BAD_CONFIG = 2
"""Exit status of a config with mistakes, or one that cannot be read."""


@click.group()
def config() -> None:
    """Check, resolve and import experiment configs; needs no cluster."""


def _read(name: str) -> tuple[str, list[Problem]]:
    """Return the text of a file, or of standard input for `-`, and what kept it from being read."""
    if name == "-":
        return sys.stdin.read(), []
    path = Path(name)
    try:
        return path.read_text(encoding="utf-8"), []
    except FileNotFoundError:
        return "", [Problem("", f"there is no file {name}", "check the path; `-` reads standard input")]
    except IsADirectoryError:
        return "", [Problem("", f"{name} is a directory", "name the YAML file in it")]
    except UnicodeDecodeError:
        return "", [Problem("", f"{name} is not UTF-8 text")]
    except OSError as error:
        return "", [Problem("", f"{name} cannot be read: {error.strerror}")]


def _load(name: str, *, complete: bool = False) -> tuple[Any, list[Problem]]:
    text, unreadable = _read(name)
    if unreadable:
        return None, unreadable
    return check_yaml(text, _shown(name), complete=complete)


def _shown(name: str) -> str:
    return "standard input" if name == "-" else name


def _line(problem: Problem, source: str) -> str:
    where = problem.path or source
    mark = "warning: " if problem.level == "warning" else ""
    tail = f" ({problem.hint})" if problem.hint else ""
    return f"{mark}{where}: {problem.message}{tail}"


def _report(problems: list[Problem], source: str) -> None:
    for problem in problems:
        click.echo(_line(problem, source), err=problem.level == "warning")


@config.command(short_help="Report all errors of a config.")
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print a list of {path, message, hint, level}.")
@click.option("--complete", is_flag=True, help="Also check what a submission requires.")
@click.option(
    "--storage", "ask", is_flag=True, help="Also ask its checkpoint_storage, from this machine, by a small write."
)
def check(file: str, as_json: bool, complete: bool, ask: bool) -> None:
    """Check FILE (`-` for standard input) and report all errors.

    Errors are printed as `path: message`, warnings on standard error. The exit status is 0, or 2 if there are errors.
    Without --complete, blocks may be absent, because a template or the cluster can supply them. With --storage, an
    object store is asked with the keys of FILE, or this machine's: an agent's own may differ.

    \b
    Examples:
      det config check search.yaml
      det config check search.yaml --complete
      det config check search.yaml --storage
      det config check search.yaml --json | jq '.[].path'
    """
    raw, problems = _load(file, complete=complete)
    if ask and not errors_of(problems):
        problems = [*problems, *_ask_storage(raw.get("checkpoint_storage"))]
    if as_json:
        click.echo(json.dumps([problem.to_dict() for problem in problems], indent=2))
    else:
        _report(problems, _shown(file))
    if errors_of(problems):
        sys.exit(BAD_CONFIG)
    if not as_json:
        click.echo(f"{_shown(file)}: valid", err=True)


def _ask_storage(block: Any) -> list[Problem]:
    """Return why checkpoints cannot be stored as a valid block says, or that this cannot be known here."""
    from detlab.storage import from_config

    where = "checkpoint_storage"
    if not isinstance(block, dict) or block.get("type") is None:
        return [Problem(where, "names no store: the cluster's is used, and was not asked", None, "warning")]
    if block["type"] in ("shared_fs", "directory"):
        return [Problem(where, "is a folder on the agents: the task looks before its first step", None, "warning")]
    try:
        from_config(block).check()
    except StorageError as error:
        return [Problem(where, error.message, error.hint)]
    return []


def _refuse(problems: list[Problem], source: str) -> NoReturn:
    for problem in errors_of(problems):
        click.echo(_line(problem, source), err=True)
    sys.exit(BAD_CONFIG)


@config.command(name="resolve", short_help="Print the full config with all defaults.")
@click.argument("file", metavar="FILE")
@click.option("--template", metavar="FILE", help="A partial config to merge with FILE; FILE takes precedence.")
def resolve_command(file: str, template: str | None) -> None:
    """Print the full config of FILE (`-` for standard input) as JSON.

    All defaults are filled in; values that the master chooses stay null. The exit status is 0, or 2 if FILE or the
    template has errors (printed to standard error).

    \b
    Examples:
      det config resolve search.yaml
      det config resolve search.yaml --template gpu.yaml | jq .resources
    """
    raw, problems = _load(file)
    if errors_of(problems):
        _refuse(problems, _shown(file))
    below: Any = None
    if template is not None:
        below, problems = _load(template)
        if errors_of(problems):
            click.echo(f"in the template {template}:", err=True)
            _refuse(problems, template)
    try:
        full = resolve(raw, below)
    except ConfigError as error:
        _refuse(error.problems, f"{_shown(file)} with {template}")
    click.echo(json.dumps(full, indent=2))


_HEADINGS: tuple[tuple[str, Outcome], ...] = (("Changed", "changed"), ("Left out", "left_out"), ("Added", "added"))


def _yaml(imported: Imported, source: str) -> str:
    """Return the config as a file, headed by comments on what is not as it was."""
    from detlab.schemas.expconf.raw.dumping import dump_yaml

    lines: list[str] = [f"Made by `det config import` from {source}, a {imported.title}."]
    for title, outcome in _HEADINGS:
        notes = imported.with_outcome(outcome)
        lines += ["", f"{title}:", *(f"  {note}" for note in notes)] if notes else []
    if needless := imported.with_outcome("not_needed"):
        named = ", ".join(note.path for note in needless)
        lines += ["", *textwrap.wrap(f"Not needed here: {named}", 110, subsequent_indent="  ", break_long_words=False)]
    if imported.to_do:
        lines += ["", "Left to do:", *(f"  {text}" for text in imported.to_do)]
    head = "".join("# {}".format(visible(line, keep="")).rstrip() + "\n" for line in lines)
    return head + "\n" + dump_yaml(imported.config)


def _summary(imported: Imported) -> str:
    counts = [f"{len(imported.with_outcome(outcome))} {title.lower()}" for title, outcome in _HEADINGS]
    kept, needless = (len(imported.with_outcome(outcome)) for outcome in ("kept", "not_needed"))
    return (
        f"{imported.title}: {kept} kept, {needless} not needed, {', '.join(counts)}, {len(imported.to_do)} left to do"
    )


@config.command(name="import", short_help="Convert a Katib Experiment or a W&B sweep.")
@click.argument("file", metavar="FILE")
@click.option("--output", "-o", metavar="PATH", help="Write the config there instead of printing it.")
@click.option("--json", "as_json", is_flag=True, help="Print {kind, config, notes, to_do, problems}.")
def import_command(file: str, output: str | None, as_json: bool) -> None:
    """Convert FILE (`-` for standard input), a Katib Experiment or a W&B sweep, to an experiment config.

    The config is printed as YAML. Comments at its head name every key that was changed or left out, with the reason,
    what was added, and what is left to do by hand. The exit status is 0, or 2 if FILE cannot be converted; then all
    mistakes are named.

    \b
    Examples:
      det config import katib-experiment.yaml -o search.yaml
      det config import sweep.yaml | det config check - --complete
      det config import sweep.yaml --json | jq '.notes[] | select(.outcome == "left_out")'
    """
    from detlab.schemas.imports import import_config

    raw, problems = _parsed(file)
    if errors_of(problems):
        _refuse(problems, _shown(file))
    try:
        imported = import_config(raw)
    except ConfigError as error:
        _refuse(error.problems, _shown(file))
    text = json.dumps(imported.to_dict(), indent=2) + "\n" if as_json else _yaml(imported, _shown(file))
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(output, text)
    if not as_json:
        click.echo(_summary(imported), err=True)


def _parsed(name: str) -> tuple[Any, list[Problem]]:
    text, unreadable = _read(name)
    from detlab.schemas.imports import load_import

    return (None, unreadable) if unreadable else load_import(text, _shown(name))


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        _refuse([Problem("", f"{name} cannot be written: {error.strerror}")], name)


@config.command(short_help="Print the JSON Schema, for editors.")
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of experiment configs, for editors.

    \b
    Example:
      det config schema > experiment-config.schema.json
    """
    from detlab.schemas.publish import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
