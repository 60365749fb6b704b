"""`det run media …`: what a run from anywhere has logged beyond numbers."""

from __future__ import annotations

from pathlib import Path

import click

from detlab.cli.commands.experiments.media import output_dir_option, print_downloaded, print_media, wanted
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean


@click.group(cls=LazyGroup, short={"ls": "list"})
def media() -> None:
    """Images, tables and other things that a run has logged beside its metrics.

    \b
    Examples:
      det run media list 6f0c…
      det run media download 6f0c… --key samples -o samples/
    """


@media.command(name="list")
@click.argument("run_id", metavar="RUN")
@wanted
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@csv_option
@json_option
@pass_invocation
def list_media(
    invocation: Invocation, run_id: str, key: str | None, kind: str | None, step: int | None, limit: int | None
) -> None:
    """List what a run has logged, in the order of its steps.

    \b
    Examples:
      det run media list 6f0c… --kind image
      det run media list 6f0c… --key samples --json
    """
    run = invocation.client.get_run(run_id)
    found = invocation.client.list_run_media(run.id, key=key, kind=kind, step=step, limit=limit)
    print_media(invocation, found, f"Run {clean(run_id)} has logged nothing of that kind: run.log({{…}}) does.")


@media.command()
@click.argument("run_id", metavar="RUN")
@wanted
@output_dir_option("media/ID, by the id of the run")
@json_option
@pass_invocation
def download(
    invocation: Invocation, run_id: str, key: str | None, kind: str | None, step: int | None, output_dir: Path | None
) -> None:
    """Download what a run has logged, a file each; those that are there already are left.

    \b
    Examples:
      det run media download 6f0c…
      det run media download 6f0c… --kind image --step 1000 -o images/
    """
    run = invocation.client.get_run(run_id)
    found = invocation.client.list_run_media(run.id, key=key, kind=kind, step=step)
    # The id is the master's; what a script calls its run is not for a path.
    folder = output_dir or Path("media") / run.id
    print_downloaded(invocation, folder, invocation.client.download_run_media(folder, found))
