"""`det project …`: the projects of a workspace, with the arguments that Determined has."""

from __future__ import annotations

import click

from detlab.cli.commands.projects.options import all_option, print_project, sort_options, yes_option
from detlab.cli.commands.projects.workspace import show_projects
from detlab.cli.completion import workspace_names
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, say_json
from detlab.client.operations import projects

COMMANDS = {"project": "Projects of a workspace: create, list, describe, …"}

_workspace = click.argument("workspace", metavar="WORKSPACE", shell_complete=workspace_names)
_project = click.argument("name", metavar="PROJECT")


@click.group(cls=LazyGroup, short={"ls": "list"})
def project() -> None:
    """Projects: folders of a workspace. Rights to one are those to its workspace.

    WORKSPACE is the name of one that you have made, OWNER/NAME, or an id; Uncategorized is your personal one.

    \b
    Examples:
      det project create vision digits
      det e create search.yaml code/ -w vision --project digits
      det p list-experiments vision digits
    """


@project.command()
@_workspace
@click.argument("name")
@click.option("--description", default="", metavar="TEXT", help="What it is about.")
@click.option("--notes", default="", metavar="TEXT", help="Notes in Markdown.")
@json_option
@pass_invocation
def create(invocation: Invocation, workspace: str, name: str, description: str, notes: str) -> None:
    """Make a project in a workspace (its editors).

    \b
    Example:
      det project create vision digits --description 'handwritten digits'
    """
    made = invocation.client.session.run(projects.create_project(workspace, name, description, notes))
    invocation.tell(made, f"Created project {made.id}: {clean(made.name)} of workspace {clean(made.workspace)}")


@project.command(name="list")
@_workspace
@sort_options
@all_option
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, workspace: str, sort_by: str, order_by: str, everything: bool) -> None:
    """List the projects of a workspace.

    \b
    Example:
      det project list vision
    """
    show_projects(invocation, workspace, sort_by, order_by, everything=everything)


@project.command()
@_workspace
@_project
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number to list.")
@click.option("-a", "--all", "every", is_flag=True, help="All of them, archived ones, too.")
@click.option("--sort-by", type=click.Choice(["id", "name"]), help="The order, instead of newest first.")
@click.option("--order-by", type=click.Choice(["asc", "desc"]), default="asc", help="With --sort-by: its direction.")
@csv_option
@json_option
@click.pass_context
def list_experiments(
    context: click.Context, workspace: str, name: str, limit: int, every: bool, sort_by: str | None, order_by: str
) -> None:
    """List the experiments of a project, newest first.

    \b
    Example:
      det project list-experiments vision digits
    """
    root = context.find_root()
    group = root.command.get_command(root, "experiment") if isinstance(root.command, click.Group) else None
    experiments = group.get_command(root, "list") if isinstance(group, click.Group) else None
    assert experiments is not None
    order = {"sort_by": sort_by and sort_by.upper(), "order_by": order_by}
    context.invoke(experiments, workspace=workspace, project=name, limit=limit, every=every, **order)


@project.command()
@_workspace
@_project
@json_option
@pass_invocation
def describe(invocation: Invocation, workspace: str, name: str) -> None:
    """Show a project with its notes.

    \b
    Example:
      det project describe vision digits
    """
    found = invocation.client.get_project(workspace, name)
    if invocation.as_json:
        say_json(found.view)
    else:
        print_project(found.view)


@project.command()
@_workspace
@_project
@click.option("--name", "--new_name", "new_name", metavar="NAME", help="Another name.")
@click.option("--description", metavar="TEXT", help="What it is about; empty removes it.")
@click.option("--notes", metavar="TEXT", help="Notes in Markdown.")
@json_option
@pass_invocation
def edit(
    invocation: Invocation,
    workspace: str,
    name: str,
    new_name: str | None,
    description: str | None,
    notes: str | None,
) -> None:
    """Change what is written about a project (the editors of its workspace).

    \b
    Example:
      det project edit vision digits --name numbers
    """
    changes = {"name": new_name, "description": description, "notes": notes}
    if not any(text is not None for text in changes.values()):
        raise click.UsageError("name at least one: --name, --description or --notes")
    found = invocation.client.session.run(projects.edit_project(workspace, name, **changes))
    invocation.tell(found, f"Changed project {found.id}: {clean(found.name)}")


@project.command()
@_workspace
@_project
@json_option
@pass_invocation
def archive(invocation: Invocation, workspace: str, name: str) -> None:
    """Have lists leave a project out; it takes nothing new then (the admins of its workspace).

    \b
    Example:
      det project archive vision digits
    """
    found = invocation.client.session.run(projects.edit_project(workspace, name, archived=True))
    invocation.tell(found, f"Archived project {found.id}: {clean(found.name)}")


@project.command()
@_workspace
@_project
@json_option
@pass_invocation
def unarchive(invocation: Invocation, workspace: str, name: str) -> None:
    """Have lists show a project again (the admins of its workspace).

    \b
    Example:
      det project unarchive vision digits
    """
    found = invocation.client.session.run(projects.edit_project(workspace, name, archived=False))
    invocation.tell(found, f"Unarchived project {found.id}: {clean(found.name)}")


@project.command()
@_workspace
@_project
@yes_option
@json_option
@pass_invocation
def delete(invocation: Invocation, workspace: str, name: str, yes: bool) -> None:
    """Delete a project in which nothing lies (the admins of its workspace).

    \b
    Example:
      det project delete vision digits --yes
    """
    confirmed(f"Delete project {clean(name)} of workspace {clean(workspace)}?", yes=yes)
    found = invocation.client.session.run(projects.delete_project(workspace, name))
    invocation.tell(found, f"Deleted project {found.id}: {clean(found.name)}")
