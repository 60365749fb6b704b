"""`det webhook …`: addresses that are called when something happens to your experiments."""

from __future__ import annotations

import time
from typing import get_args

import click

from detlab.cli.commands.notify.alert import amount_text, scope_text
from detlab.cli.commands.projects.options import project_of, project_option, workspace_option
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, moment, say, say_json, table
from detlab.errors import DetlabError
from detlab.schemas.wire.notify.webhooks import HookTrigger, WebhookFormat, WebhookView

COMMANDS = {"webhook": "Webhooks: addresses that are called when something happens to your experiments."}
_KINDS: tuple[HookTrigger, ...] = get_args(HookTrigger)
_FORMATS: tuple[WebhookFormat, ...] = get_args(WebhookFormat)
WAIT, LOOK = 10.0, 0.5
"""Seconds in which a test call should have gone through, and between two looks."""


@click.group(cls=LazyGroup, short={"ls": "list", "rm": "delete"})
def webhook() -> None:
    """Addresses that are called when something happens: by Determined's payloads, or what Slack, Teams or Apprise take.

    \b
    Examples:
      det webhook create chat https://hooks.slack.com/services/… --format slack --trigger completed --trigger failed
      det webhook test chat
      det webhook list
    """


@webhook.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation) -> None:
    """List your webhooks; administrators see those of everybody, without their addresses.

    \b
    Example:
      det webhook list
    """
    found = invocation.client.list_webhooks()
    if invocation.as_json:
        say_json(found)
        return
    if not found and not invocation.as_csv:
        say("No webhooks yet. Try: det webhook create NAME URL --trigger completed")
        return
    table(("ID", "Name", "Format", "Owner", "URL", "Told of", "Sent", "Waiting", "Failed", "Error"), map(_row, found))


def _row(one: WebhookView) -> tuple[object, ...]:
    told = ", ".join(f"{rule.kind} {amount_text(rule)}".rstrip() for rule in one.rules)
    return (
        *(one.id, one.name, one.format, one.owner, one.url, told),
        *(one.delivered, one.waiting, one.failed, one.error),
    )


@webhook.command()
@click.argument("name")
@click.argument("url")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="default",
    show_default=True,
    help="How it is told: Determined's payloads, signed; or as Slack, Teams or Apprise take it.",
)
@click.option(
    "-t", "--trigger", "triggers", multiple=True, type=click.Choice(_KINDS), help="What it is told of; repeat it."
)
@workspace_option("Only of what lies in this workspace.")
@project_option("Only of what lies in this project of it, or of your personal one.")
@json_option
@pass_invocation
def create(
    invocation: Invocation,
    name: str,
    url: str,
    form: WebhookFormat,
    triggers: tuple[HookTrigger, ...],
    workspace: str | None,
    project: str | None,
    project_id: int | None,
) -> None:
    """Make a webhook for all your experiments, or for those in a workspace or project that you may read.

    Its address must be public: an operator allows others. Its calls are made with your rights at that time. The secret
    that signs the calls of format default is printed once.

    \b
    Examples:
      det webhook create ci https://ci.example.com/hook -t completed -t failed
      det webhook create chat https://hooks.slack.com/services/… --format slack -t alert -w ada/vision
    """
    place = project_of(project, project_id)
    made = invocation.client.create_webhook(
        name, url, format=form, triggers=triggers, workspace=workspace, project=place
    )
    lines = [f"Made webhook {made.id} ({clean(made.name)})."]
    lines += [f"  {rule.kind} {amount_text(rule)} of {scope_text(rule)}" for rule in made.rules]
    if form == "default":
        lines.append(f"Its calls are signed with this secret, which is not shown again: {made.secret}")
    lines.append(f"Try it: det webhook test {made.id}")
    invocation.tell(made, "\n".join(lines))


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@json_option
@pass_invocation
def test(invocation: Invocation, name: str) -> None:
    """Have a call sent, and say how it went.

    \b
    Example:
      det webhook test chat
    """
    client = invocation.client
    before = client.test_webhook(name)
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        seen = client.get_webhook(before.id)
        if seen.delivered > before.delivered:
            invocation.tell(seen, f"Webhook {seen.id} has taken the call.")
            return
        if seen.error and seen.waiting:
            raise DetlabError(f"webhook {seen.id}: {clean(seen.error)}", hint=f"det webhook calls {seen.id}")
        time.sleep(LOOK)
    raise DetlabError(
        f"webhook {before.id}: the call has not gone through after {WAIT:g} s", hint=f"det webhook calls {before.id}"
    )


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@csv_option
@json_option
@pass_invocation
def calls(invocation: Invocation, name: str) -> None:
    """List calls that wait to be sent, and those of the last week that were given up.

    \b
    Example:
      det webhook calls chat
    """
    found = invocation.client.list_webhook_calls(name)
    if invocation.as_json:
        say_json(found)
        return
    if not found and not invocation.as_csv:
        say("No calls wait, and none was given up.")
        return
    rows = [
        (
            *(one.id, one.event, one.title, moment(one.created_at), one.attempts),
            *("given up" if one.due_at is None else moment(one.due_at), one.error),
        )
        for one in found
    ]
    table(("ID", "Event", "Title", "Made", "Attempts", "Next", "Error"), rows)


@webhook.command()
@click.argument("name", metavar="WEBHOOK")
@json_option
@pass_invocation
def delete(invocation: Invocation, name: str) -> None:
    """Delete a webhook with its calls, and the rules that only tell it.

    \b
    Example:
      det webhook delete chat
    """
    gone = invocation.client.delete_webhook(name)
    invocation.tell(gone, f"Deleted webhook {gone.id} ({clean(gone.name)}).")
