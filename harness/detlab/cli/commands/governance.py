"""`det governance`: what a policy lets each source train, before anything runs, and what each has trained."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detlab.cli.commands.registry.ablate import ablate
from detlab.cli.commands.registry.evidence import keys, verify, who
from detlab.cli.commands.registry.learning import show
from detlab.cli.commands.registry.replay import replay
from detlab.cli.commands.registry.withdrawing import sources, withdraw
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import table
from detlab.errors import DetlabError
from detlab.schemas.expconf import errors_of, load_yaml
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.governance import Plan

COMMANDS = {"governance": "What each source of samples may train, and what a checkpoint was learnt from."}


@click.group()
def governance() -> None:
    """Show what each source of samples may train, and what a checkpoint was learnt from."""


@governance.command(short_help="List what each agent enforces of policies.")
@json_option
@pass_invocation
def agents(invocation: Invocation) -> None:
    """List what each agent enforces of policies, and whether its attestation counts.

    A trial under a strict policy starts only where its capabilities are enforced: levels, engine and signed evidence.

    \b
    Example:
      det governance agents
    """
    found = invocation.client.list_agents()
    if invocation.answered(found, "No agents. Start one: det agent run --master URL"):
        return
    rows = [(item.id, item.pool, ", ".join(item.enforces) or "nothing", item.attestation) for item in found]
    table(("Agent", "Pool", "Enforces", "Attestation"), rows)


@governance.command(short_help="Compile a policy against a model, and show the matrix.")
@click.argument("config", metavar="CONFIG")
@click.option("--model", metavar="MODULE:FACTORY", help="Function or class that makes the model, called here.")
@click.option("--parameters", metavar="FILE", help="Names and shapes of parameters instead: JSON or YAML.")
@click.option("--svg", "picture", metavar="FILE", help="Also write the matrix as a picture.")
@click.option("--json", "as_json", is_flag=True, help="Print the matrix as JSON.")
def plan(config: str, model: str | None, parameters: str | None, picture: str | None, as_json: bool) -> None:
    """Compile the block `governance` of CONFIG against a model, and show what each source may train.

    The model is made in this process, by your own code in the working directory; nothing is trained. Arguments that the
    factory must have are taken from the config's hyperparameters by name: of several values the first, of a range the
    least. With --parameters no code runs: the file maps names to shapes. All that is wrong is named, with a code and
    what to do about it.

    \b
    Examples:
      det governance plan config.yaml --model model_def:build_model
      det governance plan config.yaml --parameters shapes.json --json
      det governance plan config.yaml --model model_def:Net --svg plan.svg
    """
    from detlab.governance import Policy, compile_policy, parameters_from, parameters_of

    if (model is None) == (parameters is None):
        raise click.UsageError("give either --model MODULE:FACTORY or --parameters FILE")
    raw = read_yaml(config)
    block = policy_block(raw, config)
    policy = Policy.of(block)
    if parameters is not None:
        found = compile_policy(policy, parameters_from(read_yaml(parameters)))
    else:
        made = make_model(str(model), plain_values(raw))
        found = compile_policy(policy, parameters_of(made), kinds=[type(one).__name__ for one in made.modules()])
    _show(found, picture, as_json=as_json)


def _show(found: Plan, picture: str | None, *, as_json: bool) -> None:
    from detlab.governance.picture import svg, text

    if picture is not None:
        try:
            Path(picture).write_text(svg(found), encoding="utf-8")
        except OSError as error:
            raise DetlabError(f"{picture} cannot be written: {error.strerror}") from error
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else text(found))


def policy_block(raw: Any, name: str) -> dict[str, Any]:
    """Return the block `governance` of a config that was read.

    Raises:
        DetlabError: There is none.
    """
    block = raw.get("governance") if isinstance(raw, dict) else None
    if not isinstance(block, dict):
        hint = 'it needs `sources` and `rules`; the page "Govern what sources train" of the docs begins with five lines'
        raise DetlabError(f"{visible(name)} has no block `governance`: it restricts nothing", hint=hint)
    return block


def read_yaml(name: str) -> Any:
    """Return the value of a YAML or JSON file; `-` is standard input.

    Raises:
        DetlabError: It cannot be read.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DetlabError(f"{visible(name)} cannot be read: {reason}", hint="check the path") from error
    raw, problems = load_yaml(text, name)
    if errors_of(problems):
        raise DetlabError("\n".join(str(problem) for problem in errors_of(problems)))
    return raw


