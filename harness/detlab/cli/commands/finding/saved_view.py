"""`det view …`: saved views of tables."""

from __future__ import annotations

from typing import get_args

import click

from detlab.cli.commands.finding.finding import column_option, sort_option
from detlab.cli.commands.projects.options import project_of, project_option, workspace_option
from detlab.cli.completion import view_names
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, moment, say, say_json, table
from detlab.schemas.wire.finding import FilteredTable

COMMANDS = {"view": "Saved views of trials and experiments: list, save, remove."}
_TABLES: tuple[FilteredTable, ...] = get_args(FilteredTable)
_table_option = click.option(
    "--table", "table_", type=click.Choice(_TABLES), default="trials", show_default=True, help="Which table it is of."
)


@click.group(cls=LazyGroup, short={"ls": "list", "rm": "remove"})
def view() -> None:
    """Tables under a name: a filter, an order and columns. Only you see yours, but for those in a project.

    \b
    Examples:
      det view save good 'accuracy > 0.9' --sort -accuracy -c accuracy
      det trial search --view good
      det view save good 'accuracy > 0.9' -w vision --project digits   # its members have it, too
    """


@view.command(name="list")
@click.option("--table", "table_", type=click.Choice(_TABLES), help="Only those of this table.")
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, table_: FilteredTable | None) -> None:
    """List your saved views, and those of projects that you may read.

    \b
    Example:
      det view list --table trials
    """
    found = invocation.client.list_saved_views(table_)
    if invocation.as_json:
        say_json(found)
        return
    if not found and not invocation.as_csv:
        say("No saved views yet. Try: det view save NAME FILTER")
        return
    rows = [
        (
            *(one.name, one.table, one.filter, " ".join(one.sort), " ".join(one.columns)),
            *(one.owner, f"{one.workspace}/{one.project}" if one.project else "", moment(one.updated_at)),
        )
        for one in found
    ]
    table(("Name", "Table", "Filter", "Sort", "Columns", "Owner", "Project", "Changed"), rows)


@view.command()
@click.argument("name", shell_complete=view_names)
@click.argument("text", metavar="[FILTER]", default="")
@_table_option
@sort_option
@column_option
@workspace_option("The workspace of whose project the members have it, too.")
@project_option("The project of it, or of your personal one.")
@json_option
@pass_invocation
def save(
    invocation: Invocation,
    name: str,
    text: str,
    table_: FilteredTable,
    sort: tuple[str, ...],
    columns: tuple[str, ...],
    workspace: str | None,
    project: str | None,
    project_id: int | None,
) -> None:
    """Keep a filter, an order and columns under a name; a view of yours that has it is replaced.

    \b
    Example:
      det view save good 'accuracy > 0.9 and label = paper' --sort -accuracy -c accuracy -c loss.min
    """
    place = project_of(project, project_id)
    made = invocation.client.save_view(
        name, text, table=table_, sort=sort, columns=columns, workspace=workspace, project=place
    )
    where = f" in {clean(made.workspace)}, project {clean(made.project)}" if made.project else ""
    invocation.tell(made, f"Saved view {clean(made.name)} of {made.table}{where}.")


@view.command()
@click.argument("name", shell_complete=view_names)
@_table_option
@json_option
@pass_invocation
def remove(invocation: Invocation, name: str, table_: FilteredTable) -> None:
    """Remove a saved view of yours.

    \b
    Example:
      det view remove good
    """
    gone = invocation.client.remove_view(name, table=table_)
    invocation.tell(gone, f"Removed view {clean(gone.name)} of {gone.table}.")
