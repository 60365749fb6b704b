"""`det experiment share`: give other users read or write access to an experiment."""

from __future__ import annotations

import click

from detlab.cli.commands.projects.options import not_looked_up
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import clean, moment, note, say, table
from detlab.client.bundling.secret_files import secret_files
from detlab.client.operations.experiments import experiment_code
from detlab.client.resources import Experiment
from detlab.errors import DetlabError
from detlab.schemas.wire import GrantView


@click.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("--user", metavar="U", help="A user of the Hub.")
@click.option("--group", metavar="G", help="A group of the Hub: all its members.")
@click.option("--write", is_flag=True, help="They may also pause, activate, cancel, kill, edit and archive it.")
@click.option("--remove", is_flag=True, help="Remove the share.")
@json_option
@pass_invocation
def share(
    invocation: Invocation, experiment_id: int, user: str | None, group: str | None, write: bool, remove: bool
) -> None:
    """Let another user or a group read an experiment: its trials, metrics, logs, code and checkpoints.

    Without --user and --group, show with whom it is shared. Only its owner and administrators can share or delete it.

    \b
    Examples:
      det experiment share 7 --user bob
      det e share 7 --group vision --write
      det e share 7 --user bob --remove
      det e share 7
    """
    if user is not None and group is not None:
        raise click.UsageError("give --user or --group, not both; run the command twice for both")
    if user is None and group is None and (write or remove):
        raise click.UsageError("name a user or a group: add --user U or --group G")
    if write and remove:
        raise click.UsageError("--remove removes the whole share; for read access only, share it again without --write")
    item = invocation.client.get_experiment(experiment_id)
    found = _done(item, user, group, write=write, remove=remove)
    if found and not remove and (user or group):
        _warn_of_secrets(invocation, item)
    if not invocation.answered(found):
        _show(item, found)
        if not remove:
            not_looked_up(invocation, user)


def _done(item: Experiment, user: str | None, group: str | None, *, write: bool, remove: bool) -> list[GrantView]:
    if user is None and group is None:
        return item.list_grants()
    if remove:
        return item.unshare(user=user, group=group)
    return item.share(user=user, group=group, write=write)


def _warn_of_secrets(invocation: Invocation, item: Experiment) -> None:
    """Name the files of secrets in the code: who sees an experiment can download its code, and run it."""
    try:
        code = invocation.client.session.run(experiment_code(item.id))
    except DetlabError:  # its code is too large to be listed, or the master is older; the share is made
        return
    held = secret_files(file.path for file in code.items)
    if held:
        note(f"warning: the code, which they may now download, holds {clean(held)}")
        note("  → change these passwords and keys, or end it: --remove")


def _show(item: Experiment, found: list[GrantView]) -> None:
    if not found:
        say(f"Experiment {item.id} is not shared.")
        return
    rows = [
        (
            grant.kind,
            grant.name,
            "look and change" if grant.write else "look",
            grant.granted_by,
            moment(grant.created_at),
        )
        for grant in found
    ]
    table(("With", "Name", "May", "Granted by", "Since"), rows)
