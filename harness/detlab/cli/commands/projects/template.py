"""`det template …`: named parts of configs on the master, which are laid under what is submitted."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detlab.cli.commands.projects.options import workspace_option
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.failures import problem_line
from detlab.cli.output.printing import clean, facts, moment, note, say, say_yaml, table
from detlab.client.operations.configs import templates
from detlab.client.submission import config_text
from detlab.schemas.wire.configs.templates import TemplateView

COMMANDS = {"template": "Templates: parts of configs that are laid under what is submitted."}
_WHERE = "The workspace that it lies in, whose editors use it; `cluster`: it is for everybody."
_BASE = click.option("--base", default="", metavar="NAME", help="A template that is laid under it.")
_DESCRIPTION = click.option("--description", default="", metavar="TEXT", help="What it is for.")


@click.group(cls=LazyGroup, short={"ls": "list", "rm": "remove", "delete": "remove"})
def template() -> None:
    """Named parts of configs: a config's own values come first, lists are joined.

    One lies in your personal workspace, in one that is shared, or is the cluster's; `WORKSPACE:NAME` names it
    everywhere, NAME alone one of the workspace that you submit to, of your own, or of the cluster.

    \b
    Examples:
      det template set gpu gpu.yaml
      det template set a100 a100.yaml --workspace ada/vision
      det experiment create search.yaml code/ --template gpu
    """


@template.command(name="list")
@workspace_option("Only those of this workspace; `cluster`: of the cluster.")
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, workspace: str | None) -> None:
    """List the templates that you may see.

    \b
    Example:
      det template list
    """
    found = invocation.client.session.run(templates.templates(workspace))
    if invocation.answered(found, "No templates yet. Try: det template set NAME FILE"):
        return
    head = ("Name", "Workspace", "Owner", "Based on", "Default", "Version", "Set by", "Set at", "Description")
    table(head, map(_row, found))


def _row(one: TemplateView) -> tuple[object, ...]:
    default = "yes" if one.default else ""
    when = moment(one.set_at)
    return (one.name, one.workspace, one.owner, one.base, default, one.version, one.set_by, when, one.description)


@template.command()
@click.argument("name", metavar="TEMPLATE")
@click.option("--merged", is_flag=True, help="Merged with the templates that it is based on.")
@json_option
@pass_invocation
def describe(invocation: Invocation, name: str, *, merged: bool) -> None:
    """Show a template; credentials are masked.

    \b
    Examples:
      det template describe gpu
      det template describe ada/vision:a100 --merged
    """
    found = invocation.client.session.run(templates.template(name))
    if invocation.answered(found):
        return
    rows = [
        ("name", found.reference),
        ("owner", found.owner),
        ("based on", found.base),
        ("version", f"{found.version}, set by {found.set_by} {moment(found.set_at)}"),
        ("description", found.description),
    ]
    facts([(key, clean(value)) for key, value in rows if value])
    say("")
    say_yaml((found.merged if merged else found.config) or {})


@template.command(name="set")
@click.argument("name")
@click.argument("file", metavar="FILE")
@workspace_option(_WHERE)
@_BASE
@_DESCRIPTION
@json_option
@pass_invocation
def set_command(
    invocation: Invocation, name: str, file: str, workspace: str | None, base: str, description: str
) -> None:
    """Make a template of a YAML file, or replace the one of its name.

    FILE is a part of a config (`-` for standard input). What was submitted with it before stays as it is. A mask that
    `det template describe` printed stands for the secret that was there.

    \b
    Examples:
      det template set gpu gpu.yaml
      det template set big big.yaml --workspace ada/vision --base cluster:a100
    """
    _put(invocation, name, file, workspace, base, description, create=False)


@template.command()
@click.argument("name")
@click.argument("file", metavar="FILE")
@workspace_option(_WHERE)
@_BASE
@_DESCRIPTION
@json_option
@pass_invocation
def create(invocation: Invocation, name: str, file: str, workspace: str | None, base: str, description: str) -> None:
    """Make a template of a YAML file; one that is there already is left alone.

    \b
    Example:
      det template create gpu gpu.yaml
    """
    _put(invocation, name, file, workspace, base, description, create=True)


def _put(
    invocation: Invocation, name: str, file: str, workspace: str | None, base: str, description: str, *, create: bool
) -> None:
    text = f"{sys.stdin.read() if file == '-' else config_text(Path(file))}\n"
    more = {"workspace": workspace or "", "base": base, "description": description, "create": create}
    made = invocation.client.session.run(templates.set_template(name, text, **more))
    for warning in made.warnings:
        note(problem_line(warning))
    invocation.tell(made, f"Set template {clean(made.reference)}, version {made.version}.")


@template.command()
@click.argument("name", metavar="TEMPLATE")
@json_option
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove a template; what was submitted with it stays as it is.

    \b
    Example:
      det template remove gpu
    """
    gone = invocation.client.session.run(templates.remove_template(name))
    invocation.tell(gone, f"Removed template {clean(gone.reference)}.")
