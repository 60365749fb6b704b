"""`det workspace …`: workspaces and their members."""

from __future__ import annotations

from typing import Any

import click

from detlab.cli.commands.projects.options import (
    all_option,
    in_order,
    not_looked_up,
    print_members,
    print_projects,
    print_workspace,
    print_workspaces,
    sort_options,
    yes_option,
)
from detlab.cli.completion import workspace_names
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, hidden_note, say, say_json
from detlab.client.projects.workspaces import Workspace
from detlab.schemas.wire.workspaces import RoleName

COMMANDS = {"workspace": "Workspaces: what their members see together, and who they are."}

_workspace = click.argument("name", metavar="WORKSPACE", shell_complete=workspace_names)
_user = click.option("--user", metavar="U", help="A user of the Hub.")
_group = click.option("--group", metavar="G", help="A group of the Hub: all its members.")


@click.group(cls=LazyGroup, short={"ls": "list"})
def workspace() -> None:
    """Workspaces: folders with members. What lies in one is seen by its members and by nobody else.

    WORKSPACE is the name of one that you have made, OWNER/NAME of anybody's, or an id. What names no workspace lies in
    your personal one, which has no members.

    \b
    Examples:
      det workspace create vision
      det w add-member vision --group vision --role editor
      det e create search.yaml code/ -w ada/vision
    """


@workspace.command()
@click.argument("name")
@click.option("--description", default="", metavar="TEXT", help="What it is for.")
@json_option
@pass_invocation
def create(invocation: Invocation, name: str, description: str) -> None:
    """Make a workspace, of which you are the first admin.

    \b
    Example:
      det workspace create vision --description 'what the vision team trains'
    """
    made = invocation.client.create_workspace(name, description)
    invocation.tell(made.view, f"Created workspace {made.id}: {clean(made.name)}")
    if not invocation.as_json:
        say(f"  → others name it {clean(made.reference)}; let them in: det workspace add-member {made.id} --user NAME")


@workspace.command(name="list")
@click.option("--name", metavar="PART", help="Only those with this in their name.")
@sort_options
@all_option
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, name: str | None, sort_by: str, order_by: str, everything: bool) -> None:
    """List the workspaces in which you have a role, and your personal one.

    Administrators of the cluster see all that are not personal.

    \b
    Example:
      det workspace list
    """
    listed = invocation.client.list_workspaces(name=name, archived=None if everything else False)
    found = in_order([one.view for one in listed], sort_by, order_by)
    if invocation.as_json:
        say_json(found)
    elif not found and not invocation.as_csv:
        hidden = [] if everything else invocation.client.list_workspaces(name=name, archived=True)
        said = hidden_note(len(hidden), "workspace")
        say(said or "No workspaces yet: you have met none. Make one to share work: det workspace create NAME")
    else:
        print_workspaces(found)


@workspace.command()
@_workspace
@json_option
@pass_invocation
def describe(invocation: Invocation, name: str) -> None:
    """Show a workspace, and your role in it.

    \b
    Example:
      det workspace describe ada/vision
    """
    found = invocation.client.get_workspace(name)
    if invocation.as_json:
        say_json(found.view)
    else:
        print_workspace(found.view)


@workspace.command()
@_workspace
@click.option("--name", "new_name", metavar="NAME", help="Another name.")
@click.option("--description", metavar="TEXT", help="What it is for; empty removes it.")
@json_option
@pass_invocation
def edit(invocation: Invocation, name: str, new_name: str | None, description: str | None) -> None:
    """Change the name or the description of a workspace (its admins).

    \b
    Example:
      det workspace edit vision --name seeing
    """
    if new_name is None and description is None:
        raise click.UsageError("name at least one: --name or --description")
    found = invocation.client.get_workspace(name)
    if new_name is not None:
        found.set_name(new_name)
    if description is not None:
        found.set_description(description)
    invocation.tell(found.view, f"Changed workspace {found.id}: {clean(found.name)}")


@workspace.command()
@_workspace
@click.option("--pool", metavar="POOL", help="The resource pool; empty removes it.")
@click.option("--storage", metavar="YAML", help="`checkpoint_storage` as in a config; empty removes it.")
@click.option("--environment", metavar="YAML", help="`environment` as in a config (administrators of the cluster).")
@click.option(
    "--task-container-defaults",
    "containers",
    metavar="YAML",
    help="Such as shm_size, bind_mounts and startup_hook (administrators of the cluster).",
)
@click.option("--template", metavar="NAME", help="One of its templates, under each experiment; empty removes it.")
@json_option
@pass_invocation
def set_defaults(
    invocation: Invocation,
    name: str,
    *,
    pool: str | None,
    storage: str | None,
    environment: str | None,
    containers: str | None,
    template: str | None,
) -> None:
    """Set what a workspace gives to what is submitted into it (its admins). A config's own values come first.

    What is not named stays. Admins of a workspace name a pool, a bucket of S3 or Google Cloud, and a template that
    decides nothing else of the kind; other storages, the environment and the defaults of containers are for
    administrators of the cluster, as they decide what runs as the members.

    \b
    Examples:
      det workspace set-defaults vision --pool a100
      det w set-defaults vision --storage '{type: s3, bucket: vision-checkpoints}'
      det w set-defaults vision --template standard
    """
    blocks = {"checkpoint_storage": storage, "environment": environment, "task_container_defaults": containers}
    if all(one is None for one in (pool, template, *blocks.values())):
        options = "--pool, --storage, --environment, --task-container-defaults or --template"
        raise click.UsageError(f"name at least one: {options}")
    found = invocation.client.get_workspace(name)
    said = {"resource_pool": pool, "template": template}
    changes: dict[str, Any] = {key: text for key, text in said.items() if text is not None}
    for key, text in blocks.items():
        if text is not None:
            changes[key] = _block(text, key)
    found.set_defaults(**{**found.view.defaults.model_dump(), **changes})
    if invocation.as_json:
        say_json(found.view)
    else:
        print_workspace(found.view)


