"""`det experiment set log-retention`: how long output is kept."""

from __future__ import annotations

import click

from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import say
from detlab.client.operations import logs
from detlab.client.transport.calls import valid_request
from detlab.schemas.logwire import KeepLogs

MOST_DAYS = 32767


@click.group(name="set", cls=LazyGroup)
def set_group() -> None:
    """Change what is written about experiments, and how long their output is kept.

    \b
    Examples:
      det experiment set name 7 'digits, wider'
      det experiment set log-retention 7 --days 30
    """


@set_group.command(name="log-retention")
@click.argument("experiment_ids", metavar="[ID]...", type=int, nargs=-1, shell_complete=experiment_ids)
@click.option("--all", "every", is_flag=True, help="All your experiments instead.")
@click.option("--days", type=click.IntRange(0, MOST_DAYS), metavar="N", help="Days after the end of each trial.")
@click.option("--forever", is_flag=True, help="Until the experiment is deleted.")
@click.option("--default", "as_master", is_flag=True, help="As configured by the operator of the cluster.")
@json_option
@pass_invocation
def log_retention(
    invocation: Invocation,
    experiment_ids: tuple[int, ...],
    every: bool,
    days: int | None,
    forever: bool,
    as_master: bool,
) -> None:
    """Set how long the output of experiments is kept.

    It applies to ended trials, too, from the next daily cleaning on. Removed output cannot be restored. The output of a
    trial that has not ended is always kept.

    \b
    Examples:
      det experiment set log-retention 7 8 --days 30
      det e set log-retention 7 --forever
      det e set log-retention --all --default
    """
    if every == bool(experiment_ids):
        raise click.UsageError("name experiments, or add --all")
    if (days is not None) + forever + as_master != 1:
        raise click.UsageError("add --days N, --forever or --default")
    with valid_request():
        wanted = KeepLogs(days=-1 if forever else days, experiments=sorted(set(experiment_ids)), all=every)
    changed = invocation.client.session.run(logs.keep(wanted)).changed
    if invocation.answered({"changed": changed}):
        return
    kept = "as the cluster's operator configured" if as_master else kept_for(wanted.days)
    count = len(changed)
    which = "Nothing changed" if not count else f"{count} experiment{'' if count == 1 else 's'} changed"
    say(f"{which}: output is kept {kept}.")


def kept_for(days: int | None) -> str:
    """Return how long output is kept, as text for people; empty if it is unknown."""
    if days is None:
        return ""
    if days < 0:
        return "until the experiment is deleted"
    count = "less than a day" if not days else "1 day" if days == 1 else f"{days:,} days"
    return f"for {count} after the end of each trial"
