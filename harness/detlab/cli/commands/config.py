"""`det config`: check and resolve experiment configs, without a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf import check_yaml, errors_of, resolve

BAD_CONFIG = 2
"""Exit status of a config with mistakes, or one that cannot be read."""


@click.group()
def config() -> None:
    """Check and resolve experiment configs; needs no cluster."""


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
def check(file: str, as_json: bool, complete: bool) -> None:
    """Check FILE (`-` for standard input) and report all errors.

    Errors are printed as `path: message`, warnings on standard error. The exit status is 0, or 2 if there are errors.
    Without --complete, blocks may be absent, because a template or the cluster can supply them.

    \b
    Examples:
      det config check search.yaml
      det config check search.yaml --complete
      det config check search.yaml --json | jq '.[].path'
    """
    _, problems = _load(file, complete=complete)
    if as_json:
        click.echo(json.dumps([problem.to_dict() for problem in problems], indent=2))
    else:
        _report(problems, _shown(file))
    if errors_of(problems):
        sys.exit(BAD_CONFIG)
    if not as_json:
        click.echo(f"{_shown(file)}: valid", err=True)


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


@config.command(short_help="Print the JSON Schema, for editors.")
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of experiment configs, for editors.

    \b
    Example:
      det config schema > experiment-config.schema.json
    """
    from detlab.schemas.publish import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
