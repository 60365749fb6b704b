"""`det governance`: what a policy lets each source train, before anything runs, and what each has trained."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import moment, say, say_json, table
from detlab.client.operations import governance as operations
from detlab.errors import DetlabError
from detlab.schemas.expconf import errors_of, load_yaml
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.governance import Plan
    from detlab.schemas.wire.governance import EvidenceView

COMMANDS = {"governance": "What each source of samples may train, and what a checkpoint was learnt from."}


@click.group()
def governance() -> None:
    """Show what each source of samples may train, and what a checkpoint was learnt from."""


@governance.command(short_help="Compile a policy against a model, and show the matrix.")
@click.argument("config", metavar="CONFIG")
@click.option("--model", metavar="MODULE:FACTORY", help="Function or class that makes the model, called here.")
@click.option("--parameters", metavar="FILE", help="Names and shapes of parameters instead: JSON or YAML.")
@click.option("--svg", "picture", metavar="FILE", help="Also write the matrix as a picture.")
@click.option("--json", "as_json", is_flag=True, help="Print the matrix as JSON.")
def plan(config: str, model: str | None, parameters: str | None, picture: str | None, as_json: bool) -> None:
    """Compile the block `governance` of CONFIG against a model, and show what each source may train.

    The model is made in this process, by your own code in the working directory; nothing is trained. With --parameters
    no code runs: the file maps names to shapes. All that is wrong is named, with a code and what to do about it.

    \b
    Examples:
      det governance plan config.yaml --model model_def:build_model
      det governance plan config.yaml --parameters shapes.json --json
      det governance plan config.yaml --model model_def:Net --svg plan.svg
    """
    from detlab.governance import Policy, compile_policy, parameters_from, parameters_of

    if (model is None) == (parameters is None):
        raise click.UsageError("give either --model MODULE:FACTORY or --parameters FILE")
    block = policy_block(read_yaml(config), config)
    policy = Policy.of(block)
    if parameters is not None:
        found = compile_policy(policy, parameters_from(read_yaml(parameters)))
    else:
        made = make_model(str(model))
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
        hint = "docs/how-to/govern-what-sources-train.md begins with five lines"
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


def make_model(target: str) -> Any:
    """Return the model that `MODULE:FACTORY` makes, imported from the working directory.

    Raises:
        DetlabError: It cannot be imported or called, or makes no model.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        raise click.UsageError(f"--model must be MODULE:FACTORY, such as model_def:build_model, not {target!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:  # whatever the user's code raises
        hint = "the factory takes no arguments: python3 -c 'import MODULE; MODULE.FACTORY()' shows the whole error"
        raise DetlabError(
            f"{visible(target)} made no model: {type(error).__name__}: {visible(str(error))}", hint=hint
        ) from error
    finally:
        sys.path.pop(0)
    if not callable(getattr(made, "named_parameters", None)):
        raise DetlabError(f"{visible(target)} made a {type(made).__name__}, which has no named_parameters()")
    return made


@governance.command(short_help="Check the signed evidence of a checkpoint.")
@click.argument("uuid", metavar="UUID")
@click.option(
    "--key",
    metavar="HEX",
    help="Check the signature here, too, with this public key that you trust; repeatable.",
    multiple=True,
)
@json_option
@pass_invocation
def verify(invocation: Invocation, uuid: str, key: tuple[str, ...]) -> None:
    """Check the evidence of a checkpoint: its signature, its manifest and its ledger. The status is 1 if one is wrong.

    The cluster checks with its own keys. With --key the signature is also checked here, with a key that you have from
    elsewhere; that needs the package cryptography.

    \b
    Examples:
      det governance verify 3f2a…
      det governance verify 3f2a… --key 9c81…
    """
    found = invocation.client.session.run(operations.evidence(uuid))
    problems = [f"{one.code}: {one.message}" for one in found.problems]
    if key:
        problems += signed_by(found, key)
    if invocation.as_json:
        say_json({**found.model_dump(mode="json"), "found": problems})
    elif problems:
        for one in problems:
            say(visible(one))
    else:
        said = found.predicate
        say(f"checkpoint {uuid}: the evidence is in order")
        facts = {
            "signed with": said.get("key_id"),
            "trial": said.get("trial"),
            "step": said.get("step"),
            "policy": said.get("policy_hash"),
            "matrix": said.get("s_hash"),
            "learnt from": ", ".join(sorted(name or "(no declared source)" for name in said.get("taint") or {})),
        }
        for name, value in facts.items():
            say(f"  {name}: {visible(str(value))}")
        say("It says what was recorded, not that the weights came from it: docs/explanation/governance.md")
    if problems:
        sys.exit(1)


def signed_by(found: EvidenceView, keys: Sequence[str]) -> list[str]:
    """Return what is wrong with a signature by the keys that somebody trusts, given in hex."""
    from detlab.governance.evidence import PublicKey, ed25519_check, key_id, opened

    try:
        raw = [bytes.fromhex(one) for one in keys]
        trusted = {key_id(one): PublicKey(key_id(one), one) for one in raw}
        said = opened(found.envelope, trusted, ed25519_check)
    except ImportError as error:
        raise DetlabError(f"{error.name} is not installed here", hint="pip install cryptography") from error
    except ValueError as error:
        return [f"SIG: {error}"]
    digest = {"sha256": found.manifest_digest.removeprefix("sha256:")}
    if said.get("subject") != [{"name": found.checkpoint, "digest": digest}]:
        return ["SIG: what is signed is of another checkpoint"]
    return []


@governance.command(short_help="Say which source has trained which layers, and when.")
@click.argument("uuid", metavar="UUID")
@click.option("--source", metavar="NAME", help="Only this source.")
@click.option("--layer", metavar="NAME", help="Only this module or parameter.")
@json_option
@pass_invocation
def who(invocation: Invocation, uuid: str, source: str | None, layer: str | None) -> None:
    """Say which source has trained which layers of a checkpoint, and in which batches.

    \b
    Examples:
      det governance who 3f2a… --source web
      det governance who 3f2a… --layer blocks.0
    """
    from detlab.governance.ledger import who as touched

    found = invocation.client.session.run(operations.learnt_from(uuid))
    touches = touched(found.segments, found.matrices, source=source, layer=layer)
    if invocation.as_json:
        say_json([dataclasses.asdict(one) for one in touches])
        return
    rows = [
        [one.source or "(none)", f"{one.first}-{one.last}", str(one.samples), ", ".join(one.layers)] for one in touches
    ]
    table(["source", "batches", "samples", "layers"], rows)
    if found.unknown is not None:
        say(f"It began with a checkpoint of trial {found.unknown}, whose ledger you cannot read.")


@governance.command(short_help="List the keys that sign evidence, or change them.")
@click.option("--rotate", is_flag=True, help="Sign with a new key from now on (administrators).")
@click.option("--revoke", metavar="ID", help="Declare that nothing which this key has signed holds (administrators).")
@click.option("--reason", default="", help="Why, for the audit log.")
@json_option
@pass_invocation
def keys(invocation: Invocation, rotate: bool, revoke: str | None, reason: str) -> None:
    """List the public keys of the cluster, with which anyone can check the evidence of a checkpoint.

    \b
    Examples:
      det governance keys
      det governance keys --rotate
    """
    if rotate and revoke:
        raise click.UsageError("give either --rotate or --revoke ID")
    run = invocation.client.session.run
    found = run(operations.rotate() if rotate else operations.revoke(revoke, reason) if revoke else operations.keys())
    if invocation.as_json:
        say_json(found.model_dump(mode="json"))
        return
    rows = [[one.state, one.id, one.public_key, moment(one.made_at)] for one in found.items]
    table(["state", "id", "public key", "made"], rows)
