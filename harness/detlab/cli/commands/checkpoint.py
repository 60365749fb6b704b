"""`det checkpoint …`."""

from __future__ import annotations

from pathlib import Path

import click

from detlab.cli.commands.download import fetch
from detlab.cli.commands.experiment import print_checkpoints
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, facts, moment, say, say_json, size, table
from detlab.client.resources import Experiment, Trial
from detlab.client.transport.downloads import AnyMode


@click.group(cls=LazyGroup, short={"ls": "list"})
def checkpoint() -> None:
    """Checkpoints that trials saved; each file has a digest.

    \b
    Examples:
      det checkpoint list 7
      det c download UUID -o best/
    """


@checkpoint.command(name="list")
@click.argument("experiment_id", metavar="[EXPERIMENT]", type=int, required=False)
@click.option("--trial", "trial_id", type=int, metavar="ID", help="List the checkpoints of this trial instead.")
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, experiment_id: int | None, trial_id: int | None) -> None:
    """List the checkpoints of an experiment or a trial, best first.

    \b
    Examples:
      det checkpoint list 7
      det c list --trial 31 --json | jq -r '.[0].uuid'
    """
    if (experiment_id is None) == (trial_id is None):
        raise click.UsageError("name an experiment, or a trial by --trial")
    of: Experiment | Trial
    if trial_id is not None:
        of = invocation.client.get_trial(trial_id)
    else:
        assert experiment_id is not None
        of = invocation.client.get_experiment(experiment_id)
    found = of.list_checkpoints()
    if invocation.as_json:
        say_json([item.view for item in found])
    else:
        print_checkpoints(found, of)


@checkpoint.command()
@click.argument("uuid")
@json_option
@pass_invocation
def describe(invocation: Invocation, uuid: str) -> None:
    """Show a checkpoint with its files.

    \b
    Example:
      det checkpoint describe 3f2b0c1e-…
    """
    view = invocation.client.get_checkpoint(uuid).view
    if invocation.as_json:
        say_json(view)
        return
    facts(
        [
            ("checkpoint", view.uuid),
            ("trial", f"{view.trial_id} (experiment {view.experiment_id})"),
            ("steps", str(view.steps_completed)),
            ("validation", view.validation),
            ("state", view.state),
            ("written", moment(view.created_at)),
            ("size", size(view.size)),
            ("storage", view.storage.get("type")),
        ]
    )
    for name, value in sorted(view.metadata.items()):
        say(f"  {clean(name)} = {clean(value)}")
    rows = [(path, size(file.size), file.digest) for path, file in sorted(view.files.items())]
    table(("File", "Size", "Digest"), rows, right=("Size",))


@checkpoint.command()
@click.argument("uuid")
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: checkpoints/UUID."
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "direct", "master"]),
    default="auto",
    show_default=True,
    help="direct: copy from the storage, mounted here; master: through the master; auto: direct if possible.",
)
@json_option
@pass_invocation
def download(invocation: Invocation, uuid: str, output_dir: Path | None, mode: AnyMode) -> None:
    """Download a checkpoint; every file is verified, and no partial folder is left behind.

    \b
    Example:
      det checkpoint download 3f2b0c1e-… -o best/
    """
    fetch(invocation, invocation.client.get_checkpoint(uuid), output_dir, mode)