def _block(text: str, key: str) -> dict[str, Any]:
    """Read a block of a config.

    Raises:
        ConfigError: It is none.
    """
    from detlab.client.submission import config_mapping

    return config_mapping(f"{text}\n", f"--{key}") if text.strip() else {}


@workspace.command()
@_workspace
@json_option
@pass_invocation
def archive(invocation: Invocation, name: str) -> None:
    """Have lists leave a workspace out; it takes nothing new then (its admins).

    \b
    Example:
      det workspace archive vision
    """
    found = invocation.client.get_workspace(name)
    found.archive()
    invocation.tell(found.view, f"Archived workspace {found.id}: {clean(found.name)}")


@workspace.command()
@_workspace
@json_option
@pass_invocation
def unarchive(invocation: Invocation, name: str) -> None:
    """Have lists show a workspace again (its admins).

    \b
    Example:
      det workspace unarchive vision
    """
    found = invocation.client.get_workspace(name)
    found.unarchive()
    invocation.tell(found.view, f"Unarchived workspace {found.id}: {clean(found.name)}")


@workspace.command()
@_workspace
@yes_option
@json_option
@pass_invocation
def delete(invocation: Invocation, name: str, yes: bool) -> None:
    """Delete a workspace in which nothing lies, with its projects (its admins).

    \b
    Example:
      det workspace delete vision --yes
    """
    found = invocation.client.get_workspace(name)
    confirmed(f"Delete workspace {clean(found.reference)}?", yes=yes)
    found.delete()
    invocation.tell(found.view, f"Deleted workspace {found.id}: {clean(found.name)}")


@workspace.command()
@_workspace
@sort_options
@all_option
@csv_option
@json_option
@pass_invocation
def list_projects(invocation: Invocation, name: str, sort_by: str, order_by: str, everything: bool) -> None:
    """List the projects of a workspace.

    \b
    Example:
      det workspace list-projects vision
    """
    show_projects(invocation, name, sort_by, order_by, everything=everything)


def show_projects(invocation: Invocation, name: str, sort_by: str, order_by: str, *, everything: bool) -> None:
    """Print the projects of a workspace."""
    found = invocation.client.get_workspace(name)
    listed = found.list_projects(archived=None if everything else False)
    projects = in_order([one.view for one in listed], sort_by, order_by)
    if invocation.as_json:
        say_json(projects)
    elif not projects and not invocation.as_csv:
        said = "" if everything else hidden_note(len(found.list_projects(archived=True)), "project")
        say(said or f"Workspace {clean(found.name)} has no projects yet. Try: det project create {found.id} NAME")
    else:
        print_projects(projects)


# --- members


@workspace.command()
@_workspace
@csv_option
@json_option
@pass_invocation
def list_members(invocation: Invocation, name: str) -> None:
    """List the users and groups with a role in a workspace.

    \b
    Example:
      det workspace list-members vision
    """
    found = invocation.client.get_workspace(name)
    members = found.list_members()
    if invocation.as_json:
        say_json(members)
    else:
        print_members(found.reference, members)


@workspace.command()
@_workspace
@_user
@_group
@click.option(
    "--role",
    type=click.Choice(["viewer", "editor", "admin"]),
    default="viewer",
    show_default=True,
    help="A viewer sees what lies in it, an editor changes it and adds to it, an admin also deletes and shares.",
)
@json_option
@pass_invocation
def add_member(invocation: Invocation, name: str, user: str | None, group: str | None, role: RoleName) -> None:
    """Give a user or a group of the Hub a role in a workspace; one that they had is replaced (its admins).

    Names are not looked up in the Hub: whoever signs in by this one has the role.

    \b
    Examples:
      det workspace add-member vision --user bob
      det w add-member vision --group vision --role editor
    """
    _check_one(user, group)
    found = invocation.client.get_workspace(name)
    _tell_members(invocation, found, found.add_member(user=user, group=group, role=role))
    not_looked_up(invocation, user)


@workspace.command()
@_workspace
@_user
@_group
@json_option
@pass_invocation
def remove_member(invocation: Invocation, name: str, user: str | None, group: str | None) -> None:
    """Take the role of a user or a group away (its admins; everybody their own).

    What they have submitted into it stays theirs.

    \b
    Examples:
      det workspace remove-member vision --user bob
    """
    _check_one(user, group)
    found = invocation.client.get_workspace(name)
    _tell_members(invocation, found, found.remove_member(user=user, group=group))


def _check_one(user: str | None, group: str | None) -> None:
    if (user is None) == (group is None):
        raise click.UsageError("give --user or --group; run the command twice for both")


def _tell_members(invocation: Invocation, found: Workspace, members: object) -> None:
    if invocation.as_json:
        say_json(members)
    elif isinstance(members, list | tuple):
        print_members(found.reference, members)
