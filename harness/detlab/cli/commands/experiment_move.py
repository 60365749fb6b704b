"""`det experiment move`: to another project, and so to other readers."""

from __future__ import annotations

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import clean, say, say_json


@click.command()
@click.argument("experiment_id", metavar="ID", type=int)
@click.argument("workspace", metavar="[WORKSPACE]", default="")
@click.argument("project", metavar="[PROJECT]", default="")
@click.option("--keep-storage", is_flag=True, help="Leave its checkpoints where they are, if the workspace's differ.")
@json_option
@pass_invocation
def move(invocation: Invocation, experiment_id: int, workspace: str, project: str, keep_storage: bool) -> None:
    """Move an experiment to another project: the members of its workspace see it from then on.

    Without WORKSPACE, to the personal one of its owner, who then sees it alone. What it was shared with stays.

    \b
    Examples:
      det experiment move 7 ada/vision digits
      det e move 7
    """
    found = invocation.client.get_experiment(experiment_id)
    found.move(workspace, project, keep_storage=keep_storage)
    if invocation.as_json:
        say_json(found.view)
        return
    say(f"Moved experiment {experiment_id} to {clean(found.view.workspace)} / {clean(found.view.project)}")