def make_model(target: str, hyperparameters: Mapping[str, Any]) -> Any:
    """Return the model that `MODULE:FACTORY` makes, imported from the working directory.

    Args:
        target: A function or class. Arguments that it must have are filled by name from the hyperparameters; one that
            is called `hparams` gets all of them.
        hyperparameters: By name, one value each.

    Raises:
        DetlabError: It cannot be imported or called, or makes no model.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        raise click.UsageError(f"--model must be MODULE:FACTORY, such as model_def:build_model, not {target!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        try:
            loaded = importlib.import_module(module)
        except Exception as error:  # whatever the user's code raises
            raise _no_model(target, error, f"python3 -c 'import {module}' shows the whole error") from error
        factory = getattr(loaded, name, None)
        if not callable(factory):
            known = [one for one, value in vars(loaded).items() if callable(value) and not one.startswith("_")]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(sorted(known)[:20]) or 'none'}"
            raise DetlabError(f"{visible(module)} has no function or class {visible(name)!r}", hint=visible(hint))
        return model_of(factory, target, hyperparameters, f"python3 -c 'import {module}; {module}.{name}({{}})'")
    finally:
        sys.path.pop(0)


def model_of(factory: Callable[..., Any], target: str, hyperparameters: Mapping[str, Any], again: str) -> Any:
    """Return the model that a function or class makes, called with what `make_model` says.

    Args:
        factory: The function or class.
        target: What people call it.
        hyperparameters: By name, one value each.
        again: Shows the whole error if it is run, with `{}` in place of the arguments.

    Raises:
        DetlabError: It cannot be called, or makes no model.
    """
    arguments = _arguments(target, factory, hyperparameters)
    try:
        made = factory(**arguments)
    except Exception as error:  # whatever the user's code raises
        given = ", ".join(f"{one}={value!r}" for one, value in arguments.items())
        raise _no_model(target, error, f"{again.replace('{}', given)} shows the whole error") from error
    if not callable(getattr(made, "named_parameters", None)):
        raise DetlabError(f"{visible(target)} made a {type(made).__name__}, which has no named_parameters()")
    return made


def _no_model(target: str, error: Exception, hint: str) -> DetlabError:
    return DetlabError(
        f"{visible(target)} made no model: {type(error).__name__}: {visible(str(error))}", hint=visible(hint)
    )


def _arguments(target: str, factory: Callable[..., Any], hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the factory must be called with."""
    try:
        taken = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # written in C
        return {}
    needed = [
        one for one in taken if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    values = {**hyperparameters, "hparams": dict(hyperparameters)}
    missing = [one.name for one in needed if one.name not in values or one.kind is one.POSITIONAL_ONLY]
    if missing:
        raise DetlabError(
            f"{visible(target)} takes {', '.join(missing)}, which the config's hyperparameters do not have",
            hint="name a function without arguments that returns the model, or add them to the hyperparameters",
        )
    return {one.name: values[one.name] for one in needed}


def plain_values(raw: Any) -> dict[str, Any]:
    """Return one value for each hyperparameter of a config that was read: of several the first or the least."""
    found = raw.get("hyperparameters") if isinstance(raw, dict) else None
    return {name: _one_of(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _one_of(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "type" not in value:
        return {name: _one_of(one) for name, one in value.items()}
    if value["type"] == "const":
        return value.get("val")
    if value["type"] == "categorical":
        return next(iter(value.get("vals") or [None]))
    least = value.get("minval")
    return value.get("base", 10) ** least if value["type"] == "log" and isinstance(least, int | float) else least


for one in (ablate, keys, replay, show, sources, verify, who, withdraw):
    governance.add_command(one)
