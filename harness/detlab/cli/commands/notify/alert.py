"""`det alert …`: what you were told, and the rules by which you are told."""

from __future__ import annotations

from typing import get_args

import click

from detlab.cli.commands.notify.email import email
from detlab.cli.commands.projects.options import project_of, project_option, workspace_option
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, moment, say, say_json, table
from detlab.client.operations.notify import alerts
from detlab.schemas.wire.notify.alerts import AlertRuleView, RuleKind

COMMANDS = {"alert": "Alerts of runs: list, mark as read, the rules by which you are told, e-mail."}
_KINDS: tuple[RuleKind, ...] = get_args(RuleKind)
UNITS = {"improved": "%", "plateau": "validations", "waiting": "s", "budget": "%"}
MOST_TEXT = 200
"""Characters of an alert in the list."""


@click.group(cls=LazyGroup, short={"ls": "list", "rm": "remove-rule"})
def alert() -> None:
    """List what you were told of experiments and runs, by their code and by your rules.

    \b
    Examples:
      det alert add-rule completed                  # when any experiment of mine ends
      det alert add-rule improved --amount 1 -e 12  # when the best value of experiment 12 is 1 % better
      det alert email set ada@example.org           # alerts by e-mail, by rules with --email
      det alert list
      det alert read
    """


alert.add_command(email)


@alert.command(name="list")
@click.option("--unread", is_flag=True, help="Only those that you have not read.")
@click.option(
    "--all", "all_channels", is_flag=True, help="With those of rules with --no-bell: webhook or e-mail alone."
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="List at most this many.")
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, unread: bool, all_channels: bool, limit: int) -> None:
    """List your alerts, the newest first.

    \b
    Examples:
      det alert list --unread
      det alert list --all
    """
    found = invocation.client.list_alerts(unread=unread, limit=limit, all_channels=all_channels)
    if invocation.as_json:
        say_json(found)
        return
    if not found and not invocation.as_csv:
        say("No alerts. Be told of the end of your experiments: det alert add-rule completed")
        return
    rows = [
        (
            one.id,
            "" if one.read else "new",
            moment(one.created_at),
            one.level,
            one.title,
            _shortened(one.text) + (f" (and {one.held_back} that came too fast)" if one.held_back else ""),
            one.experiment_id or one.run_id or "",
        )
        for one in found
    ]
    table(("ID", "New", "At", "Level", "Title", "Text", "Of"), rows, spare=("Level", "New"))


@alert.command()
@click.argument("ids", type=int, nargs=-1, metavar="[ID]...")
@json_option
@pass_invocation
def read(invocation: Invocation, ids: tuple[int, ...]) -> None:
    """Mark alerts as read: those named, or all that there are now.

    \b
    Examples:
      det alert read
      det alert read 12 13
    """
    client, upto = invocation.client, None
    if not ids:
        newest = client.session.run(alerts.unread_alerts()).items
        upto = newest[0].id if newest else 0
    left = client.read_alerts(ids, upto=upto)
    invocation.tell({"unread": left}, f"{left} unread alerts are left." if left else "All alerts are read.")


@alert.command(name="rules")
@csv_option
@json_option
@pass_invocation
def rules(invocation: Invocation) -> None:
    """List the rules by which you are told.

    \b
    Example:
      det alert rules
    """
    found = invocation.client.list_alert_rules()
    if invocation.as_json:
        say_json(found)
        return
    if not found and not invocation.as_csv:
        say("No rules yet. Try: det alert add-rule completed")
        return
    table(("ID", "Kind", "Amount", "Of", "Told by", "Made"), [_row(one) for one in found])


def _row(one: AlertRuleView) -> tuple[object, ...]:
    hook = f"webhook {one.webhook}" if one.webhook is not None else ""
    told = ", ".join(filter(None, ("bell" if one.bell else "", hook, "e-mail" if one.email else "")))
    return one.id, one.kind, amount_text(one), scope_text(one), told, moment(one.created_at)


def _shortened(text: str) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= MOST_TEXT else f"{whole[: MOST_TEXT - 1]}…"


def amount_text(one: AlertRuleView) -> str:
    """Return the amount of a rule with its unit, or what it looks for."""
    if one.pattern:
        return clean(one.pattern)
    return "" if one.amount is None else f"{one.amount:g} {UNITS.get(one.kind, '')}".strip()


def scope_text(one: AlertRuleView) -> str:
    """Return what a rule looks at."""
    if one.scope == "owner":
        return "all of one's own"
    return f"{one.scope} {one.scope_id} {clean(one.scope_name)}".strip()


@alert.command(name="add-rule")
@click.argument("kind", type=click.Choice(_KINDS))
@click.option(
    "--amount",
    type=float,
    metavar="N",
    help="Percent (improved, budget), validations (plateau), seconds (waiting).  [default: 1, 80, 20, 3600]",
)
@click.option("--pattern", default="", metavar="REGEX", help="What log looks for in lines, in the syntax of RE2.")
@click.option("-e", "--experiment", "experiment_id", type=int, metavar="ID", help="Only this experiment.")
@workspace_option("Only what lies in this workspace.")
@project_option("Only what lies in this project of it, or of your personal one.")
@click.option("--webhook", metavar="W", help="A webhook of yours that is called, too: its name or id.")
@click.option("--email", "by_email", is_flag=True, help="E-mail to your confirmed address, too: det alert email set.")
@click.option("--no-bell", is_flag=True, help="Only by webhook or e-mail.")
@json_option
@pass_invocation
def add_rule(
    invocation: Invocation,
    kind: RuleKind,
    amount: float | None,
    pattern: str,
    experiment_id: int | None,
    workspace: str | None,
    project: str | None,
    project_id: int | None,
    webhook: str | None,
    by_email: bool,
    no_bell: bool,
) -> None:
    """Be told of all your experiments, of one, or of those in a workspace or project that you may read.

    KIND is completed, failed, improved (its best value, by so many percent), plateau (so many validations without a
    better value), waiting (nothing of it has run for so many seconds), budget (so many percent of searcher.budget or of
    your quotas are used), alert (its code has called alert) or log (a trial has printed a line in which the regular
    expression of --pattern is found: once of each trial).

    \b
    Examples:
      det alert add-rule failed
      det alert add-rule waiting --amount 7200
      det alert add-rule completed -w ada/vision --webhook chat --no-bell
      det alert add-rule failed --email
      det alert add-rule log --pattern 'loss is (nan|inf)' --webhook chat
    """
    client = invocation.client
    made = client.add_alert_rule(
        kind,
        amount,
        pattern=pattern,
        experiment=experiment_id,
        workspace=workspace,
        project=project_of(project, project_id),
        bell=not no_bell,
        webhook=None if webhook is None else client.get_webhook(webhook).id,
        email=by_email,
    )
    text = f"Rule {made.id}: {made.kind} {amount_text(made)}".rstrip()
    invocation.tell(made, f"{text}, of {scope_text(made)}.")


@alert.command(name="remove-rule")
@click.argument("rule", type=int)
@json_option
@pass_invocation
def remove_rule(invocation: Invocation, rule: int) -> None:
    """Remove a rule.

    \b
    Example:
      det alert remove-rule 3
    """
    gone = invocation.client.remove_alert_rule(rule)
    invocation.tell(gone, f"Removed rule {gone.id} ({gone.kind}).")
