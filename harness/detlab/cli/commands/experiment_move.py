"""`det experiment move`: to another project, and so to other readers."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from detlab.cli.commands.experiments.batches import IDS, act_on_many, chosen, many_options, tell_undo
from detlab.cli.completion import experiment_ids, workspace_names
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import clean, say, say_json
from detlab.client.transport.calls import valid_request
from detlab.schemas.wire.batches import BatchRequest


def _words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer experiments first, then workspaces."""
    before = len(ctx.params.get("words") or ()) + bool(ctx.params.get("filter_"))
    offer = {0: experiment_ids, 1: workspace_names}.get(before)
    return offer(ctx, param, incomplete) if offer else []


@click.command()
@click.argument("words", metavar="[IDS] [WORKSPACE] [PROJECT]", nargs=-1, shell_complete=_words)
@click.option("--keep-storage", is_flag=True, help="Leave its checkpoints where they are, if the workspace's differ.")
@many_options
@json_option
@pass_invocation
def move(
    invocation: Invocation, words: tuple[str, ...], keep_storage: bool, filter_: str, yes: bool, dry_run: bool
) -> int:
    """Move experiments to another project: the members of its workspace see them from then on.

    Without WORKSPACE, to the personal one of their owner, who then sees them alone. Whom they are shared with stays.

    \b
    Examples:
      det experiment move 7 ada/vision digits
      det e move 7
      det e move 1-5,7 ada/vision
      det e move --filter 'label = paper' ada/vision digits
    """
    given = () if filter_ or not words else (IDS.convert(words[0], None, None),)
    place = words if filter_ else words[1:]
    if len(place) > 2:
        raise click.UsageError("name at most a workspace and a project after the experiments")
    workspace, project = [*place, "", ""][:2]
    many = chosen(given, filter_, yes=yes, dry_run=dry_run)
    if not many.plain:
        return act_on_many(invocation, "move", many, workspace=workspace, project=project, keep_storage=keep_storage)
    found = invocation.client.get_experiment(many.ids[0])
    before = (found.view.workspace_id, found.view.project_id)
    found.move(workspace, project, keep_storage=keep_storage)
    if invocation.as_json:
        say_json(found.view)
        return 0
    say(f"Moved experiment {found.id} to {clean(found.view.workspace)} / {clean(found.view.project)}")
    if None not in before and before != (found.view.workspace_id, found.view.project_id):
        back_to = {"workspace": str(before[0]), "project": str(before[1])}
        with valid_request("this cannot be undone"):
            back = BatchRequest(act="move", experiment_ids=[found.id], keep_storage=keep_storage, **back_to)
        tell_undo([back])
    return 0
