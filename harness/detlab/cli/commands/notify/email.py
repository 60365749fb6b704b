"""`det alert email …`: the address to which your alerts are sent."""

from __future__ import annotations

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, moment, say, say_json
from detlab.schemas.wire.notify.emails import EmailView

_user_option = click.option("--user", metavar="U", help="Of this user (administrators).")


@click.group(cls=LazyGroup, short={"rm": "remove"})
def email() -> None:
    """Have alerts sent to an address of yours, by rules with --email.

    An address is confirmed by a code that is sent there, or set by an administrator.

    \b
    Examples:
      det alert email set ada@example.org
      det alert email confirm k7mq-9xwd-4tzp
      det alert add-rule failed --email
    """


@email.command(name="set")
@click.argument("address")
@_user_option
@json_option
@pass_invocation
def set_command(invocation: Invocation, address: str, user: str | None) -> None:
    """Have a code sent to an address; alerts go there once you have confirmed it, and until then where they went.

    Administrators set that of a user, which needs no code. Few codes are sent in a day.

    \b
    Examples:
      det alert email set ada@example.org
      det alert email set ben@example.org --user ben
    """
    found = invocation.client.set_alert_email(address, user)
    if found.pending:
        said = f"A code is sent to {found.pending}. When it has come: det alert email confirm CODE"
    else:
        said = f"Alerts to {clean(found.user)} are sent to {found.address}, by rules with --email."
    invocation.tell(found, said)


@email.command()
@click.argument("code")
@json_option
@pass_invocation
def confirm(invocation: Invocation, code: str) -> None:
    """Confirm your address by the code that came there.

    \b
    Example:
      det alert email confirm k7mq-9xwd-4tzp
    """
    found = invocation.client.confirm_alert_email(code)
    invocation.tell(found, f"{found.address} is confirmed. Have alerts sent there: det alert add-rule failed --email")


@email.command()
@_user_option
@json_option
@pass_invocation
def show(invocation: Invocation, user: str | None) -> None:
    """Show where your alerts are sent, and how that went.

    \b
    Examples:
      det alert email show
      det alert email show --user ben
    """
    found = invocation.client.get_alert_email(user)
    if invocation.as_json:
        say_json(found)
        return
    for line in _lines(found):
        say(line)


def _lines(one: EmailView) -> list[str]:
    lines = [] if one.offered else ["This cluster sends no e-mail: an operator names a mail server in c.DetHub.smtp."]
    if one.address:
        when = "" if one.confirmed_at is None else f", {moment(one.confirmed_at)}"
        lines.append(f"Alerts are sent to {one.address} (set by {clean(one.set_by)}{when}).")
        lines.append(f"Sent: {one.delivered}. Waiting: {one.waiting}. Given up: {one.failed}.")
    elif not one.pending:
        lines.append("No address is set: det alert email set ADDRESS")
    if one.pending:
        until = "was not sent yet" if one.code_until is None else f"is valid until {moment(one.code_until)}"
        lines.append(f"{one.pending} waits for its code, which {until}: det alert email confirm CODE")
    if one.error:
        lines.append(f"The last attempt failed: {clean(one.error)}")
    return lines


@email.command()
@_user_option
@json_option
@pass_invocation
def remove(invocation: Invocation, user: str | None) -> None:
    """Have no alerts sent by e-mail any more. Rules that told by it alone tell the bell again.

    \b
    Example:
      det alert email remove
    """
    gone = invocation.client.remove_alert_email(user)
    invocation.tell(gone, f"No alerts are sent to {clean(gone.user)} by e-mail any more.")
